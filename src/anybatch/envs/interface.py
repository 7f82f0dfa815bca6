"""Translation of single observations and actions between an environment and a policy, outside a rollout."""

from collections.abc import Callable, Iterator, Mapping
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
        refuse_non_finite(self.spec.env_id, array)
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
        part, space = next(_parts(obs, self.space))
        return np.shape(part) == space.shape

    def observe(self, obs: Any, action_mask: Any | None) -> np.ndarray:
        for part, space in _parts(obs, self.space):
            if np.shape(part)[1:] != space.shape:
                raise unfit(self.env_id, np.shape(part), space.shape)
            refuse_non_finite(self.env_id, np.asarray(part))
        first, _ = next(_parts(obs, self.space))
        return self.reader.outside(obs, len(first), action_mask)

    def batch_of_one(self, obs: Any) -> Any:
        from gymnasium.vector.utils import concatenate, create_empty_array

        for part, space in _parts(obs, self.space):
            if np.shape(part) != space.shape:
                raise unfit(self.env_id, np.shape(part), space.shape)
        return concatenate(self.space, (obs,), create_empty_array(self.space, 1))

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        return self.convert_action(action)


def _parts(obs: Any, space: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of an observation, or of a batch of them, that have no others in them, and their spaces."""
    if not hasattr(space, "spaces"):
        yield obs, space
        return
    inner = space.spaces
    for key, part_space in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        try:
            part = obs[key]
        except (KeyError, IndexError, TypeError):
            raise EnvError(f"the observation lacks {key!r}, which is part of its space") from None
        yield from _parts(part, part_space)


def refuse_non_finite(env_id: str, obs: np.ndarray) -> None:
    """Refuse observations [N, …] with NaN or an infinity, for which a policy has no meaningful action."""
    if np.issubdtype(obs.dtype, np.floating) and not np.isfinite(obs).all():
        place = tuple(np.argwhere(~np.isfinite(obs))[0])
        which = f"observation {place[0] + 1} of {len(obs)}" if len(obs) > 1 else "the observation"
        raise EnvError(f"{which} for {env_id} contains {obs[place]}: values must be finite")


def unfit(env_id: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> EnvError:
    return EnvError(
        f"an observation of shape {shape} does not fit {env_id}, whose observations have shape {wanted}, "
        "or that shape after the number of observations in a batch"
    )
