"""Gradient noise scale of McCandlish et al. 2018 (arXiv:1812.06162): up to which batch more samples pay.

Both parts are noisy and unbiased, their ratio is not: average the trace and the signal apart, divide last.
"""

import math

from torch import Tensor


def noise_scale_from_microbatches(gradients: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """tr(Σ) and |G|², unbiased, from the mean gradients of microbatches that may differ in size.

        tr(Σ) = Σ_i b_i ‖g_i - ḡ‖² / (m-1),   |G|² = ‖ḡ‖² - tr(Σ)/B,   ḡ = Σ_i b_i g_i / B,  B = Σ_i b_i

    For equal sizes this is arXiv:1812.06162, App. A.1. `gradients` is [m, P] with m ≥ 2, `counts` [m].
    """
    weights = counts.to(gradients.dtype)
    total = weights.sum()
    mean = weights @ gradients / total
    trace = weights @ (gradients - mean).square().sum(1) / (len(gradients) - 1)
    return trace, mean.square().sum() - trace / total


def noise_scale_from_squares(
    weighted_squares: float, mean_square: float, total: float, number: float
) -> tuple[float, float]:
    """`noise_scale_from_microbatches` from sums alone, so that no gradient has to be kept.

        tr(Σ) = (Σ_i b_i ‖g_i‖² - B ‖ḡ‖²) / (m-1),   |G|² = ‖ḡ‖² - tr(Σ)/B

    `weighted_squares` is Σ_i b_i ‖g_i‖², `mean_square` ‖ḡ‖², `total` B, `number` m (arXiv:1812.06162,
    App. A.1).
    """
    trace = (weighted_squares - total * mean_square) / (number - 1)
    return trace, mean_square - trace / total


def noise_scale_from_pair(
    small_norm_squared: float, big_norm_squared: float, small: float, big: float
) -> tuple[float, float]:
    """tr(Σ) and |G|², unbiased, from squared gradient norms at two batches (arXiv:1812.06162, App. A.1)."""
    signal = (big * big_norm_squared - small * small_norm_squared) / (big - small)
    trace = (small_norm_squared - big_norm_squared) / (1.0 / small - 1.0 / big)
    return trace, signal


def noise_scale(trace: float, signal: float) -> float:
    """tr(Σ) / |G|², in samples (arXiv:1812.06162, §2.2); infinite where the noise hides the signal."""
    return trace / signal if signal > 0 else math.inf
