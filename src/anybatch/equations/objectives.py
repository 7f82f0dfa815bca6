"""What a policy update maximizes, sample by sample, and what a value update minimizes.

Ratios stay in log space, and only the current policy's log-probability carries a gradient: at minibatches of
a few hundred samples every operation that autograd records costs more than its arithmetic.
"""

import math

import torch
from torch import Tensor


def capped_behavior_logp(logp: Tensor, behavior_logp: Tensor, max_importance: float) -> Tensor:
    """log π_behavior, raised where needed so that π / π_behavior ≤ `max_importance`.

        max( log π_behavior,  stop_gradient(log π) - log max_importance )

    The cap in the code of Hilton et al. 2021 (arXiv:2110.00641). A capped sample keeps a gradient, since
    log π still has one in the ratio: it is scaled down, not dropped. [B] → [B].
    """
    if max_importance == math.inf:
        return behavior_logp
    return torch.maximum(behavior_logp, logp.detach() - math.log(max_importance))


def importance_weighted_objective(
    logp: Tensor, behavior_logp: Tensor, advantage: Tensor, *, max_importance: float
) -> Tensor:
    """π / π_behavior · Â, the policy gradient without any proximal policy. To be maximized.

    arXiv:1707.06347, eq. 6, and the limit of both decoupled objectives at ε = ∞ or β = 0
    (Hilton et al. 2021, arXiv:2110.00641, §2). [B] → [B].
    """
    return (logp - capped_behavior_logp(logp, behavior_logp, max_importance)).exp() * advantage


def decoupled_clip_objective(
    logp: Tensor,
    proximal_logp: Tensor,
    behavior_logp: Tensor,
    advantage: Tensor,
    *,
    clip: float,
    max_importance: float = 100.0,
) -> Tensor:
    """Clipped surrogate with the proximal policy decoupled from the behavior policy. To be maximized.

        min( π/π_behavior · Â,  π_proximal/π_behavior · clip(π/π_proximal, 1-ε, 1+ε) · Â )

    Hilton et al. 2021 (arXiv:2110.00641), §2, the decoupled clipped objective.
    With proximal == behavior this is PPO (arXiv:1707.06347, eq. 7); ε may be ∞.

    All tensors are [B]; the result is [B]. Gradients flow through `logp` only.
    """
    if clip == math.inf:
        return importance_weighted_objective(logp, behavior_logp, advantage, max_importance=max_importance)
    behavior_logp = capped_behavior_logp(logp, behavior_logp, max_importance)
    # The minimum lets only one bound bite: the upper one where Â ≥ 0, the lower one where Â < 0.
    lower_log, upper_log = log_clip_range(clip)
    is_bad = advantage < 0
    lower = torch.where(is_bad, proximal_logp + lower_log, -math.inf)
    upper = torch.where(is_bad, math.inf, proximal_logp + upper_log)
    return (torch.clamp(logp, lower, upper) - behavior_logp).exp() * advantage


def log_clip_range(clip: float) -> tuple[float, float]:
    """log(1-ε) and log(1+ε); the lower end is -∞ from ε = 1 on."""
    return (math.log1p(-clip) if clip < 1 else -math.inf), math.log1p(clip)


def decoupled_kl_objective(
    logp: Tensor,
    behavior_logp: Tensor,
    advantage: Tensor,
    kl: Tensor,
    *,
    kl_penalty: float,
    max_importance: float = 100.0,
) -> Tensor:
    """Importance-weighted surrogate, penalized for divergence from the proximal policy. To be maximized.

        π/π_behavior · Â - β · KL(π_proximal, π)

    Hilton et al. 2021 (arXiv:2110.00641), §2, the decoupled KL-penalized objective. `kl` is the divergence
    of each sample, exact or sampled (`divergence.sampled_kl_squared`). All tensors are [B]; so is the result.
    """
    surrogate = importance_weighted_objective(logp, behavior_logp, advantage, max_importance=max_importance)
    return penalized(surrogate, kl, kl_penalty=kl_penalty)


def penalized(objective: Tensor, kl: Tensor, *, kl_penalty: float) -> Tensor:
    """Any of these objectives, held back by a divergence as well: objective - β · KL. [B] → [B]."""
    return torch.sub(objective, kl, alpha=kl_penalty)


def clip_objective(logp: Tensor, behavior_logp: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """PPO's clipped surrogate (arXiv:1707.06347, eq. 7), uncapped. [B] → [B], to be maximized."""
    return decoupled_clip_objective(
        logp, behavior_logp, behavior_logp, advantage, clip=clip, max_importance=math.inf
    )


def kl_objective(
    logp: Tensor, behavior_logp: Tensor, advantage: Tensor, kl: Tensor, *, kl_penalty: float
) -> Tensor:
    """PPO's KL-penalized surrogate (arXiv:1707.06347, eq. 8), uncapped; `kl` is from the behavior policy."""
    return decoupled_kl_objective(
        logp, behavior_logp, advantage, kl, kl_penalty=kl_penalty, max_importance=math.inf
    )


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
