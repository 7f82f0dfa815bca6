"""The protocol of environments: N of them, stepped together, with one kind of step."""

import ctypes
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from anybatch.envs.layout import ObsKind, ObsLayout
from anybatch.errors import EnvError

LARGEST_BOUND = 1e9
"""Bounds of actions beyond this count as infinite, since the largest float often means that."""


@dataclass(frozen=True)
class DiscreteActions:
    """Actions 0 … count - 1, as int64 [N]."""

    count: int

    def __str__(self) -> str:
        return f"Discrete({self.count})"


@dataclass(frozen=True)
class MultiDiscreteActions:
    """Several choices at once, each among its own count from 0, as int64 [N, number of choices]."""

    counts: tuple[int, ...]

    def __str__(self) -> str:
        return f"MultiDiscrete([{', '.join(str(count) for count in self.counts)}])"


class ActionMap(NamedTuple):
    """From continuous actions of a policy to those of an environment, in each dimension.

    clip(scale · clip(action, ±limit) + offset, low, high)
    """

    limit: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def to_bounds(cls, low: np.ndarray, high: np.ndarray, *, scaled: bool) -> "ActionMap":
        """From [-1, 1] if `scaled` and both bounds [A] are finite, else only clipped; in the bounds' type."""
        one, zero = np.ones_like(low), np.zeros_like(low)
        maps = scaled & (np.maximum(np.abs(low), np.abs(high)) <= LARGEST_BOUND)
        half_low, half_high = (np.where(maps, bound, zero) / 2 for bound in (low, high))
        return cls(
            limit=np.where(maps, one, np.inf).astype(low.dtype),
            scale=np.where(maps, half_high - half_low, one),
            offset=half_low + half_high,
            low=low,
            high=high,
        )

    def __call__(self, action: np.ndarray) -> np.ndarray:
        within = np.minimum(np.maximum(action, -self.limit), self.limit)
        return np.minimum(np.maximum(within * self.scale + self.offset, self.low), self.high)


@dataclass(frozen=True, eq=False)
class BoxActions:
    """Real vectors, as float32 [N, A]. The engine gets them within [low, high], which may be infinite."""

    low: np.ndarray
    """float32 [A]."""
    high: np.ndarray
    """float32 [A]."""
    scaled: bool = False
    """Whether actions in [-1, 1] are mapped to finite bounds, as `env_config.actions` says."""

    def __str__(self) -> str:
        numbers = f"Box of {len(self.low)} number{'s' * (len(self.low) > 1)}"
        return f"{numbers}, scaled from [-1, 1]" if self.scaled else numbers

    @cached_property
    def to_engine(self) -> ActionMap:
        """From actions [N, A] of a policy to those of the environment."""
        return ActionMap.to_bounds(self.low, self.high, scaled=self.scaled)

    def validate_bounds(self, env_id: str) -> None:
        """Refuse bounds that are reversed or, if actions are scaled to them, equal."""
        fits = self.low < self.high if self.scaled else self.low <= self.high
        if not fits.all():
            index = int(np.argmin(fits))
            raise EnvError(
                f"{env_id}: dimension {index} of its actions is bounded by {self.low[index]:g} and "
                f"{self.high[index]:g}; the lower bound must be below the upper one"
            )


Actions = DiscreteActions | MultiDiscreteActions | BoxActions


def with_scaling(actions: Actions, how: Literal["clipped", "scaled"]) -> Actions:
    """The actions as `env_config.actions` says, which concerns only continuous ones."""
    return replace(actions, scaled=how == "scaled") if isinstance(actions, BoxActions) else actions


def bounds_hint(actions: Actions) -> str | None:
    """What to do about bounds that a new policy does not fit; None if it does."""
    if not isinstance(actions, BoxActions) or actions.scaled:
        return None
    finite = np.isfinite(actions.low) & np.isfinite(actions.high)
    unusual = finite & ~(np.isclose(actions.low, -1) & np.isclose(actions.high, 1))
    if not unusual.any():
        return None
    index = int(np.argmax(unusual))
    return (
        f"Dimension {index} of the actions is bounded by {actions.low[index]:g} and {actions.high[index]:g}, "
        "but a new policy acts around 0 with a standard deviation of about 1: env-config.actions = scaled "
        "maps [-1, 1] to the bounds."
    )


