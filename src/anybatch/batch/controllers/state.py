"""What a controller sees, keeps and says: plain data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Signals:
    """What is known at the end of an iteration. None: not measured (yet), which changes nothing."""

    iteration: int
    """The iteration just finished, counted from 1."""
    env_steps: int
    """Done so far, over all ranks."""
    samples_per_step: int
    """Samples that one more step adds to the iteration batch: envs × ranks."""
    minibatches: int
    """Gradient steps per epoch."""
    divergence: float | None = None
    """Of the policy after the iteration from that before it, of whichever kind the controller is for."""
    noise_trace: float | None = None
    """tr(Σ) of the gradient noise scale, averaged apart from the signal."""
    noise_signal: float | None = None
    """|G|² of the gradient noise scale, averaged apart from the trace; it may be negative."""


@dataclass(frozen=True, kw_only=True)
class ControllerState:
    """All that a controller remembers."""

    length: float
    """Rollout length before rounding."""
    measurements: tuple[float, ...] = ()
    """The latest divergences, all finite, the newest last."""
    has_changed: bool = False
    """Whether the length in use has ever changed in this run."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which gives every float back as it was."""
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
    """How the next iteration is to be collected."""

    num_steps: int | None
    """Rollout length; None: that of the run's config (kind = fixed)."""
    has_changed: bool
    """Whether the length has ever changed in this run: before, epochs = proportional does not apply."""
