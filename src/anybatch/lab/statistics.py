"""Statistics of studies, with numpy and scipy. Scores are by stratum: {env: [a number for each seed]}.

Aggregates have stratified bootstrap intervals (arXiv:2108.13264). Differences of means are tested by Welch's
t test over strata, equality by two of them; scipy has both for one stratum only.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from anybatch.errors import UserError

Strata = Mapping[str, Sequence[float] | np.ndarray]
"""The scores of a stratum are along the last axis. Resamples add an axis before it, which aggregates keep, so
that thousands of them are computed in one call."""
Curves = Mapping[str, np.ndarray]
"""By stratum, [runs, points of the curve]."""
Aggregated = np.floating[Any] | np.ndarray
"""A number, or an array of them for resampled strata."""

RESAMPLES = 2000
PERMUTATIONS = 9_999
SEED = 0
"""Seed of resamples and permutations, so that equal cells give equal numbers."""
TRIMMED_SHARE = 0.25
SMOOTHED_SHARE = 0.1
"""Part of a run that a point of a smoothed curve is the mean of, as the final return is of the last part."""
ROUNDING = 1e-12
"""Differences below this are due to rounding, relative to the largest number, or to 1."""
MANY_DEGREES = 1e6
"""Degrees of freedom from which on a standard error counts as known."""
POWER_POINTS = 2000
"""Points at which the integral over estimated standard errors is evaluated."""


@cache
def stats() -> Any:
    """scipy.stats, imported when something is computed: training needs none of it."""
    try:
        from scipy import stats
    except ImportError:
        raise UserError(
            "the statistics of studies need the package scipy: install it with pip install 'anybatch[lab]'"
        ) from None
    return stats


def interquartile_mean(scores: Strata) -> Aggregated:
    """The mean of the middle half of all runs of all strata."""
    values = np.sort(_all_runs(scores), axis=-1)
    cut = int(TRIMMED_SHARE * values.shape[-1])
    return values[..., cut : values.shape[-1] - cut].mean(axis=-1)


def mean(scores: Strata) -> Aggregated:
    """The mean over strata of their means."""
    return np.mean(_means(scores), axis=0)


def median(scores: Strata) -> Aggregated:
    """The median over strata of their means."""
    return np.median(_means(scores), axis=0)


def performance_profile(scores: Strata, thresholds: Sequence[float]) -> list[float]:
    """For each threshold, the share of runs above it, over all strata."""
    values = _all_runs(scores)
    return [float(np.mean(values > threshold)) for threshold in thresholds]


def probability_of_improvement(this: Strata, that: Strata) -> Aggregated:
    """How often a run of `this` beats one of `that`, a tie counting half; the mean over strata."""
    assert this.keys() == that.keys() and this
    return np.mean([_beats(np.asarray(this[name]), np.asarray(that[name])) for name in this], axis=0)


def _beats(this: np.ndarray, that: np.ndarray) -> Aggregated:
    pairs = this[..., :, None] - that[..., None, :]
    return np.mean((pairs > 0) + 0.5 * (pairs == 0), axis=(-2, -1))


def _means(scores: Strata) -> list[Aggregated]:
    return [np.mean(one, axis=-1) for one in scores.values()]


def _all_runs(scores: Strata) -> np.ndarray:
    return np.concatenate([np.asarray(one, dtype=float) for one in scores.values()], axis=-1)


def stratified_interval(
    statistic: Callable[..., Aggregated], *sides: Strata, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """A percentile interval: runs are drawn with replacement, separately within each stratum of each side.

    None if a stratum has a single run, which cannot be resampled.
    """
    if any(len(one) < 2 for side in sides for one in side.values()):
        return None
    rng = np.random.default_rng(SEED)
    drawn = statistic(*(_resampled(side, resamples, rng) for side in sides))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled(side: Strata, resamples: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(one)[rng.integers(0, len(one), (resamples, len(one)))] for name, one in side.items()
    }


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
    found = float(np.mean([np.mean(this[name]) - np.mean(that[name]) for name in this]))
    return _with_error(found, [side[name] for name in this for side in (this, that)], len(this))


def mean_interval(scores: Strata, level: float) -> tuple[float, float] | None:
    """The interval of the mean over strata of their means; None if a stratum has a single run."""
    if any(len(values) < 2 for values in scores.values()):
        return None
    return _with_error(float(mean(scores)), list(scores.values()), len(scores)).interval(level)


def _with_error(mean: float, samples: Sequence[Sequence[float] | np.ndarray], strata: int) -> Difference:
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


@dataclass(frozen=True)
class CurveDistance:
    """How far apart the mean curves of two groups of runs are."""

    distance: float
    expected: float
    """The mean distance if the runs are assigned to the groups at random."""
    p: float
    """Share of such assignments with at least this distance: small if the curves differ."""


def smoothed(curves: np.ndarray) -> np.ndarray:
    """Running means over a tenth of the run, [runs, points]; only whole windows have a point."""
    width = max(1, round(SMOOTHED_SHARE * curves.shape[-1]))
    sums = np.cumsum(np.pad(curves, ((0, 0), (1, 0))), axis=-1)
    return (sums[:, width:] - sums[:, :-width]) / width


def curve_distance(this: Curves, that: Curves) -> CurveDistance:
    """Test of the hypothesis that the runs of both sides come from the same distribution.

        d = 1/E Σ_e 1/T Σ_t |mean this_e(t) - mean that_e(t)|

    The distance between smoothed mean curves is compared with those of random assignments of the runs to the
    sides, within each stratum. All assignments are equally likely if the hypothesis is true, so that p is
    exact, whatever the curves look like. `scipy.stats.permutation_test` does this for one stratum.
    """
    assert this.keys() == that.keys() and this
    rng = np.random.default_rng(SEED)
    distances = np.zeros(1 + PERMUTATIONS)  # the first is that of the actual assignment
    for name in this:
        runs, first = smoothed(np.concatenate([this[name], that[name]])), len(this[name])
        is_this = np.zeros((1 + PERMUTATIONS, len(runs)), dtype=bool)
        is_this[:, :first] = True
        is_this[1:] = rng.permuted(is_this[1:], axis=1)
        weights = np.where(is_this, 1 / first, -1 / (len(runs) - first))
        distances += np.abs(weights @ runs).mean(axis=1) / len(this)
    actual, others = distances[0], distances[1:]
    # Assignments that are equal to the actual one give the same distance only up to rounding.
    as_far = int(np.count_nonzero(others >= actual - 1e-12 * max(1.0, abs(actual))))
    return CurveDistance(float(actual), math.fsum(others) / PERMUTATIONS, (1 + as_far) / (1 + PERMUTATIONS))
