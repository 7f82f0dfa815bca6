"""What an environment is to the rest of the library: N of them, stepped together, one kind of step."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True)
class DiscreteActions:
    """Actions 0 … count - 1, as int64 [N]."""

    count: int


@dataclass(frozen=True, eq=False)
class BoxActions:
    """Real vectors, as float32 [N, A]. The engine gets them clipped to [low, high], which may be infinite."""

    low: np.ndarray
    """float32 [A]."""
    high: np.ndarray
    """float32 [A]."""


Actions = DiscreteActions | BoxActions


@dataclass(frozen=True, kw_only=True)
class EnvSpec:
    """What a network and a rollout need to know about an environment."""

    env_id: str
    """The id without gym: or envpool:, which `engine` tells."""
    engine: str
    """The engine that runs it and its version, such as "envpool 1.2.5": one id can mean several."""
    num_envs: int
    obs_shape: tuple[int, ...]
    """Of one env: [channels, height, width] for images and planes."""
    obs_dtype: np.dtype
    """uint8 for images, which networks divide by 255; float32 for vectors; bool for planes of 0 and 1, which
    networks take as they are."""
    actions: Actions

    @property
    def obs_kind(self) -> Literal["vector", "image", "planes"]:
        """What a network takes them for."""
        if self.obs_dtype == np.uint8:
            return "image"
        return "planes" if self.obs_dtype == np.bool_ else "vector"

    @property
    def obs_bytes(self) -> int:
        """Memory of one env's observation."""
        return self.obs_dtype.itemsize * math.prod(self.obs_shape)

    @property
    def action_width(self) -> int:
        """Numbers that a policy network gives for one decision."""
        return len(self.actions.low) if isinstance(self.actions, BoxActions) else self.actions.count


class EnvStep(NamedTuple):
    """One step of all N envs. The arrays are read, never written to.

    Under next-step reset the step after an episode's end only resets: it ignores its action, `valid` is False
    there, and `obs` at the end itself is the final observation. Under same-step reset every step is valid,
    `obs` at the end already is the next episode's first and `final_obs` holds the final one.
    """

    obs: np.ndarray
    """[N, ...]"""
    reward: np.ndarray
    """float32 [N], what is learned from: clipped if that was asked for."""
    terminated: np.ndarray
    """bool [N]: nothing follows, do not bootstrap. Under episodic_life a lost life too."""
    truncated: np.ndarray
    """bool [N]: cut by a step limit."""
    valid: np.ndarray
    """bool [N]: False where the step took no decision."""
    score: np.ndarray
    """float32 [N]: the reward as the game counts it, never clipped; 0 on reset steps."""
    episode_end: np.ndarray
    """bool [N]: the game is really over or cut. For statistics; a lost life is not an episode's end."""
    final_obs: np.ndarray | None
    """None under next-step reset; else [N, ...], meaningful in rows that ended."""


class VectorEnv(Protocol):
    """N envs of one kind. `reset` starts them all, `step` resets the ended ones by itself."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self) -> np.ndarray: ...

    def step(self, action: np.ndarray) -> EnvStep: ...

    def close(self) -> None: ...


@runtime_checkable
class RestorableEnv(VectorEnv, Protocol):
    """A VectorEnv whose state is plain data: arrays and JSON values in nested dicts.

    A resume continues its episodes bit for bit.
    """

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
