"""The gradient noise scale written out, for tests to compare with (arXiv:1812.06162, App. A.1)."""

from torch import Tensor


def from_microbatches(gradients: Tensor, counts: Tensor) -> tuple[float, float]:
    """tr(Σ) and |G|², unbiased, from the mean gradients of microbatches that may differ in size.

        tr(Σ) = Σ_i b_i ‖g_i - ḡ‖² / (m-1),   |G|² = ‖ḡ‖² - tr(Σ)/B,   ḡ = Σ_i b_i g_i / B,  B = Σ_i b_i

    `gradients` is [m, P] with m ≥ 2, `counts` [m].
    """
    weights = counts.to(gradients.dtype)
    total = weights.sum()
    mean = weights @ gradients / total
    trace = weights @ (gradients - mean).square().sum(1) / (len(gradients) - 1)
    return trace.item(), (mean.square().sum() - trace / total).item()


def from_pair(
    small_norm_squared: float, big_norm_squared: float, small: float, big: float
) -> tuple[float, float]:
    """tr(Σ) and |G|², unbiased, from squared gradient norms at two batches."""
    signal = (big * big_norm_squared - small * small_norm_squared) / (big - small)
    trace = (small_norm_squared - big_norm_squared) / (1.0 / small - 1.0 / big)
    return trace, signal
