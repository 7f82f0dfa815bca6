"""Native code or torch: the choice of a run, kept when it is resumed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from anybatch import machine
from anybatch.algorithms.state import TrainState
from anybatch.config import RunConfig
from anybatch.distributed import group
from anybatch.kernels.choice import Choice


def compile_choice(config: RunConfig) -> Choice:
    """Whether to use native code, which supports only float32 and float64."""
    return "off" if config.precision == "bf16" else config.compile


def own_cores() -> int:
    """The cores that this process may use: ranks on one machine share them."""
    return max(1, machine.available_cores() // group.local_ranks())


def native_threads(config: RunConfig) -> int:
    """The most threads that native code may use; it uses as many as pay off. Actors leave none to spare."""
    if config.threads:
        return config.threads
    return own_cores() if config.collection is None else 1


@contextmanager
def torch_beside_native_code(state: TrainState[Any], config: RunConfig) -> Iterator[None]:
    """The threads that were asked for, while torch computes a longer part of a run in native code.

    Torch otherwise has one thread there. Its number of threads changes how it rounds: only one that the
    config fixes can be repeated.
    """
    if state.kernel is None or config.threads == 0:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_arithmetic(
    state: TrainState[Any], config: RunConfig, *, was_native: bool, say: Callable[[str], None]
) -> None:
    """Keep the earlier choice between native code and torch, unless the config makes it."""
    if config.compile != "auto" or config.precision == "bf16":
        return
    if state.kernel is not None and not was_native:
        use_torch(state)
        say("This run has been trained with torch and continues with it; --compile on is faster.")
    elif state.kernel is None and was_native:
        say("This run has been trained with native code and continues with torch: rounding will differ.")


def use_torch(state: TrainState[Any]) -> None:
    """Switch from native code to torch."""
    state.kernel = None
    state.source.use_torch()
    state.steps.use_torch()
