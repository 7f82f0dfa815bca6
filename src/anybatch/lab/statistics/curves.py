"""Whether two groups of runs have the same learning curve: a permutation test of their distance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Curves = Mapping[str, np.ndarray]
"""By stratum, [runs, points of the curve]."""

SMOOTHED_SHARE = 0.1
"""Part of a run that a point of a smoothed curve is the mean of, as the final return is of the last part."""
PERMUTATIONS = 9_999
SEED = 0
"""Seed of the permutations, so that equal cells give equal numbers."""


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
