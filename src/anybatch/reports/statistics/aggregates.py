"""Aggregates over seeds and environments with stratified bootstrap intervals (arXiv:2108.13264)."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Strata = Mapping[str, Sequence[float]]

RESAMPLES = 2000
TRIMMED_SHARE = 0.25
SEED = 0
"""Seed of the bootstrap, so that equal cells give equal intervals."""


def interquartile_mean(scores: Strata) -> float:
    """The mean of the middle half of all runs of all strata."""
    values = np.sort(np.concatenate([np.asarray(one, dtype=float) for one in scores.values()]))
    cut = int(TRIMMED_SHARE * len(values))
    return float(values[cut : len(values) - cut].mean())


def mean(scores: Strata) -> float:
    """The mean over strata of their means."""
    return float(np.mean([np.mean(one) for one in scores.values()]))


def median(scores: Strata) -> float:
    """The median over strata of their means."""
    return float(np.median([np.mean(one) for one in scores.values()]))


def performance_profile(scores: Strata, thresholds: Sequence[float]) -> list[float]:
    """For each threshold, the share of runs above it, over all strata."""
    values = np.concatenate([np.asarray(one, dtype=float) for one in scores.values()])
    return [float(np.mean(values > threshold)) for threshold in thresholds]


def probability_of_improvement(this: Strata, that: Strata) -> float:
    """How often a run of `this` beats one of `that`, a tie counting half; the mean over strata."""
    assert this.keys() == that.keys() and this
    return float(np.mean([_beats(np.asarray(this[name]), np.asarray(that[name])) for name in this]))


def _beats(this: np.ndarray, that: np.ndarray) -> float:
    pairs = this[:, None] - that[None, :]
    return float(np.mean(pairs > 0) + 0.5 * np.mean(pairs == 0))


def stratified_interval(
    statistic: Callable[..., float], *sides: Strata, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """A percentile interval: runs are drawn with replacement, separately within each stratum of each side.

    None if a stratum has a single run, which cannot be resampled.
    """
    if any(len(one) < 2 for side in sides for one in side.values()):
        return None
    rng = np.random.default_rng(SEED)
    drawn = [statistic(*(_resampled(side, rng) for side in sides)) for _ in range(resamples)]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled(side: Strata, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: np.asarray(one)[rng.integers(0, len(one), len(one))] for name, one in side.items()}