@dataclass(frozen=True, kw_only=True)
class EnvSpec:
    """What a network and a rollout need to know about an environment."""

    env_id: str
    """The id without a prefix such as gym: or envpool:; `engine` says which engine it is."""
    engine: str
    """The engine that runs it and its version, such as "envpool 1.2.5": one id can mean several."""
    num_envs: int
    obs_shape: tuple[int, ...]
    """Shape of one observation: [channels, height, width] for images and planes, one dimension for packed
    parts."""
    obs_dtype: np.dtype
    """uint8 for images, which networks divide by 255; float32 for vectors; bool for planes of 0 and 1, which
    networks use unchanged. For packed parts, uint8 or float32."""
    actions: Actions
    obs_layout: ObsLayout = field(default=None)  # pyright: ignore[reportAssignmentType]
    """The parts of an observation. By default a single part, given by `obs_shape` and `obs_dtype`."""

    def __post_init__(self) -> None:
        if self.obs_layout is None:
            kinds: dict[str, ObsKind] = {"uint8": "image", "bool": "planes"}
            layout = ObsLayout.single(self.obs_shape, kinds.get(self.obs_dtype.name, "vector"))
            object.__setattr__(self, "obs_layout", layout)
        elif (self.obs_layout.shape, self.obs_layout.dtype) != (self.obs_shape, self.obs_dtype):
            raise EnvError(
                f"{self.env_id}: observations of shape {self.obs_shape} and type {self.obs_dtype} do not fit "
                f"their layout, which has {self.obs_layout.shape} and {self.obs_layout.dtype}"
            )
        if self.obs_layout.mask_width:
            validate_mask(self.env_id, self.actions, self.obs_layout.mask_width)

    @property
    def obs_kind(self) -> ObsKind:
        """How a network interprets observations."""
        return self.obs_layout.kind

    @property
    def obs_bytes(self) -> int:
        """Memory of one env's observation."""
        return self.obs_dtype.itemsize * math.prod(self.obs_shape)

    @property
    def action_width(self) -> int:
        """Numbers that a policy network gives for one decision."""
        return action_width(self.actions)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one env's action: () for Discrete."""
        match self.actions:
            case DiscreteActions():
                return ()
            case MultiDiscreteActions():
                return (len(self.actions.counts),)
            case BoxActions():
                return self.actions.low.shape

    @property
    def is_continuous(self) -> bool:
        """Whether actions are real vectors."""
        return isinstance(self.actions, BoxActions)

    @property
    def action_counts(self) -> tuple[int, ...] | None:
        """The number of actions of each choice, if an action makes several choices, else None."""
        return self.actions.counts if isinstance(self.actions, MultiDiscreteActions) else None


def action_width(actions: Actions) -> int:
    """Numbers that a policy network gives for one decision: one per action that a choice has."""
    match actions:
        case DiscreteActions():
            return actions.count
        case MultiDiscreteActions():
            return sum(actions.counts)
        case BoxActions():
            return len(actions.low)


def validate_mask(env_id: str, actions: Actions, mask_width: int) -> None:
    """Raise an error if a mask of `mask_width` entries does not fit the actions."""
    if isinstance(actions, BoxActions):
        raise EnvError(
            f"{env_id} has an action_mask and continuous actions ({actions}); "
            "masks need Discrete, MultiDiscrete or MultiBinary actions"
        )
    if mask_width != action_width(actions):
        concatenated = ", the choices one after another" * isinstance(actions, MultiDiscreteActions)
        raise EnvError(
            f"{env_id} has an action_mask of {mask_width} entries, but its actions {actions} need "
            f"{action_width(actions)}{concatenated}"
        )


class EnvStep(NamedTuple):
    """One step of all N envs. The arrays are read, never written to.

    Under next-step reset the step after an episode's end only resets: it ignores its action, `valid` is False
    there, and `obs` at the end itself is the final observation. Under same-step reset every step is valid,
    `obs` at the end already is the next episode's first and `final_obs` holds the final one.
    """

    obs: np.ndarray
    """[N, ...]"""
    reward: np.ndarray
    """float32 [N], the reward for learning: clipped if configured."""
    terminated: np.ndarray
    """bool [N]: nothing follows, do not bootstrap. Under episodic_life also a lost life."""
    truncated: np.ndarray
    """bool [N]: cut by a step limit."""
    valid: np.ndarray
    """bool [N]: False if the step involved no decision."""
    score: np.ndarray
    """float32 [N]: the reward as the game counts it, never clipped; 0 on reset steps."""
    episode_end: np.ndarray
    """bool [N]: the game is really over or cut. For statistics: a lost life does not end an episode."""
    final_obs: np.ndarray | None
    """None under next-step reset; else [N, ...], meaningful in rows that ended."""


class VectorEnv(Protocol):
    """N envs of one kind. `reset` starts them all; `step` resets ended ones automatically."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self) -> np.ndarray: ...

    def step(self, action: np.ndarray) -> EnvStep: ...

    def close(self) -> None: ...


class NativeEnvs(NamedTuple):
    """Envs that native code can step by itself, as native/rollout.h says; a VectorEnv has `native_envs()`."""

    step: int
    """Address of the function that takes a step of all envs."""
    envs: int
    """Address of what it steps."""

    @classmethod
    def of(cls, step: Any, envs: ctypes.Structure) -> "NativeEnvs":
        """`step` is the function of a library that was loaded with ctypes."""
        return cls(ctypes.cast(step, ctypes.c_void_p).value or 0, ctypes.addressof(envs))


@runtime_checkable
class InfoEnv(VectorEnv, Protocol):
    """A VectorEnv whose infos contain numbers to be recorded."""

    def take_info_means(self) -> dict[str, float]:
        """The mean of each number over the steps since the last call; absent if there was none."""
        ...


@runtime_checkable
class RestorableEnv(VectorEnv, Protocol):
    """A VectorEnv whose state is plain data: arrays and JSON values in nested dicts.

    A resume continues its episodes bit for bit.
    """

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
