"""Spaces of Gymnasium, which EnvPool also uses: actions for engines, and the parts of observations.

Observation spaces inside Dict and Tuple, at any depth, become one vector in the space's order, in addition to
at most one image and the action mask: the `action_mask` entry of the outermost Dict.
"""

import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from anybatch.envs.layout import FLOAT32, UINT8, ObsLayout
from anybatch.envs.protocol import ActionMap, Actions, BoxActions, DiscreteActions, MultiDiscreteActions
from anybatch.errors import EnvError

Convert = Callable[[np.ndarray], np.ndarray]


@contextmanager
def without_engine_warnings() -> Iterator[None]:
    """Silence warnings, while an engine is built, that a user can do nothing about."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
        yield


def read_actions(
    space: object, env_id: str, how: Literal["clipped", "scaled"] = "clipped"
) -> tuple[Actions, Convert]:
    """The actions, and how a batch becomes the engine's: shifted to its start, or brought into its bounds.

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
            actions = BoxActions(low.astype(np.float32), high.astype(np.float32), scaled=how == "scaled")
            actions.validate_bounds(env_id)
            # Bounds in the engine's own dtype: float32(0.4) is above a float64 bound of 0.4.
            if actions.scaled:
                return actions, ActionMap.to_bounds(low, high, scaled=True)
            return actions, lambda action: np.minimum(np.maximum(action, low), high)
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


MASK_KEY = "action_mask"
IMAGE_CHANNELS = (1, 3, 4)
SMALLEST_FLOAT_SIDE = 8
"""Pixels. A three-dimensional Box of floats is an image if its last or first size is one of IMAGE_CHANNELS
and both others are at least this; else it is numbers. Of bytes, every three-dimensional Box is an image."""
LARGEST_FLOAT_BOUND = 1e6
"""Bounds of float images beyond this count as infinity, since the largest float often means that."""

Path = tuple[str | int, ...]
Read = Callable[[Any], np.ndarray]
"""Turns the engine's observations of all N envs, however nested, into an array [N, …]."""


class Form(NamedTuple):
    """The shape of a leaf space's numbers: [channels, height, width] for an image, else [width]."""

    shape: tuple[int, ...]
    dtype: np.dtype
    convert: Convert


class Part(NamedTuple):
    """Something to be read from an observation."""

    path: Path
    form: Form
    read: Read


@dataclass(frozen=True)
class Observations:
    """What the observations of a space are made of."""

    image: Part | None
    numbers: tuple[Part, ...]
    masks: tuple[Part, ...]
    """Parts of the action mask, one after another: several if its space is a Tuple."""

    @property
    def mask_width(self) -> int:
        return _width(self.masks)

    def layout(self, mask_width: int) -> ObsLayout:
        """The layout of these observations with a mask of `mask_width` entries, 0 for none."""
        width = _width(self.numbers)
        if self.image is None:
            return ObsLayout(vector_width=width, mask_width=mask_width)
        shape, dtype, _ = self.image.form
        return ObsLayout(image_shape=shape, image_dtype=dtype, vector_width=width, mask_width=mask_width)

    @cached_property
    def read_vector(self) -> Read | None:
        return _side_by_side(self.numbers)

    @cached_property
    def read_mask(self) -> Read | None:
        """The mask [N, A] as the engine gives it."""
        return _side_by_side(self.masks)


def read_observations(space: object, env_id: str) -> Observations:
    """The parts of a space, or an error that names the one that cannot be used.

    Images become [channels, height, width]; bytes stay bytes, and floats are scaled to [0, 1] by finite
    bounds. Discrete and MultiDiscrete become one-hot, Box and MultiBinary of any shape flat numbers.
    """
    images: list[Part] = []
    numbers: list[Part] = []
    masks: list[Part] = []
    for path, inner in _leaves(space, ()):
        if MASK_KEY in path[1:]:
            raise EnvError(
                f"{env_id} shows {_named(path)}, but a mask must be an entry of the outermost Dict"
            )
        is_mask = path[:1] == (MASK_KEY,)
        form = _mask(inner) if is_mask else _image(inner) or _numbers(inner)
        if form is None:
            raise _unusable(space, path, inner, env_id)
        part = Part(path, form, _at(path, form.convert))
        (masks if is_mask else images if len(form.shape) == 3 else numbers).append(part)
    if len(images) > 1:
        first, second = (_named(image.path) for image in images[:2])
        raise EnvError(
            f"{env_id} has two images, {first} and {second}; only one is supported, with any other numbers"
        )
    if not images and not _width(numbers):
        raise EnvError(f"{env_id} has observations {shown(space)}, which are empty")
    return Observations(images[0] if images else None, tuple(numbers), tuple(masks))


