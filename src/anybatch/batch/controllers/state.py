"""Signals, state and decisions of a controller, as plain data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Signals:
    """Measurements at the end of an iteration. None: not measured, which changes nothing."""

    iteration: int
    """The iteration just finished, counted from 1."""
    env_steps: int
    """Env steps done so far, over all ranks."""
    samples_per_step: int
    """Samples that one more step adds to the iteration batch: the number of envs."""
    minibatches: int
    """Gradient steps per epoch while the minibatch is below its limit."""
    divergence: float | None = None
    """Divergence from the policy before the iteration, as the controller measures it."""
    noise_trace: float | None = None
    """tr(Σ) of the gradient noise scale, averaged separately from the signal."""
    noise_signal: float | None = None
    """|G|² of the gradient noise scale, averaged separately from the trace; it may be negative."""
    noise_weight: float = 0.0
    """Weight of the measurements in both averages: 0 before the first one, approaching 1."""


@dataclass(frozen=True, kw_only=True)
class ControllerState:
    """The state of a controller."""

    length: float
    """Rollout length before rounding."""
    measurements: tuple[float, ...] = ()
    """The recent divergences, all finite, the newest last."""
    has_changed: bool = False
    """Whether the length in use has ever changed in this run."""

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON values, which keep every float exactly."""
        return asdict(self) | {"measurements": list(self.measurements)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "ControllerState":
        return cls(
            length=state["length"],
            measurements=tuple(float(measured) for measured in state["measurements"]),
            has_changed=state["has_changed"],
        )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The rollout of the next iteration."""

    num_steps: int | None
    """Rollout length; None: the length in the run's config (kind = fixed)."""
    has_changed: bool
    """Whether the length has ever changed in this run; epochs = proportional applies from then on."""
