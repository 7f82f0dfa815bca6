"""Advantages, targets of action values, and how well values predict returns."""

import math

from torch import Tensor

from anybatch.equations.moments import RunningMoments


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    cut: Tensor,
    *,
    discount: float,
    gae_lambda: float,
) -> Tensor:
    """Truncated generalized advantage estimate.

        δ_t = r_t + γ (1 - terminated_t) V(s_{t+1}) - V(s_t)
        Â_t = δ_t + γλ (1 - cut_t) Â_{t+1}

    Schulman et al. 2017 (arXiv:1707.06347), eq. 11-12, with terminations and truncations distinguished: a
    termination has no successor value; any episode end cuts the trace. λ=1 gives the discounted return minus
    the value; λ=0 the one-step error.

    All arguments and the result are [T, N], time first; `terminated` and `cut` are bool.
    """
    error = reward + discount * (~terminated * next_value) - value
    return _discounted_sums(error, discount * gae_lambda * (~cut[:-1]).to(error.dtype))


def q_lambda(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    cut: Tensor,
    *,
    discount: float,
    q_lambda: float,
) -> Tensor:
    """Targets of action values, mixed over all steps to the end of the trace.

        G_t = r_t + γ (1 - terminated_t) [λ (1 - cut_t) G_{t+1} + (1 - λ (1 - cut_t)) max_a Q(s'_t, a)]

    Gallici et al. 2024 (arXiv:2407.04811), §3, with terminations and truncations distinguished: a termination
    has no successor value; any episode end, and the last row, cuts the trace, and what was cut is
    bootstrapped from the observation s'_t that the step returned.
    λ=0 gives the one-step target, λ=1 the discounted return up to the cut.

    `next_value` is max_a Q(s'_t, a). All arguments and the result are [T, N], time first; `terminated` and
    `cut` are bool.
    """
    trace = q_lambda * (~cut).to(reward.dtype)
    trace[-1] = 0
    target = reward + discount * (~terminated * (1 - trace) * next_value)
    return _discounted_sums(target, discount * trace[:-1])


def _discounted_sums(terms: Tensor, decay: Tensor) -> Tensor:
    """x_t = terms_t + decay_t x_{t+1}, backwards over the rows [T, N]; `decay` is [T - 1, N].

    Doubling: with span = 1, 2, 4, … each row holds the sum over its next `span` terms, and adds those of the
    row `span` later. log₂ T operations instead of T: with few envs, the number of calls decides the cost.
    """
    sums = terms.clone()
    span = 1
    while span < len(sums):
        sums[:-span] += decay * sums[span:]
        decay = decay[:-span] * decay[span:]
        span *= 2
    return sums


def explained_variance(error: RunningMoments[float], target: RunningMoments[float]) -> float:
    """1 - Var(target - value) / Var(target): 1 is perfect, 0 as good as a constant; NaN for constant targets.

    The usual coefficient of determination R², from the moments of the errors and of the targets.
    """
    return 1.0 - error.m2 / target.m2 if target.m2 > 0 else math.nan
