"""Gradient noise scale of McCandlish et al. 2018 (arXiv:1812.06162): the batch up to which more samples help.

Its two parts are measured from the mean gradients of groups of samples. Groups must be independent of each
other: of samples that are correlated, such as those of one environment, all belong to one group. Both parts
are unbiased, their ratio is not: average them separately over measurements, then divide.
"""

from dataclasses import dataclass

from torch import Tensor


def noise_scale_from_squares(
    weighted_squares: float, mean_square: float, total: float, number: float
) -> tuple[float, float]:
    """tr(Σ) and |G|², unbiased, from sums over groups that may differ in size.

        tr(Σ) = (Σ_i b_i ‖g_i‖² - B ‖ḡ‖²) / (m-1),   |G|² = ‖ḡ‖² - tr(Σ)/B
        ḡ = Σ_i b_i g_i / B,   B = Σ_i b_i

    The trace is Σ_i b_i ‖g_i - ḡ‖² / (m-1), without a gradient being kept; for equal sizes this is
    arXiv:1812.06162, App. A.1. `weighted_squares` is Σ_i b_i ‖g_i‖² of the m ≥ 2 mean gradients g_i,
    `mean_square` ‖ḡ‖², `total` B, `number` m.
    """
    trace = (weighted_squares - total * mean_square) / (number - 1)
    return trace, mean_square - trace / total


@dataclass
class GroupSums:
    """Sums over the mean gradients of groups of samples, one group after the other."""

    gradient: Tensor | None = None
    """Σ_i b_i g_i"""
    squares: float = 0.0
    """Σ_i b_i ‖g_i‖²"""
    samples: float = 0.0
    groups: int = 0

    def add(self, gradient: Tensor, samples: float) -> None:
        """Add the mean gradient of a group."""
        weighted = gradient * samples
        self.gradient = weighted if self.gradient is None else self.gradient + weighted
        self.squares += samples * squared_norm(gradient)
        self.samples += samples
        self.groups += 1

    def measurement(self) -> tuple[float, float]:
        """tr(Σ) and |G|² from at least two groups."""
        assert self.gradient is not None
        mean_square = squared_norm(self.gradient) / self.samples**2
        return noise_scale_from_squares(self.squares, mean_square, self.samples, self.groups)


def squared_norm(gradient: Tensor) -> float:
    return float(gradient.double().square().sum())
