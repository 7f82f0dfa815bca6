"""Differences of means over strata: intervals, equivalence and its power, and Holm's correction.

In one stratum they are Welch's t test and two of them, as scipy has them; it has neither over strata.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anybatch.lab.statistics.scipy_stats import stats

Strata = Mapping[str, Sequence[float]]
ROUNDING = 1e-12
"""Differences below this are due to rounding, relative to the largest number, or to 1."""
MANY_DEGREES = 1e6
"""Degrees of freedom from which on a standard error counts as known."""
POWER_POINTS = 2000
"""Points at which the integral over estimated standard errors is evaluated."""


@dataclass(frozen=True)
class Difference:
    """Mean over strata of the difference between two means, each over the seeds of a stratum."""

    mean: float
    standard_error: float
    degrees: float
    """Degrees of freedom, by Welch and Satterthwaite: variances are not assumed to be equal."""

    def interval(self, level: float) -> tuple[float, float]:
        """The confidence interval of that level, such as 0.9."""
        if self.standard_error == 0:
            return self.mean, self.mean
        reach = float(stats().t.ppf(0.5 + level / 2, self.degrees)) * self.standard_error
        return self.mean - reach, self.mean + reach

    def p_above(self, bound: float) -> float:
        """p of the hypothesis that the true difference is at most `bound`: small if it is above."""
        if self.standard_error == 0:
            return float(self.mean <= bound)
        return float(stats().t.cdf((bound - self.mean) / self.standard_error, self.degrees))

    def p_below(self, bound: float) -> float:
        """p of the hypothesis that the true difference is at least `bound`: small if it is below."""
        if self.standard_error == 0:
            return float(self.mean >= bound)
        return float(stats().t.cdf((self.mean - bound) / self.standard_error, self.degrees))


def difference(this: Strata, that: Strata) -> Difference:
    """this - that, over the same strata, each with two seeds or more on both sides.

    d = 1/E Σ_e (mean this_e - mean that_e),   se² = 1/E² Σ_e (s²_this/n_this + s²_that/n_that)

    """
    assert this.keys() == that.keys() and this
    mean = float(np.mean([np.mean(this[name]) - np.mean(that[name]) for name in this]))
    return _with_error(mean, [side[name] for name in this for side in (this, that)], len(this))


def mean_interval(scores: Strata, level: float) -> tuple[float, float] | None:
    """The interval of the mean over strata of their means; None if a stratum has a single run."""
    if any(len(values) < 2 for values in scores.values()):
        return None
    mean = float(np.mean([np.mean(values) for values in scores.values()]))
    return _with_error(mean, list(scores.values()), len(scores)).interval(level)


def _with_error(mean: float, samples: Sequence[Sequence[float]], strata: int) -> Difference:
    """A mean over strata, with the error that the spread within each of the samples gives it."""
    arrays = [np.asarray(values, dtype=float) for values in samples]
    variances = [float(np.var(values, ddof=1)) / len(values) for values in arrays]
    rounding = ROUNDING * max(1.0, *(float(np.abs(values).max()) for values in arrays))
    if math.sqrt(sum(variances)) <= rounding:  # all seeds are alike
        return Difference(0.0 if abs(mean) <= rounding else mean, 0.0, math.inf)
    total = sum(variances)
    spread = sum(v * v / (len(values) - 1) for v, values in zip(variances, arrays, strict=True))
    degrees = total * total / spread if spread > 0 else math.inf
    return Difference(mean, math.sqrt(total) / strata, degrees)


def equivalence_p(found: Difference, margin: float) -> float:
    """p of two one-sided tests: small if the true difference is within ± margin.

    Schuirmann 1987 (doi:10.1007/BF01068419). p ≤ α exactly if the interval of level 1 - 2α is within the
    margin.
    """
    return max(found.p_above(-margin), found.p_below(margin))


def equivalence_power(standard_error: float, degrees: float, margin: float, alpha: float) -> float:
    """Probability that equivalence is shown if the true difference is 0 and has this standard error.

        ∫ max(0, 2 Φ(margin / se - t_{1-α} u) - 1) p(u) du

    A repetition does not know the true standard error: it estimates it as u times as large, where
    u² ~ χ²_ν / ν for ν degrees of freedom. With few seeds that matters.
    """
    if standard_error == 0:
        return 1.0
    if margin <= 0:
        return 0.0
    reach, quantile = margin / standard_error, float(stats().t.ppf(1 - alpha, degrees))
    if degrees > MANY_DEGREES:
        return max(0.0, math.erf((reach - quantile) / math.sqrt(2)))
    top = 1 + 10 / math.sqrt(degrees)  # what lies beyond is below 1e-20
    if quantile > 0:
        top = min(top, reach / quantile)  # from there on, no estimate can be within the margin
    error = (np.arange(POWER_POINTS) + 0.5) * (top / POWER_POINTS)
    log_density = (degrees - 1) * np.log(error) - degrees * error**2 / 2
    log_density += math.log(2) + degrees / 2 * math.log(degrees / 2) - math.lgamma(degrees / 2)
    shown = [math.erf(value) for value in (reach - quantile * error) / math.sqrt(2)]
    return float(np.dot(shown, np.exp(log_density)) * top / POWER_POINTS)


def decidable_margin(standard_error: float, degrees: float, alpha: float, power: float) -> float:
    """The margin within which equal arms are shown to be with probability `power`, by bisection."""
    low, high = 0.0, standard_error
    while equivalence_power(standard_error, degrees, high, alpha) < power:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        too_small = equivalence_power(standard_error, degrees, middle, alpha) < power
        low, high = (middle, high) if too_small else (low, middle)
    return (low + high) / 2


def holm(p: Sequence[float]) -> list[float]:
    """Each p, adjusted so that the chance of any false rejection among all of them stays at the level.

    Holm 1979 (Scandinavian Journal of Statistics 6): the smallest of m is multiplied by m, the next one by
    m - 1, and so on; none may be smaller than the one before it.
    """
    adjusted, largest = [1.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        largest = max(largest, (len(p) - rank) * p[place])
        adjusted[place] = min(1.0, largest)
    return adjusted
