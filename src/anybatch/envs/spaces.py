"""Action spaces of Gymnasium, which EnvPool also uses: from actions of policies to actions of engines."""

import math
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from anybatch.envs.protocol import Actions, BoxActions, DiscreteActions, MultiDiscreteActions
from anybatch.errors import EnvError

Convert = Callable[[np.ndarray], np.ndarray]


@contextmanager
def without_engine_warnings() -> Iterator[None]:
    """Silence warnings, while an engine is built, that a user can do nothing about."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
        yield


def read_actions(space: object, env_id: str) -> tuple[Actions, Convert]:
    """The actions, and how a batch becomes the engine's: shifted to its start or clipped to its bounds.

    MultiBinary is MultiDiscrete with two actions for each choice.
    """
    match space:
        case Discrete():
            start = int(space.start)
            return DiscreteActions(int(space.n)), np.asarray if start == 0 else lambda action: action + start
        case MultiDiscrete():
            counts = tuple(int(count) for count in space.nvec.flatten())
            return MultiDiscreteActions(counts), _to_multi_discrete(space)
        case MultiBinary():
            shape, dtype = space.shape, space.dtype
            return (
                MultiDiscreteActions((2,) * math.prod(shape)),
                lambda action: action.reshape(-1, *shape).astype(dtype),
            )
        case Box(shape=(_,)) if np.issubdtype(space.dtype, np.floating):
            low, high = space.low, space.high
            # Bounds in the engine's own dtype: float32(0.4) is above a float64 bound of 0.4.
            return (
                BoxActions(low.astype(np.float32), high.astype(np.float32)),
                lambda action: np.minimum(np.maximum(action, low), high),
            )
    raise EnvError(
        f"{env_id} has actions {shown(space)}; supported are Discrete, MultiDiscrete, MultiBinary and "
        "one-dimensional Box of floats, not Dict, Tuple, Text, Graph or Sequence"
    )


def _to_multi_discrete(space: MultiDiscrete[Any]) -> Convert:
    shape, dtype, start = space.shape, space.dtype, space.start
    return lambda action: (action.reshape(-1, *shape) + start).astype(dtype)


def shown(space: object) -> str:
    """A space in an error's sentence."""
    return textwrap.shorten(str(space), 120) if isinstance(space, Space) else type(space).__name__
