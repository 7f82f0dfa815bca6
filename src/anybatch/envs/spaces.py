"""From Gymnasium spaces, which EnvPool has too, to what networks take: [C, H, W] images, float32 vectors."""

import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary

from anybatch.envs.protocol import Actions, BoxActions, DiscreteActions
from anybatch.errors import EnvError

IMAGE_CHANNELS = (1, 3, 4)

Convert = Callable[[np.ndarray], np.ndarray]


class Observations(NamedTuple):
    """Shape and dtype of one env's observation, and how a batch of the engine's becomes them."""

    shape: tuple[int, ...]
    dtype: np.dtype
    convert: Convert


@contextmanager
def without_engine_warnings() -> Iterator[None]:
    """Silence, while an engine is built, what its user can do nothing about."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
        yield


def read_observations(space: object, env_id: str) -> Observations:
    """Images stay uint8 and become [channels, height, width]; vectors become float32; Discrete is one-hot."""
    float32 = np.dtype(np.float32)
    match space:
        case Discrete():
            return Observations((int(space.n),), float32, _one_hot(int(space.start), int(space.n)))
        case Box(dtype=np.uint8, shape=(height, width, channels)) if channels in IMAGE_CHANNELS:
            return Observations((channels, height, width), np.dtype(np.uint8), _channels_first)
        case Box(dtype=np.uint8, shape=(_, _, _)):
            return Observations(space.shape, np.dtype(np.uint8), np.asarray)
        case Box(shape=(_,)) | MultiBinary(shape=(_,)):
            return Observations(space.shape, float32, _float32)
    raise EnvError(
        f"{env_id} has observations {_shown(space)}; what works is uint8 images [C, H, W] or [H, W, C], "
        "vectors (one-dimensional Box or MultiBinary) and Discrete"
    )


def read_actions(space: object, env_id: str) -> tuple[Actions, Convert]:
    """The actions, and how a batch becomes the engine's: shifted to its start or clipped to its bounds."""
    match space:
        case Discrete():
            start = int(space.start)
            return DiscreteActions(int(space.n)), np.asarray if start == 0 else lambda action: action + start
        case Box(shape=(_,)) if np.issubdtype(space.dtype, np.floating):
            low, high = space.low, space.high
            # Bounds in the engine's own dtype: float32(0.4) is above a float64 bound of 0.4.
            return (
                BoxActions(low.astype(np.float32), high.astype(np.float32)),
                lambda action: np.minimum(np.maximum(action, low), high),
            )
    raise EnvError(
        f"{env_id} has actions {_shown(space)}; what works is Discrete and one-dimensional Box of floats"
    )


def _one_hot(start: int, count: int) -> Convert:
    values = np.arange(start, start + count)
    return lambda obs: (np.asarray(obs)[:, None] == values).astype(np.float32)


def _channels_first(obs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(obs.transpose(0, 3, 1, 2))  # [N, H, W, C] -> [N, C, H, W]


def _float32(obs: np.ndarray) -> np.ndarray:
    return np.asarray(obs, dtype=np.float32)


def _shown(space: object) -> str:
    return textwrap.shorten(str(space), 120) if isinstance(space, Space) else type(space).__name__
