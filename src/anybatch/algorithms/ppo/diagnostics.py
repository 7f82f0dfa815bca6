"""Metrics of an update, and the culprit when values become non-finite."""

import math

import torch
from torch import Tensor

from anybatch.algorithms.ppo.samples import PolicyRecord, Samples
from anybatch.algorithms.ppo.state import PPOState
from anybatch.algorithms.steps import first_bad_value
from anybatch.config import PPOConfig
from anybatch.distributed import collectives
from anybatch.equations import divergence, moments, returns


def iteration_metrics(
    records: list[PolicyRecord], samples: Samples, state: PPOState, config: PPOConfig, epochs_done: int
) -> dict[str, float | None]:
    """Means over all samples of all gradient steps, on all ranks."""
    seen = PolicyRecord(*(torch.cat(column) for column in zip(*records, strict=True)))
    averaged = averaged_metrics(seen, config)
    valid = samples.valid.flatten().to(samples.value.device)
    value, target = samples.value[valid], samples.value_target[valid]
    own = [
        torch.stack([column.to(seen.logp.dtype).sum() for column in averaged.values()]).double().cpu(),
        moments.weight_sums(seen.logp - seen.behavior_logp).cpu(),
        moments.moment_sums(target - value).cpu(),
        moments.moment_sums(target).cpu(),
    ]
    sums, weights, error, targets = collectives.of_all_ranks(torch.cat(own)).split(
        [len(part) for part in own], dim=1
    )
    means = sums.sum(0) / weights[:, -1].sum()
    metrics: dict[str, float | None] = dict(zip(averaged, means.tolist(), strict=True))
    return (
        metrics
        | state.steps.metrics()
        | {
            "importance/effective_samples": float(moments.effective_share_of_parts(weights)),
            "losses/explained_variance": returns.explained_variance(
                moments.merged_moments(error), moments.merged_moments(targets)
            ),
            "losses/epochs_done": float(epochs_done),
            "batch/valid_fraction": float(samples.all_valid.float().mean()),
            "staleness/iterations": float(samples.age_iterations),
            "staleness/gradient_steps": float(samples.age_gradient_steps),
        }
    )


def averaged_metrics(seen: PolicyRecord, config: PPOConfig) -> dict[str, Tensor]:
    """The metrics that are means over samples, sample by sample [b]."""
    clip = math.inf if config.objective.clip is None else config.objective.clip
    log_importance = seen.logp - seen.behavior_logp
    return {
        "losses/policy_loss": -seen.objective,
        "losses/value_loss": seen.value_loss,
        "losses/entropy": seen.entropy,
        "losses/approx_kl": divergence.sampled_kl(seen.logp, seen.behavior_logp),
        "losses/clipfrac": divergence.is_clipped(seen.logp - seen.proximal_logp, clip),
        "proximal/kl": divergence.sampled_kl_squared(seen.logp, seen.proximal_logp),
        "importance/capped_fraction": log_importance > math.log(config.objective.max_importance),
    }


def bad_value(samples: Samples, state: PPOState, indices: Tensor) -> str | None:
    """The first non-finite value of the last minibatch on this rank, and where it came from."""
    with torch.no_grad():
        policy, value = state.network(samples.obs[indices].to(state.device))
    candidates = {
        "observation": samples.obs[indices],
        "action": samples.action[indices],
        "behavior log-probability": samples.behavior_logp[indices],
        "advantage": samples.advantage[indices],
        "value target": samples.value_target[indices],
        "policy output": policy.location,
        "value": value,
    }
    return first_bad_value(candidates, indices, state.shard)
