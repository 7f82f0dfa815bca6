"""Aggregates over seeds and environments with stratified bootstrap intervals (arXiv:2108.13264).

The scores of a stratum are along the last axis. Resamples add an axis before it, which the aggregates keep,
so that thousands of them are computed in one call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Strata = Mapping[str, Sequence[float] | np.ndarray]

Aggregated = np.floating[Any] | np.ndarray
"""A number, or an array of them for resampled strata."""

RESAMPLES = 2000
TRIMMED_SHARE = 0.25
SEED = 0
"""Seed of the bootstrap, so that equal cells give equal intervals."""


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
