"""Metrics of an update, and the culprit when values become non-finite."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from anybatch.algorithms.ppo.samples import PolicyRecord, Samples
from anybatch.algorithms.ppo.state import PPOState
from anybatch.config import PPOConfig
from anybatch.equations import divergence, moments, returns


def iteration_metrics(
    records: list[PolicyRecord], samples: Samples, state: PPOState, config: PPOConfig, epochs_done: int
) -> dict[str, float | None]:
    """Means over all samples of all gradient steps, read from the device once."""
    seen = PolicyRecord(*(torch.cat(column) for column in zip(*records, strict=True)))
    log_importance = seen.logp - seen.behavior_logp
    clip = math.inf if config.objective.clip is None else config.objective.clip
    means = torch.stack(
        [
            -seen.objective.mean(),
            seen.value_loss.mean(),
            seen.entropy.mean(),
            divergence.sampled_kl(seen.logp, seen.behavior_logp).mean(),
            divergence.clip_fraction(seen.logp - seen.proximal_logp, clip),
            divergence.sampled_kl_squared(seen.logp, seen.proximal_logp).mean(),
            moments.effective_samples(log_importance),
            (log_importance > math.log(config.objective.max_importance)).float().mean(),
        ]
    )
    names = (
        "losses/policy_loss",
        "losses/value_loss",
        "losses/entropy",
        "losses/approx_kl",
        "losses/clipfrac",
        "proximal/kl",
        "importance/effective_samples",
        "importance/capped_fraction",
    )
    metrics: dict[str, float | None] = dict(zip(names, means.tolist(), strict=True))
    valid = samples.valid.flatten()
    return (
        metrics
        | state.steps.metrics()
        | {
            "losses/explained_variance": float(
                returns.explained_variance(samples.value[valid], samples.value_target[valid])
            ),
            "losses/epochs_done": float(epochs_done),
            "batch/valid_fraction": float(samples.valid.float().mean()),
            "staleness/iterations": float(samples.age_iterations),
            "staleness/gradient_steps": float(samples.age_gradient_steps),
        }
    )


def bad_value(samples: Samples, state: PPOState, indices: Tensor) -> str:
    """The first non-finite value of the last minibatch, and where it came from."""
    with torch.no_grad():
        policy, value = state.network(samples.obs[indices].to(state.device))
    candidates = {
        "observation": samples.obs[indices],
        "action": samples.action[indices],
        "behavior log-probability": samples.behavior_logp[indices],
        "advantage": samples.advantage[indices],
        "value target": samples.value_target[indices],
        "policy output": policy.location.cpu(),
        "value": value.cpu(),
    }
    return first_bad_value(candidates, indices, num_envs=samples.valid.shape[1])


def first_bad_value(named: Mapping[str, Tensor], indices: Tensor, *, num_envs: int) -> str:
    """Of tensors [B, …], each a row for each of the `indices` into [T · N], the first with a bad number."""
    for name, tensor in named.items():
        bad = ~torch.isfinite(tensor.float()).view(len(tensor), -1).all(1)
        if bad.any():
            step, env = divmod(int(indices[bad.nonzero()[0, 0]]), num_envs)
            return f"the first is the {name} of environment {env} at step {step} of the iteration"
    return "no single value is the cause: the loss itself overflowed"
