"""A measurement in a process of its own: what ran before leaves neither threads nor memory behind."""

import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def alone(
    measure: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """What `measure`, a function of a module, returns when called in a new process."""
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=warnings.simplefilter, initargs=("ignore",)
    ) as process:
        return process.submit(measure, *args, **kwargs).result()
