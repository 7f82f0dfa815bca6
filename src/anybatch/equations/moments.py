"""Means and variances: of a batch, over iterations, over everything seen so far."""

import math
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

PRIOR_COUNT = 1e-4
"""Weight of the prior of mean 0 and variance 1 that running statistics start from, as in Gymnasium."""
EPSILON = 1e-8
"""Added to standard deviations or variances, so that a division by them stays finite."""


class Moments(NamedTuple):
    """Decaying sums behind a mean and a variance. `Moments(0.0, 0.0, 0.0)` has seen nothing."""

    weight: float
    """Σ decay^k · count."""
    weighted_sum: float
    """Σ decay^k · count · mean."""
    weighted_sum_squares: float
    """Σ decay^k · count · mean of squares."""


class Arithmetic(Protocol):
    """A number, or an array of numbers."""

    def __add__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...


Value = TypeVar("Value", bound=Arithmetic)


class RunningMoments(NamedTuple, Generic[Value]):
    """Number of samples, mean and Σ (x - mean)², of a batch or of everything so far."""

    samples: float
    mean: Value
    m2: Value


def ewma_moments(
    state: Moments, count: float, mean: float, mean_of_squares: float, *, decay: float
) -> Moments:
    """Moments with one more iteration batch in them: all sums decay, then the batch adds its own.

    The advantage moments of Hilton et al. 2021 (arXiv:2110.00641), §4. decay 0 forgets all but this batch.
    """
    return Moments(
        decay * state.weight + count,
        decay * state.weighted_sum + count * mean,
        decay * state.weighted_sum_squares + count * mean_of_squares,
    )


def moments_mean_std(state: Moments) -> tuple[float, float]:
    """Mean and population standard deviation, √(E[x²] - E[x]²); the weights need no bias correction.

    As in the code of Hilton et al. 2021 (arXiv:2110.00641).
    """
    mean = state.weighted_sum / state.weight
    variance = state.weighted_sum_squares / state.weight - mean * mean
    return mean, math.sqrt(max(variance, 0.0))


def merge_moments(moments: RunningMoments[Value], batch: RunningMoments[Value]) -> RunningMoments[Value]:
    """Moments of the union of two sets of samples.

        mean = mean_a + Δ n_b/n,   M2 = M2_a + Δ² n_a n_b/n + M2_b,   Δ = mean_b - mean_a,  n = n_a + n_b

    Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
    Means and M2 are numbers, or arrays of any one shape. Merging nothing with nothing gives nothing.
    """
    total = moments.samples + batch.samples
    if total == 0:
        return moments
    delta = batch.mean - moments.mean
    return RunningMoments(
        total,
        moments.mean + delta * (batch.samples / total),
        moments.m2 + delta * delta * (moments.samples * batch.samples / total) + batch.m2,
    )


def effective_samples(log_weights: Tensor) -> Tensor:
    """Effective share of samples under importance weights w, (Σw)² / (n Σw²): 1 if equal, 1/n at worst.

    Kong 1992, "A note on importance sampling using standardized weights". [B] → scalar.
    Weights may be of any size: only their ratios matter.
    """
    return effective_share_of_parts(weight_sums(log_weights)[None])


def weight_sums(log_weights: Tensor) -> Tensor:
    """l, Σw/l, Σ(w/l)² and n of weights w whose largest is l, in float64; l as a logarithm. [B] → [4]."""
    weights = log_weights.double()
    if len(weights) == 0:
        return weights.new_tensor([-math.inf, 0.0, 0.0, 0.0])
    largest = weights.max()
    weights = (weights - largest).exp()
    count = weights.new_tensor(float(len(weights)))
    return torch.stack([largest, weights.sum(), weights.square().sum(), count])


def effective_share_of_parts(sums: Tensor) -> Tensor:
    """`effective_samples` of a set of samples that is in parts, from their `weight_sums`. [P, 4] → scalar."""
    largest, total, squares, count = sums.unbind(1)
    share = (largest - largest.max()).exp()
    return (share * total).sum().square() / ((share.square() * squares).sum() * count.sum())


def moment_sums(values: Tensor) -> Tensor:
    """n, mean and Σ(x - mean)² of samples, in float64; zeros for none. [B] → [3]."""
    values = values.double()
    if len(values) == 0:
        return values.new_zeros(3)
    mean = values.mean()
    return torch.stack([values.new_tensor(float(len(values))), mean, (values - mean).square().sum()])


def merged_moments(parts: Tensor) -> RunningMoments[float]:
    """The moments of a set of samples that is in parts, from their `moment_sums`. [P, 3]."""
    merged = RunningMoments(0.0, 0.0, 0.0)
    for part in parts:
        merged = merge_moments(merged, RunningMoments(float(part[0]), float(part[1]), float(part[2])))
    return merged
