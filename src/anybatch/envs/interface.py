"""Translation of single observations and actions between an environment and a policy, outside a rollout."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from anybatch.envs.observation_reader import ObservationReader
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import EnvError


class Interface(Protocol):
    """Translates the environment's own observations and actions."""

    def is_single(self, obs: Any) -> bool:
        """Whether `obs` is one observation, as opposed to a batch of them."""
        ...

    def observe(self, obs: Any, action_mask: Any | None) -> np.ndarray:
        """A batch of observations as a network sees it, [N, …]."""
        ...

    def batch_of_one(self, obs: Any) -> Any:
        """A batch that holds one observation."""
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

    def is_single(self, obs: Any) -> bool:
        return np.shape(obs) == self.spec.obs_shape

    def observe(self, obs: Any, action_mask: Any | None) -> np.ndarray:
        if action_mask is not None:
            raise EnvError(
                f"{self.spec.env_id} takes no action_mask: its observations contain the masks, or it has none"
            )
        array = np.asarray(obs, dtype=self.spec.obs_dtype)
        if array.shape[1:] != self.spec.obs_shape:
            raise unfit(self.spec.env_id, array.shape, self.spec.obs_shape)
        return array

    def batch_of_one(self, obs: Any) -> Any:
        return np.asarray(obs)[None]

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        return action


@dataclass(frozen=True)
class SpaceInterface:
    """For environments with the spaces of Gymnasium."""

    env_id: str
    space: Any
    """The space of one observation."""
    reader: ObservationReader
    convert_action: Callable[[np.ndarray], np.ndarray]

    def is_single(self, obs: Any) -> bool:
        return _leaf_shape(obs, self.space) == _leaf_space(self.space).shape

    def observe(self, obs: Any, action_mask: Any | None) -> np.ndarray:
        shape, wanted = _leaf_shape(obs, self.space), _leaf_space(self.space).shape
        if shape[1:] != wanted:
            raise unfit(self.env_id, shape, wanted)
        return self.reader.outside(obs, shape[0], action_mask)

    def batch_of_one(self, obs: Any) -> Any:
        from gymnasium.vector.utils import concatenate, create_empty_array

        return concatenate(self.space, (obs,), create_empty_array(self.space, 1))

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        return self.convert_action(action)


def _leaf_space(space: Any) -> Any:
    """The first space without others in it."""
    while hasattr(space, "spaces"):
        inner = space.spaces
        space = next(iter(inner.values() if isinstance(inner, Mapping) else inner))
    return space


def _leaf_shape(obs: Any, space: Any) -> tuple[int, ...]:
    """The shape of the part of an observation that belongs to that space."""
    while hasattr(space, "spaces"):
        inner = space.spaces
        key, space = next(iter(inner.items() if isinstance(inner, Mapping) else enumerate(inner)))
        try:
            obs = obs[key]
        except (KeyError, IndexError, TypeError):
            raise EnvError(f"the observation lacks {key!r}, which is part of its space") from None
    return np.shape(obs)


def unfit(env_id: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> EnvError:
    return EnvError(
        f"an observation of shape {shape} does not fit {env_id}, whose observations have shape {wanted}, "
        "or that shape after the number of observations in a batch"
    )
