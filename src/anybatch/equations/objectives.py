"""What a policy update maximizes, sample by sample, and what a value update minimizes.

Ratios stay in log space, and only the current policy's log-probability carries a gradient: at minibatches of
a few hundred samples every operation that autograd records costs more than its arithmetic.
"""

import math

import torch
from torch import Tensor

Clip = float | tuple[float, float] | None
"""ε of a range [1-ε, 1+ε], or a pair for [1-low, 1+high]; None, like infinity, for no clipping."""


def decoupled_objective(
    logp: Tensor,
    proximal_logp: Tensor,
    behavior_logp: Tensor,
    advantage: Tensor,
    *,
    clip: Clip,
    max_importance: float = 100.0,
    kl: Tensor | None = None,
    kl_penalty: float = 0.0,
) -> Tensor:
    """Surrogate with the proximal policy decoupled from the behavior policy. To be maximized.

        min( π/π_behavior · Â,  π_proximal/π_behavior · clip(π/π_proximal, 1-ε, 1+ε) · Â )  -  β · KL

    Hilton et al. 2021 (arXiv:2110.00641), §2: with β = 0 the decoupled clipped objective, with ε = ∞ the
    decoupled KL-penalized one. Where the proximal policy is the behavior policy these are PPO's
    (arXiv:1707.06347, eq. 7 and 8); with ε = ∞ and β = 0, the importance-weighted policy gradient (eq. 6).
    `clip` is ε; a pair (low, high) clips to [1-low, 1+high], and None means ε = ∞. `kl` is the divergence
    from the proximal policy of each sample, exact or sampled.

    All tensors are [B]; the result is [B]. Gradients flow through `logp` and `kl` only.
    """
    behavior_logp = capped_behavior_logp(logp, behavior_logp, max_importance)
    is_free = clip is None or clip == math.inf
    held_logp = logp if is_free else clipped_logp(logp, proximal_logp, advantage, clip)
    surrogate = (held_logp - behavior_logp).exp() * advantage
    return surrogate if kl is None else torch.sub(surrogate, kl, alpha=kl_penalty)


def capped_behavior_logp(logp: Tensor, behavior_logp: Tensor, max_importance: float) -> Tensor:
    """log π_behavior, raised where needed so that π / π_behavior ≤ `max_importance`.

        max( log π_behavior,  stop_gradient(log π) - log max_importance )

    The cap in the code of Hilton et al. 2021 (arXiv:2110.00641). A capped sample keeps a gradient, since
    log π still has one in the ratio: it is scaled down, not dropped. [B] → [B].
    """
    if max_importance == math.inf:
        return behavior_logp
    return torch.maximum(behavior_logp, logp.detach() - math.log(max_importance))


def clipped_logp(logp: Tensor, proximal_logp: Tensor, advantage: Tensor, clip: Clip) -> Tensor:
    """log π, held to the range around log π_proximal in which the minimum of the objective is its first term.

    Only one bound affects the minimum: the upper one where Â ≥ 0, the lower one where Â < 0. [B] → [B].
    """
    lower_log, upper_log = log_clip_range(clip)
    is_bad = advantage < 0
    lower = torch.where(is_bad, proximal_logp + lower_log, -math.inf)
    upper = torch.where(is_bad, math.inf, proximal_logp + upper_log)
    return torch.clamp(logp, lower, upper)


def log_clip_range(clip: Clip) -> tuple[float, float]:
    """log(1-ε) and log(1+ε); the lower end is -∞ from ε = 1 on."""
    if clip is None:
        return -math.inf, math.inf
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    return (math.log1p(-low) if low < 1 else -math.inf), math.log1p(high)


def token_objective(
    logp: Tensor,
    proximal_logp: Tensor,
    behavior_logp: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip: Clip,
    max_importance: float = 100.0,
) -> Tensor:
    """`decoupled_objective` of every token of a batch of sequences. To be maximized.

    `mask` is True for the tokens that the policy chose, and False for prompts and padding, where the result
    is 0 and other arguments may hold anything. For the mean over tokens: `objective.sum() / mask.sum()`.
    For ratios of whole sequences, give `sequence_logp` of each policy to `decoupled_objective` instead.

    Log-probabilities and mask are [B, T], the advantage is [B, T], or [B] if it is that of the whole
    sequence; the result is [B, T].
    """
    if advantage.ndim < logp.ndim:
        advantage = advantage.unsqueeze(-1).expand_as(logp)
    masked = (torch.where(mask, column, 0.0) for column in (logp, proximal_logp, behavior_logp, advantage))
    return decoupled_objective(*masked, clip=clip, max_importance=max_importance)


def sequence_logp(logp: Tensor, mask: Tensor, *, per_token: bool = False) -> Tensor:
    """log π of each sequence: the sum over the tokens that the policy chose. [B, T] → [B].

    `per_token` divides by their number: ratios of such values are the length-normalized ones of Zheng et al.
    2025 (arXiv:2507.18071), which long sequences do not push out of the clip range.
    """
    total = torch.where(mask, logp, 0.0).sum(-1)
    return total / mask.sum(-1).clamp(min=1) if per_token else total


def value_loss(
    value: Tensor, target: Tensor, *, collected_value: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """Squared error of the value, without a factor ½. To be minimized. [B] → [B].

        max( (V - target)²,  (V_collected + clip(V - V_collected, ±c) - target)² )   with `clip`

    The first term alone is arXiv:1707.06347, eq. 9; the maximum is the value clipping of its authors' code,
    described in arXiv:2005.12729, §3. `clip` needs the value at collection time, `collected_value`.
    """
    error = (value - target).square()
    if clip is None or collected_value is None:
        return error
    held = value.clamp(collected_value - clip, collected_value + clip)
    return torch.maximum(error, (held - target).square())
