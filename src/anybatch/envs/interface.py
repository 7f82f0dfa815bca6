"""Translation of single observations and actions between an environment and a policy, outside a rollout.

A program gives these observations, so they are checked before a network sees them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

from anybatch.envs.observation_reader import ObservationReader
from anybatch.envs.protocol import BoxActions, EnvSpec, VectorEnv
from anybatch.errors import EnvError

NUMBERS = "biuf"
"""numpy's kinds of booleans, integers and floats."""


class Values(NamedTuple):
    """What one observation consists of. Whole numbers have a smallest and a largest value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: np.ndarray | None
    high: np.ndarray | None


class Interface(Protocol):
    """Translates an environment's observations and actions."""

    def batch(self, obs: Any) -> tuple[Any, bool]:
        """One observation or a batch of them as a batch, and whether it was only one.

        Raises EnvError if it is anything else.
        """
        ...

    def observe(self, batch: Any, action_mask: Any | None) -> np.ndarray:
        """A batch of observations as a network sees it, [N, …]."""
        ...

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        """Actions [N, …] of a policy in the environment's form."""
        ...


@runtime_checkable
class HasInterface(Protocol):
    """An adapter whose observations or actions differ from those of a network."""

    @property
    def interface(self) -> Interface: ...


def interface_of(env: VectorEnv) -> Interface:
    return env.interface if isinstance(env, HasInterface) else ArrayInterface(env.spec)


@dataclass(frozen=True)
class ArrayInterface:
    """For environments whose observations are a network's inputs."""

    spec: EnvSpec

    def batch(self, obs: Any) -> tuple[np.ndarray, bool]:
        array = numbers(self.spec.env_id, obs)
        values = values_of_type(self.spec.obs_shape, self.spec.obs_dtype)
        single = array.shape == values.shape
        return _in_batch(self.spec.env_id, array[None] if single else array, values), single

    def observe(self, batch: Any, action_mask: Any | None) -> np.ndarray:
        if action_mask is not None:
            raise EnvError(
                f"{self.spec.env_id} takes no action_mask: its observations contain the masks, or it has none"
            )
        return batch

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        actions = self.spec.actions
        return actions.to_engine(action) if isinstance(actions, BoxActions) else action


@dataclass(frozen=True)
class SpaceInterface:
    """For environments with the spaces of Gymnasium."""

    env_id: str
    space: Any
    """The space of one observation."""
    action_space: Any
    """The space of one action."""
    reader: ObservationReader
    convert_action: Callable[[np.ndarray], np.ndarray]

    def batch(self, obs: Any) -> tuple[Any, bool]:
        parts = _each(self.space, obs, lambda part, _: numbers(self.env_id, part))
        first, space = next(_leaves(self.space, parts))
        single = first.shape == space.shape

        def in_batch(part: np.ndarray, space: Any) -> np.ndarray:
            values = values_of_space(space)
            if single and part.shape != values.shape:
                raise unfit(self.env_id, part.shape, values.shape)
            return _in_batch(self.env_id, part[None] if single else part, values)

        batch = _each(self.space, parts, in_batch)
        counts = sorted({len(part) for part, _ in _leaves(self.space, batch)})
        if len(counts) > 1:
            raise EnvError(
                f"the parts of the batch for {self.env_id} differ in their number of observations: "
                f"{counts[0]} and {counts[-1]}"
            )
        return batch, single

    def observe(self, batch: Any, action_mask: Any | None) -> np.ndarray:
        first, _ = next(_leaves(self.space, batch))
        return self.reader.outside(batch, len(first), action_mask)

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        return self.convert_action(action)


def _in_batch(env_id: str, array: np.ndarray, values: Values) -> np.ndarray:
    """A batch [N, …] whose shape and values have been checked."""
    if array.ndim == 0 or array.shape[1:] != values.shape:
        raise unfit(env_id, array.shape, values.shape)
    return checked(env_id, array, values)


