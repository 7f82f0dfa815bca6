"""Differences of means over strata: intervals, equivalence by two one-sided tests, and its power."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anybatch.reports.statistics.student import t_probability, t_quantile

Strata = Mapping[str, Sequence[float]]
ROUNDING = 1e-12
"""Differences below this are due to rounding, relative to the largest number, or to 1."""


@dataclass(frozen=True)
class Difference:
    """Mean over strata of the difference between two means, each over the seeds of a stratum."""

    mean: float
    standard_error: float
    degrees: float
    """Degrees of freedom, by Welch and Satterthwaite: variances are not assumed to be equal."""

    def interval(self, level: float) -> tuple[float, float]:
        """The confidence interval of that level, such as 0.9."""
        reach = (
            t_quantile(0.5 + level / 2, self.degrees) * self.standard_error if self.standard_error else 0.0
        )
        return self.mean - reach, self.mean + reach

    def p_above(self, bound: float) -> float:
        """p of the hypothesis that the true difference is at most `bound`: small if it is above."""
        if self.standard_error == 0:
            return float(self.mean <= bound)
        return t_probability((bound - self.mean) / self.standard_error, self.degrees)

    def p_below(self, bound: float) -> float:
        """p of the hypothesis that the true difference is at least `bound`: small if it is below."""
        if self.standard_error == 0:
            return float(self.mean >= bound)
        return t_probability((self.mean - bound) / self.standard_error, self.degrees)


def difference(this: Strata, that: Strata) -> Difference:
    """this - that, over the same strata, each with two seeds or more on both sides.

    d = 1/E Σ_e (mean this_e - mean that_e),   se² = 1/E² Σ_e (s²_this/n_this + s²_that/n_that)

    """
    assert this.keys() == that.keys() and this
    sides = [np.asarray(side[name], dtype=float) for name in this for side in (this, that)]
    variances = [float(np.var(values, ddof=1)) / len(values) for values in sides]
    mean = float(np.mean([np.mean(this[name]) - np.mean(that[name]) for name in this]))
    rounding = ROUNDING * max(1.0, *(float(np.abs(values).max()) for values in sides))
    if math.sqrt(sum(variances)) <= rounding:  # all seeds are alike
        return Difference(0.0 if abs(mean) <= rounding else mean, 0.0, math.inf)
    total = sum(variances)
    spread = sum(v * v / (len(values) - 1) for v, values in zip(variances, sides, strict=True))
    degrees = total * total / spread if spread > 0 else math.inf
    return Difference(mean, math.sqrt(total) / len(this), degrees)


def equivalence_p(found: Difference, margin: float) -> float:
    """p of two one-sided tests: small if the true difference is within ± margin.

    Schuirmann 1987 (doi:10.1007/BF01068419). p ≤ α exactly if the interval of level 1 - 2α is within the
    margin.
    """
    return max(found.p_above(-margin), found.p_below(margin))


def equivalence_power(standard_error: float, degrees: float, margin: float, alpha: float) -> float:
    """Probability that equivalence is shown if the true difference is 0.

        2 P(T ≤ margin / se - t_{1-α}) - 1, at least 0

    The usual approximation (Chow, Shao, Wang 2008, Sample Size Calculations in Clinical Research, 3.2), with
    t in place of the normal distribution.
    """
    if standard_error == 0:
        return 1.0
    reach = margin / standard_error - t_quantile(1 - alpha, degrees)
    return max(0.0, 2 * t_probability(reach, degrees) - 1)