def _leaves(space: object, path: Path) -> Iterator[tuple[Path, object]]:
    match space:
        case Dict():
            for key, inner in space.spaces.items():
                yield from _leaves(inner, (*path, key))
        case Tuple():
            for index, inner in enumerate(space.spaces):
                yield from _leaves(inner, (*path, index))
        case _:
            yield path, space


def _unusable(space: object, path: Path, inner: object, env_id: str) -> EnvError:
    part = f", whose part {_named(path)} is {shown(inner)}" if path else ""
    works = (
        "a mask must be Box or MultiBinary"
        if path[:1] == (MASK_KEY,)
        else "supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these, "
        "not Text, Graph, Sequence or OneOf"
    )
    return EnvError(f"{env_id} has observations {shown(space)}{part}; {works}")


def _at(path: Path, convert: Convert) -> Read:
    if not path:
        return convert

    def read(obs: Any) -> np.ndarray:
        for key in path:
            obs = obs[key]
        return convert(obs)

    return read


def _named(path: Path) -> str:
    return ".".join(str(key) for key in path)


def _width(parts: Sequence[Part]) -> int:
    return sum(math.prod(part.form.shape) for part in parts)


def _side_by_side(parts: Sequence[Part]) -> Read | None:
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0].read
    return lambda obs: np.concatenate([part.read(obs) for part in parts], axis=1)


def _image(space: object) -> Form | None:
    match space:
        case Box(dtype=np.uint8, shape=(height, width, channels)) if channels in IMAGE_CHANNELS:
            return Form((channels, height, width), UINT8, _channels_first)
        case Box(dtype=np.uint8, shape=(_, _, _)):
            return Form(space.shape, UINT8, np.asarray)
        case Box(shape=(_, _, _)) if np.issubdtype(space.dtype, np.floating):
            return _float_image(space)
    return None


def _float_image(space: Box) -> Form | None:
    first, second, last = space.shape
    scale = _scale_to_one(space)
    if last in IMAGE_CHANNELS and min(first, second) >= SMALLEST_FLOAT_SIDE:
        return Form((last, first, second), FLOAT32, lambda obs: _channels_first(scale(obs)))
    if first in IMAGE_CHANNELS and min(second, last) >= SMALLEST_FLOAT_SIDE:
        return Form((first, second, last), FLOAT32, scale)
    return None


def _scale_to_one(space: Box) -> Convert:
    """Numbers between the bounds of a space as numbers in [0, 1]; unchanged if it has none."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    is_bounded = bool((np.maximum(np.abs(low), np.abs(high)) <= LARGEST_FLOAT_BOUND).all())
    if not is_bounded or ((low == 0).all() and (high == 1).all()):
        return _float32
    span = np.where(high > low, high - low, 1.0)
    return lambda obs: ((obs - low) / span).astype(np.float32)


def _numbers(space: object) -> Form | None:
    match space:
        case Discrete():
            return Form((int(space.n),), FLOAT32, _one_hot(int(space.start), int(space.n)))
        case MultiDiscrete():
            return Form((int(space.nvec.sum()),), FLOAT32, _one_hots(space))
        case Box(shape=(_,)) | MultiBinary(shape=(_,)):
            return Form(space.shape, FLOAT32, _float32)
        case Box() | MultiBinary():
            return Form((math.prod(space.shape),), FLOAT32, lambda obs: _flat(_float32(obs)))
    return None


def _mask(space: object) -> Form | None:
    if isinstance(space, Box | MultiBinary):
        return Form((math.prod(space.shape),), np.dtype(np.bool_), lambda obs: _flat(np.asarray(obs)))
    return None


def _one_hot(start: int, count: int) -> Convert:
    values = np.arange(start, start + count)
    return lambda obs: (np.asarray(obs)[:, None] == values).astype(np.float32)


def _one_hots(space: MultiDiscrete[Any]) -> Convert:
    counts, starts = space.nvec.flatten(), space.start.flatten()
    choice = np.repeat(np.arange(len(counts)), counts)
    value = np.concatenate([np.arange(count) for count in counts]) + starts[choice]
    return lambda obs: (_flat(np.asarray(obs))[:, choice] == value).astype(np.float32)


def _flat(obs: np.ndarray) -> np.ndarray:
    return obs.reshape(len(obs), -1)


def _channels_first(obs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(obs.transpose(0, 3, 1, 2))  # [N, H, W, C] -> [N, C, H, W]


def _float32(obs: np.ndarray) -> np.ndarray:
    return np.asarray(obs, dtype=np.float32)
