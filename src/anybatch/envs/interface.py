"""Translation of single observations and actions between an environment and a policy, outside a rollout."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from anybatch.envs import given
from anybatch.envs.given import Values
from anybatch.envs.observation_reader import ObservationReader
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import EnvError


class Interface(Protocol):
    """Translates the environment's own observations and actions."""

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
        array = given.numbers(self.spec.env_id, obs)
        values = given.values_of_type(self.spec.obs_shape, self.spec.obs_dtype)
        single = array.shape == values.shape
        return _in_batch(self.spec.env_id, array[None] if single else array, values), single

    def observe(self, batch: Any, action_mask: Any | None) -> np.ndarray:
        if action_mask is not None:
            raise EnvError(
                f"{self.spec.env_id} takes no action_mask: its observations contain the masks, or it has none"
            )
        return batch

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        return action


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
        parts = _each(self.space, obs, lambda part, _: given.numbers(self.env_id, part))
        first, space = next(_leaves(self.space, parts))
        single = first.shape == space.shape

        def in_batch(part: np.ndarray, space: Any) -> np.ndarray:
            values = given.values_of_space(space)
            if single and part.shape != values.shape:
                raise given.unfit(self.env_id, part.shape, values.shape)
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
        raise given.unfit(env_id, array.shape, values.shape)
    return given.checked(env_id, array, values)


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
        raise EnvError(f"the observation lacks {key!r}, which is part of its space") from None


def _leaves(space: Any, obs: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """The parts that have no others in them, and their spaces."""
    if not hasattr(space, "spaces"):
        yield obs, space
        return
    inner = space.spaces
    for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from _leaves(part, obs[key])
