"""How far apart two policies are: exactly, or as seen on sampled actions."""

from torch import Tensor

from anybatch.equations.objectives import Clip, log_clip_range


def categorical_kl(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ_a p(a) (log p(a) - log q(a)), in nats (Kullback & Leibler 1951). [..., A] → [...]."""
    logp, logq = logits_p.log_softmax(-1), logits_q.log_softmax(-1)
    return (logp.exp() * (logp - logq)).sum(-1)


def gaussian_kl(mean_p: Tensor, log_std_p: Tensor, mean_q: Tensor, log_std_q: Tensor) -> Tensor:
    """KL(p ‖ q) of diagonal Gaussians, summed over action dimensions.

        Σ_a  log(σ_q/σ_p) + (σ_p² + (μ_p - μ_q)²) / (2 σ_q²) - ½

    The divergence of Kullback & Leibler 1951 in closed form. Means are [..., A], logs of standard deviations
    broadcast against them; the result is [...].
    """
    log_ratio = log_std_p - log_std_q
    distance = (mean_p - mean_q) * (-log_std_q).exp()
    return (0.5 * ((2 * log_ratio).exp() + distance.square()) - log_ratio - 0.5).sum(-1)


def sampled_kl_squared(logp: Tensor, proximal_logp: Tensor) -> Tensor:
    """½ (log π - log π_proximal)² on the sampled actions: second-order estimate of the divergence. [B] → [B].

    The penalty of the code of Hilton et al. 2021 (arXiv:2110.00641); k2 in Schulman 2020,
    "Approximating KL divergence". If actions are drawn from π, its mean gradient is that of
    KL(π ‖ π_proximal).
    """
    return 0.5 * (logp - proximal_logp).square()


def sampled_kl(logp: Tensor, behavior_logp: Tensor) -> Tensor:
    """(r - 1) - log r with r = π/π_behavior: KL(π_behavior ‖ π) on actions of π_behavior. [B] → [B].

    k3 in Schulman 2020, "Approximating KL divergence": unbiased, never negative; often logged as approx_kl.
    """
    logratio = logp - behavior_logp
    return logratio.expm1() - logratio


def is_clipped(logratio: Tensor, clip: Clip) -> Tensor:
    """Which samples have a ratio outside [1-ε, 1+ε], compared in log space. [B] → [B], of True and False.

    The range of arXiv:1707.06347, eq. 7; `logratio` is log π - log π_proximal (arXiv:2110.00641, §2).
    """
    lower, upper = log_clip_range(clip)
    return (logratio < lower) | (logratio > upper)


def greedy_action_churn(scores_before: Tensor, scores_after: Tensor) -> Tensor:
    """Share of states whose best action changed, the behavioral divergence of Park (arXiv:2605.21557).

    Scores are action values or logits, [..., A]; the result is a scalar.
    """
    return (scores_before.argmax(-1) != scores_after.argmax(-1)).to(scores_before.dtype).mean()
