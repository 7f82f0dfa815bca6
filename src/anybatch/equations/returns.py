"""Advantages and how well values predict returns."""

import torch
from torch import Tensor


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

    Schulman et al. 2017 (arXiv:1707.06347), eq. 11-12, with terminations and truncations told apart:
    a termination has no successor value; any episode end cuts the trace.
    λ=1 gives the discounted return minus the value; λ=0 the one-step error.

    All arguments and the result are [T, N], time first; `terminated` and `cut` are bool.
    """
    advantage = reward + discount * (~terminated * next_value) - value
    # Doubling: with span = 1, 2, 4, … each row holds the sum over its next `span` errors, and adds those of
    # the row `span` later. log₂ T operations instead of T; at few envs the calls are what costs.
    trace_decay = discount * gae_lambda * (~cut[:-1]).to(advantage.dtype)
    span = 1
    while span < len(advantage):
        advantage[:-span] += trace_decay * advantage[span:]
        trace_decay = trace_decay[:-span] * trace_decay[span:]
        span *= 2
    return advantage


def explained_variance(value: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - value) / Var(target): 1 is perfect, 0 as good as a constant; NaN for constant targets.

    The usual coefficient of determination R². Any shape; the result is a scalar.
    """
    target_variance = torch.var(target, correction=0)
    explained = 1.0 - torch.var(target - value, correction=0) / target_variance
    return torch.where(target_variance > 0, explained, torch.nan)
