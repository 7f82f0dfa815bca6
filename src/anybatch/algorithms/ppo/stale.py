"""The learning rate of stale data: the fewer effective samples, the smaller."""

import math

import torch
from torch import Tensor

from anybatch.algorithms.ppo.samples import Samples
from anybatch.algorithms.ppo.state import PPOState
from anybatch.config import PPOConfig
from anybatch.distributed import collectives
from anybatch.equations import stale_data


def scaled_learning_rate(
    learning_rate: float, samples: Samples, state: PPOState, config: PPOConfig
) -> tuple[float, dict[str, float | None]]:
    """The learning rate of an iteration on `samples`, and the metrics of what scaled it."""
    if not config.staleness.scale_learning_rate:
        return learning_rate, {}
    share = effective_share(samples, state, config)
    factor = stale_data.learning_rate_factor(share)
    return learning_rate * factor, {
        "charts/learning_rate": learning_rate * factor,
        "staleness/effective_samples": share,
        "staleness/learning_rate_factor": factor,
    }


def effective_share(samples: Samples, state: PPOState, config: PPOConfig) -> float:
    """Effective samples ÷ samples of an iteration batch before its first gradient step, over all ranks.

    1 for fresh data, whose weights are 1, and if a weight is non-finite: such steps are skipped anyway.
    """
    if samples.age_iterations == 0:
        return 1.0
    valid = samples.valid.flatten().to(samples.behavior_logp.device)
    log_weights = (current_logp(samples, state, config) - samples.behavior_logp)[valid]
    sums = stale_data.capped_weight_sums(log_weights, config.objective.max_importance)
    weight_sum, square_sum, count = collectives.sum_over_ranks(sums).tolist()
    if count == 0 or square_sum == 0 or not math.isfinite(square_sum):
        return 1.0
    return stale_data.effective_share(weight_sum, square_sum, count)


@torch.no_grad()
def current_logp(samples: Samples, state: PPOState, config: PPOConfig) -> Tensor:
    """Log-probabilities of the sampled actions under the current policy; `prepare` may have computed them."""
    if config.proximal.policy == "iteration_start":
        return samples.proximal_logp
    location = state.learner.over(state.network.locate, samples.obs)
    policy = state.network.distribution(location.to(state.device))
    return policy.log_prob(samples.action.to(state.device)).to(samples.behavior_logp.device)
