"""Tests by ranks: van Elteren's over strata, and Spearman's correlation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anybatch.lab.statistics.scipy_stats import stats

Strata = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class VanElteren:
    """A Mann-Whitney test over strata, with the optimal weights for equal shifts."""

    z: float
    """Positive if the first side has the larger scores."""
    p: float
    """Two-sided, by the normal approximation."""


def van_elteren(this: Strata, that: Strata) -> VanElteren:
    """Test of P(this > that) = P(that > this) in every stratum (arXiv:2110.00641, App. E).

        Z = Σ_e w_e (U_e - n m / 2) / √(Σ_e w_e² Var U_e),   w_e = 1 / (n + m + 1)

    Tied scores have mean ranks, and Var U_e is corrected for them. Z is 0 if all scores are equal. scipy has
    the test for one stratum only (`mannwhitneyu`).
    """
    assert this.keys() == that.keys() and this
    shift = variance = 0.0
    for name in this:
        n, m = len(this[name]), len(that[name])
        ranks = stats().rankdata([*this[name], *that[name]])
        weight = 1 / (n + m + 1)
        shift += weight * (float(ranks[:n].sum()) - n * (n + m + 1) / 2)
        # The variance of a rank sum: n m / N times the sample variance of the ranks.
        variance += weight**2 * n * m / (n + m) * float(np.var(ranks, ddof=1))
    z = shift / math.sqrt(variance) if variance > 0 else 0.0
    return VanElteren(z, math.erfc(abs(z) / math.sqrt(2)))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation; None if one side does not vary."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(stats().spearmanr(first, second).statistic)
