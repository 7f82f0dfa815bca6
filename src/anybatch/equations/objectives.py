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


def decoupled_objective(
    logp: Tensor,
    proximal_logp: Tensor,
    behavior_logp: Tensor,
    advantage: Tensor,
    *,
    clip: float,
    max_importance: float = 100.0,
    kl: Tensor | None = None,
    kl_penalty: float = 0.0,
) -> Tensor:
    """Surrogate with the proximal policy decoupled from the behavior policy. To be maximized.

        min( π/π_behavior · Â,  π_proximal/π_behavior · clip(π/π_proximal, 1-ε, 1+ε) · Â )  -  β · KL

    Hilton et al. 2021 (arXiv:2110.00641), §2: with β = 0 the decoupled clipped objective, with ε = ∞ the
    decoupled KL-penalized one. Where the proximal policy is the behavior policy these are PPO's
    (arXiv:1707.06347, eq. 7 and 8); with ε = ∞ and β = 0, the importance-weighted policy gradient (eq. 6).
    `kl` is the divergence from the proximal policy of each sample, exact or sampled.

    All tensors are [B]; the result is [B]. Gradients flow through `logp` and `kl` only.
    """
    behavior_logp = capped_behavior_logp(logp, behavior_logp, max_importance)
    held_logp = logp if clip == math.inf else clipped_logp(logp, proximal_logp, advantage, clip)
    surrogate = (held_logp - behavior_logp).exp() * advantage
    return surrogate if kl is None else torch.sub(surrogate, kl, alpha=kl_penalty)


def clipped_logp(logp: Tensor, proximal_logp: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """log π, held to the range around log π_proximal in which the minimum of the objective is its first term.

    Only one bound affects the minimum: the upper one where Â ≥ 0, the lower one where Â < 0. [B] → [B].
    """
    lower_log, upper_log = log_clip_range(clip)
    is_bad = advantage < 0
    lower = torch.where(is_bad, proximal_logp + lower_log, -math.inf)
    upper = torch.where(is_bad, math.inf, proximal_logp + upper_log)
    return torch.clamp(logp, lower, upper)


def log_clip_range(clip: float) -> tuple[float, float]:
    """log(1-ε) and log(1+ε); the lower end is -∞ from ε = 1 on."""
    return (math.log1p(-clip) if clip < 1 else -math.inf), math.log1p(clip)


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
