"""The defaults of each kind of controller that changes the rollout length based on measurements.

All are from Park 2026 (arXiv:2605.21557) and its released code. Lengths are relative to the baseline's: a
number of steps that suits 128 Atari games would not suit one robot, and vice versa.
"""

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["fixed", "divergence", "kl", "noise_scale", "schedule"]


@dataclass(frozen=True, kw_only=True)
class KindDefaults:
    """The numbers of a controller where its config has None."""

    shortest: float
    """Shortest rollout ÷ the tuned rollout length."""
    longest: float
    """Longest rollout ÷ the tuned rollout length."""
    every: int
    """Iterations between two measurements."""
    smoothing: float
    """Share of the way to its target that the length moves at each adaptation."""
    low: float | None = None
    """Lower threshold, where the kind measures a divergence."""
    high: float | None = None
    """Upper threshold, where the kind measures a divergence."""

    def numbers(self, num_steps: int) -> dict[str, Any]:
        """The settings by name, around rollouts of `num_steps`."""
        return {
            "min_steps": max(1, round(self.shortest * num_steps)),
            "max_steps": round(self.longest * num_steps),
            "every": self.every,
            "smoothing": self.smoothing,
            "low": self.low,
            "high": self.high,
        }


PQN = KindDefaults(shortest=0.5, longest=2.0, every=50, smoothing=0.1, low=0.05, high=0.95)
"""The PQN code: 16 to 64 steps around a baseline of 32."""
PPO = KindDefaults(shortest=0.5, longest=4.0, every=10, smoothing=0.1, low=0.01, high=0.1)
"""The PPO code: 1,024 to 8,192 steps around a baseline of 2,048."""
NOISE = KindDefaults(shortest=0.5, longest=2.0, every=50, smoothing=1.0)
"""The PQN code with the noise scale: 16 to 64 steps around 32, without smoothing."""
DEFAULTS: dict[Kind, KindDefaults] = {"divergence": PQN, "kl": PPO, "noise_scale": NOISE}
"""The defaults by kind. Fixed and scheduled lengths have none."""
