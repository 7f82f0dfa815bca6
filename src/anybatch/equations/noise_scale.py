"""Gradient noise scale of McCandlish et al. 2018 (arXiv:1812.06162): the batch up to which more samples help.

Both parts are noisy and unbiased, their ratio is biased: average trace and signal separately, then divide.
"""

from anybatch.rules import noise_scale

__all__ = ["noise_scale", "noise_scale_from_squares"]


def noise_scale_from_squares(
    weighted_squares: float, mean_square: float, total: float, number: float
) -> tuple[float, float]:
    """tr(Σ) and |G|², unbiased, from sums over microbatches that may differ in size.

        tr(Σ) = (Σ_i b_i ‖g_i‖² - B ‖ḡ‖²) / (m-1),   |G|² = ‖ḡ‖² - tr(Σ)/B
        ḡ = Σ_i b_i g_i / B,   B = Σ_i b_i

    The trace is Σ_i b_i ‖g_i - ḡ‖² / (m-1), without a gradient being kept; for equal sizes this is
    arXiv:1812.06162, App. A.1. `weighted_squares` is Σ_i b_i ‖g_i‖² of the m ≥ 2 mean gradients g_i,
    `mean_square` ‖ḡ‖², `total` B, `number` m.
    """
    trace = (weighted_squares - total * mean_square) / (number - 1)
    return trace, mean_square - trace / total