def _each(space: Any, obs: Any, convert: Callable[[Any, Any], Any]) -> Any:
    """An observation, or a batch of them, with each part that has no others in it converted."""
    if not hasattr(space, "spaces"):
        return convert(obs, space)
    inner = space.spaces
    if isinstance(inner, Mapping):
        return {key: _each(part, _part(obs, key), convert) for key, part in inner.items()}
    return tuple(_each(part, _part(obs, index), convert) for index, part in enumerate(inner))


def _part(obs: Any, key: Any) -> Any:
    try:
        return obs[key]
    except (KeyError, IndexError, TypeError):
        if isinstance(obs, list | tuple) and any(isinstance(one, Mapping) for one in obs):
            raise EnvError("a batch is one dict of arrays [N, …], not a list of N dicts") from None
        raise EnvError(f"the observation lacks {key!r}, which is part of its space") from None


def _leaves(space: Any, obs: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """The parts that have no others in them, and their spaces."""
    if not hasattr(space, "spaces"):
        yield obs, space
        return
    inner = space.spaces
    for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from _leaves(part, obs[key])


def values_of_type(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Values:
    """Any values that the type can hold."""
    if np.issubdtype(dtype, np.floating):
        return Values(shape, dtype, None, None)
    low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return Values(shape, dtype, np.broadcast_to(low, shape), np.broadcast_to(high, shape))


def values_of_space(space: Any) -> Values:
    """The values in a space of Gymnasium that has no parts; the bounds of a Box are not enforced."""
    match space:
        case Discrete() | MultiDiscrete():
            count = space.n if isinstance(space, Discrete) else space.nvec
            low = np.asarray(space.start)
            return Values(low.shape, space.dtype, low, low + count - 1)
        case MultiBinary():
            return values_of_type(space.shape, np.dtype(np.bool_))
        case _:
            return values_of_type(space.shape, space.dtype)


def numbers(env_id: str, given: object) -> np.ndarray:
    """What was given as an array of numbers."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise no_numbers(env_id, "rows of different lengths") from None
    except (TypeError, RuntimeError):  # such as a tensor on a GPU, or with a gradient
        raise no_numbers(env_id, brief(given)) from None
    if array.dtype.kind not in NUMBERS:
        raise no_numbers(env_id, brief(given))
    return array


def no_numbers(env_id: str, found: str) -> EnvError:
    return EnvError(f"an observation for {env_id} must be an array of numbers; got {found}")


def brief(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 40 else f"a value of type {type(given).__name__}"


def checked(env_id: str, array: np.ndarray, values: Values) -> np.ndarray:
    """A batch of observations [N, …] in the environment's type, if all of its values are possible."""
    if values.low is not None and values.high is not None:
        refuse_impossible(env_id, array, values.low, values.high)
        return array.astype(values.dtype)
    with np.errstate(over="ignore"):
        converted = array.astype(values.dtype)
    refuse_non_finite(env_id, converted)
    return converted


def refuse_impossible(env_id: str, array: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Refuse a batch with a value that is not whole, or not from `low` to `high`."""
    possible = (array >= low) & (array <= high) & (array == np.floor(array))
    if not possible.all():
        place = tuple(np.argwhere(~possible)[0])
        smallest, largest = low[place[1:]], high[place[1:]]
        raise EnvError(
            f"{which(array, place)} for {env_id} contains {array[place]}, but only whole numbers from "
            f"{smallest} to {largest} are possible"
        )


def refuse_non_finite(env_id: str, array: np.ndarray) -> None:
    """Refuse a batch with NaN or an infinity, for which a policy has no meaningful action."""
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0])
        raise EnvError(f"{which(array, place)} for {env_id} contains {array[place]}: values must be finite")


def which(array: np.ndarray, place: tuple[int, ...]) -> str:
    return f"observation {place[0] + 1} of {len(array)}" if len(array) > 1 else "the observation"


def unfit(env_id: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> EnvError:
    return EnvError(
        f"an observation of shape {shape} does not fit {env_id}, whose observations have shape {wanted}, "
        "or that shape after the number of observations in a batch"
    )
