"""Running averages of the gradient noise scale's two parts."""

from dataclasses import dataclass

from anybatch.equations import noise_scale

NOISE_DECAY = 0.95
"""Decay per measurement. The ratio of the two parts is taken last: it is biased."""


@dataclass
class NoiseAverage:
    """Running means of tr(Σ) and |G|², kept separately."""

    trace: float = 0.0
    signal: float = 0.0
    weight: float = 0.0

    def add(self, trace: float, signal: float) -> None:
        self.trace = NOISE_DECAY * self.trace + (1 - NOISE_DECAY) * trace
        self.signal = NOISE_DECAY * self.signal + (1 - NOISE_DECAY) * signal
        self.weight = NOISE_DECAY * self.weight + (1 - NOISE_DECAY)

    @property
    def scale(self) -> float | None:
        """In samples; None before the first measurement, infinite if noise hides the signal."""
        return noise_scale.noise_scale(self.trace, self.signal) if self.weight else None
