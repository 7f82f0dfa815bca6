"""The loss of PPO, decoupled PPO and PPO-EWMA, sample by sample."""

import math

from torch import Tensor

from anybatch.algorithms.ppo.samples import PolicyBatch, PolicyRecord
from anybatch.config import ObjectiveConfig
from anybatch.equations import divergence, objectives
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import Distribution


def policy_loss(
    network: ActorCritic, batch: PolicyBatch, objective: ObjectiveConfig
) -> tuple[Tensor, PolicyRecord]:
    """Per-sample losses [b] to be minimized, and their record for the metrics.

    loss = value_coefficient · (V - target)² - objective - entropy_coefficient · entropy
    """
    policy, value = network(batch.obs)
    logp = policy.log_prob(batch.action)
    gain = objectives.decoupled_objective(
        logp,
        batch.proximal_logp,
        batch.behavior_logp,
        batch.advantage,
        clip=math.inf if objective.clip is None else objective.clip,
        max_importance=objective.max_importance,
        kl=kl_from_proximal(policy, logp, batch, objective) if objective.kl_penalty > 0 else None,
        kl_penalty=objective.kl_penalty,
    )
    value_loss = objectives.value_loss(
        value, batch.value_target, collected_value=batch.value, clip=objective.value_clip
    )
    entropy = policy.entropy()
    loss = objective.value_coefficient * value_loss - gain
    if objective.entropy_coefficient:
        loss = loss - objective.entropy_coefficient * entropy
    kept = (gain, value_loss, entropy, logp, batch.behavior_logp, batch.proximal_logp)
    return loss, PolicyRecord(*(tensor.detach() for tensor in kept))


def kl_from_proximal(
    policy: Distribution, logp: Tensor, batch: PolicyBatch, objective: ObjectiveConfig
) -> Tensor:
    """Divergence of the current policy from the proximal one, sample by sample."""
    if objective.kl == "sampled":
        return divergence.sampled_kl_squared(logp, batch.proximal_logp)
    assert batch.proximal is not None
    return policy.kl_from(batch.proximal)
