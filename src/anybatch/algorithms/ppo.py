"""PPO, decoupled PPO and PPO-EWMA (arXiv:1707.06347, arXiv:2110.00641, Algorithm 2).

One pass of the loop in `train` is one iteration. The three differ in one choice: the policy that the update
is held near, called proximal. It is the one that collected the data, the one at the start of the iteration,
or one with averaged or copied weights.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.algorithms.batch_control import control_batch, probe
from anybatch.algorithms.ppo_state import (
    PPOState,
    encoder_name,
    for_inference,
    make_network,
    make_observation_normalizer,
    restore,
)
from anybatch.algorithms.ppo_state import start as start_state
from anybatch.algorithms.state import Environments
from anybatch.backends import Columns, Loss, Minibatch
from anybatch.config import ObjectiveConfig, PPOConfig
from anybatch.distributed import collectives
from anybatch.equations import divergence, moments, objectives, returns, stale_data
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.custom import NetworkFactory
from anybatch.networks.distributions import Distribution, kept_log_std, make_distribution
from anybatch.networks.weight_average import WeightAverage
from anybatch.runs.run import Run

__all__ = [
    "encoder_name",
    "for_inference",
    "make_network",
    "make_observation_normalizer",
    "restore",
    "start",
    "train",
]
"""What every algorithm has: see `algorithms.Algorithm`."""


@dataclass
class Samples(Columns):
    """This rank's iteration batch, prepared for optimization and flattened to [T · N]."""

    COLUMNS: ClassVar = (
        "obs",
        "action",
        "behavior_logp",
        "proximal_logp",
        "proximal_params",
        "advantage",
        "value",
        "value_target",
    )
    SHARED: ClassVar = ("proximal_log_std",)

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    """Log-probabilities that importance weights divide by."""
    proximal_logp: Tensor
    """Log-probabilities under the proximal policy, unless that has weights of its own."""
    proximal_params: Tensor
    """Its logits or means."""
    proximal_log_std: Tensor | None
    advantage: Tensor
    value: Tensor
    """At collection time."""
    value_target: Tensor
    valid: Tensor
    """[T, N]."""
    all_valid: Tensor
    """[T, N] of all envs of the run."""
    age_iterations: int
    age_gradient_steps: int


class PolicyRecord(NamedTuple):
    """Losses and statistics of a microbatch, sample by sample [b], without gradients."""

    objective: Tensor
    value_loss: Tensor
    entropy: Tensor
    logp: Tensor
    behavior_logp: Tensor
    proximal_logp: Tensor


def train(config: PPOConfig, state: PPOState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is requested."""
    run.begin(state)
    for rollout in state.rollouts(config, run):
        before_updates = probe(config, state, rollout)
        with run.timer("returns"):
            samples = prepare(rollout, state, config)
        with run.timer("update"):
            metrics = update_policy(samples, state, config, state.learner.learning_rate)
        state.learner.count(rollout)
        metrics |= state.metrics()  # of the batch that was trained on
        metrics |= control_batch(config, state, before_updates)
        run.record(state, rollout.episodes, metrics)
    run.save(state)


def prepare(rollout: Rollout, state: PPOState, config: PPOConfig) -> Samples:
    """The samples of an iteration: advantages and value targets, and the policies that updates refer to."""
    age = state.learner.age_of(rollout)
    advantage, value_target = advantages_and_targets(rollout, state, config)
    proximal = rollout
    if age > 0 and config.proximal.policy == "iteration_start":
        # Fresh data needs no second pass: the policy at the start of the iteration is the one that acted.
        proximal = seen_by_current_policy(rollout, state)
    behavior = rollout if config.proximal.importance == "behavior" else proximal
    return Samples(
        obs=rollout.obs[:-1].flatten(0, 1),
        action=rollout.action.flatten(0, 1),
        behavior_logp=behavior.behavior_logp.flatten(),
        proximal_logp=proximal.behavior_logp.flatten(),
        proximal_params=proximal.policy_params.flatten(0, 1),
        proximal_log_std=proximal.log_std,
        advantage=advantage.flatten(),
        value=rollout.value.flatten(),
        value_target=value_target.flatten(),
        valid=rollout.valid,
        all_valid=collectives.envs_of_all_ranks(rollout.valid, state.batch.num_envs, axis=1),
        age_iterations=age,
        age_gradient_steps=state.steps.counts.taken - rollout.origin.gradient_steps,
    )


def advantages_and_targets(rollout: Rollout, state: PPOState, config: PPOConfig) -> tuple[Tensor, Tensor]:
    """Advantages, normalized once over the whole iteration batch, and value targets. Both are [T, N]."""
    reward = rollout.reward
    if state.reward_normalizer is not None:
        reward = state.reward_normalizer(reward, rollout.valid, rollout.episode_end)
    advantage = returns.gae(
        reward,
        rollout.value,
        bootstrapped_now(rollout, state),
        rollout.terminated,
        rollout.episode_end,
        discount=config.objective.discount,
        gae_lambda=config.objective.gae_lambda,
    )
    value_target = advantage + rollout.value
    decay = state.plan.hyperparameters.advantage_decay
    state.advantage_normalizer.update(advantage, rollout.valid, decay=decay)
    if config.objective.advantage_normalization == "iteration":
        advantage = state.advantage_normalizer.normalize(advantage)
    return advantage, value_target


def bootstrapped_now(rollout: Rollout, state: PPOState) -> Tensor:
    """The next values from collection time, but with the current network's at the end of stale data."""
    if state.learner.age_of(rollout) == 0:
        return rollout.next_value
    next_value = rollout.next_value.clone()
    last = state.backend.outputs(state.network.value, rollout.obs[-1])
    next_value[-1] = torch.where(rollout.episode_end[-1], next_value[-1], last)
    return next_value


def seen_by_current_policy(rollout: Rollout, state: PPOState) -> Rollout:
    """The same data as if the current policy had acted."""
    policy_params = state.backend.outputs(state.network.policy_params, rollout.obs[:-1].flatten(0, 1))
    with torch.no_grad():
        policy = state.network.distribution(policy_params.to(state.device))
        logp = policy.log_prob(rollout.action.flatten(0, 1).to(state.device)).cpu()
    return replace(
        rollout,
        policy_params=policy_params.view_as(rollout.policy_params),
        behavior_logp=logp.view_as(rollout.reward),
        log_std=kept_log_std(policy.log_std),
    )


def update_policy(
    samples: Samples, state: PPOState, config: PPOConfig, learning_rate: float
) -> dict[str, float | None]:
    """Optimize policy and value on one iteration batch, in place. Returns the iteration's metrics."""
    share = effective_share(samples, state, config) if config.staleness.scale_learning_rate else None
    if share is not None:
        learning_rate *= stale_data.learning_rate_factor(share)
    samples = samples.on_device(state.device)
    state.backend.begin_iteration(learning_rate, state.plan)
    noise = measured_noise(samples, state, config)
    checked = config.update.target_kl_check if config.update.target_kl is not None else None
    should_stop = partial(moved_too_far, config=config)
    records: list[PolicyRecord] = []
    epochs_done = 0
    for _ in range(state.batch.epochs):
        minibatches = state.minibatches(samples, config)
        batch = samples
        if config.objective.advantage_normalization == "minibatch":
            batch = with_normalized_minibatches(samples, minibatches)
        seen = state.backend.take_steps(
            batch, minibatches, stop=should_stop if checked == "minibatch" else None
        )
        records += seen.records
        if seen.stopped:
            break
        epochs_done += 1
        if checked == "epoch" and should_stop(seen.last):
            break
    metrics: dict[str, float | None] = {"charts/learning_rate": learning_rate} | noise
    if share is not None:
        metrics["staleness/effective_samples"] = share
        metrics["staleness/learning_rate_factor"] = stale_data.learning_rate_factor(share)
    if not records:  # reset steps only, which happens if an iteration is a step or two
        return metrics | {"batch/valid_fraction": 0.0}
    if not state.learner.wants_metrics:
        return metrics
    return metrics | iteration_metrics(records, samples, state, config, epochs_done)


def measured_noise(samples: Samples, state: PPOState, config: PPOConfig) -> dict[str, float | None]:
    """Metrics of the gradients' noise before an iteration's first step, if they are measured in it."""
    if not state.measures_noise(config):
        return {}
    if config.objective.advantage_normalization == "minibatch":
        everything = samples.all_valid.flatten().nonzero().squeeze(1)
        whole = Minibatch.of(everything, state.shard, samples.obs.device)
        samples = with_normalized_minibatches(samples, [whole])
    return state.measure_noise(config, samples, samples.all_valid)


def policy_loss(
    network: ActorCritic, batch: Samples, objective: ObjectiveConfig, average: WeightAverage | None
) -> tuple[Tensor, PolicyRecord]:
    """Losses of the samples of a microbatch [b], to be minimized, and their record for the metrics.

    loss = value_coefficient · (V - target)² - objective - entropy_coefficient · entropy
    """
    # Before the current network runs: on top of its graph, the temporaries would cause page faults.
    proximal: Distribution | None = None
    if average is not None:
        proximal = average.policy_at(batch.obs)
        proximal_logp = proximal.log_prob(batch.action)
    else:
        proximal_logp = batch.proximal_logp
        if objective.kl_penalty > 0 and objective.kl == "exact":
            proximal = make_distribution(batch.proximal_params, batch.proximal_log_std, network.action_counts)
    policy, value = network(batch.obs)
    logp = policy.log_prob(batch.action)
    kl: Tensor | None = None
    if objective.kl_penalty > 0 and objective.kl == "sampled":
        kl = divergence.sampled_kl_squared(logp, proximal_logp)
    elif objective.kl_penalty > 0 and proximal is not None:
        kl = policy.kl_from(proximal)
    surrogate = objectives.decoupled_objective(
        logp,
        proximal_logp,
        batch.behavior_logp,
        batch.advantage,
        clip=objective.clip,
        max_importance=objective.max_importance,
        kl=kl,
        kl_penalty=objective.kl_penalty,
    )
    value_loss = objectives.value_loss(
        value, batch.value_target, collected_value=batch.value, clip=objective.value_clip
    )
    entropy = policy.entropy()
    loss = objective.value_coefficient * value_loss - surrogate
    if objective.entropy_coefficient:
        loss = loss - objective.entropy_coefficient * entropy
    kept = (surrogate, value_loss, entropy, logp, batch.behavior_logp, proximal_logp)
    return loss, PolicyRecord(*(tensor.detach() for tensor in kept))


def possible_causes(network: ActorCritic, batch: Samples) -> dict[str, Tensor]:
    """The numbers behind a loss, of which the first that is not finite is its cause."""
    policy, value = network(batch.obs)
    return {
        "observation": batch.obs,
        "action": batch.action,
        "behavior log-probability": batch.behavior_logp,
        "advantage": batch.advantage,
        "value target": batch.value_target,
        "policy output": policy.params,
        "value": value,
    }


def with_normalized_minibatches(samples: Samples, minibatches: list[Minibatch]) -> Samples:
    """Samples whose advantages are normalized over the minibatch, on all ranks, that each belongs to.

    If one of them is not finite, those of its minibatch stay as they are, so that it can be found.
    """
    advantage = samples.advantage.clone()
    for minibatch in minibatches:
        here = samples.advantage[minibatch.local]
        mean, std = minibatch_moments(here, minibatch.count)
        if math.isfinite(mean) and math.isfinite(std):
            advantage[minibatch.local] = (here - mean) / std
    return replace(samples, advantage=advantage)


def minibatch_moments(advantage: Tensor, count: float) -> tuple[float, float]:
    """Mean and sample standard deviation over one minibatch, all ranks; (0, 1) for a single sample."""
    if count < 2:
        return 0.0, 1.0
    mean = float(collectives.sum_over_ranks(advantage.sum())) / count
    squares = float(collectives.sum_over_ranks((advantage - mean).square().sum()))
    return mean, math.sqrt(squares / (count - 1)) + moments.EPSILON


def moved_too_far(records: list[PolicyRecord], config: PPOConfig) -> bool:
    """Whether the sampled KL from the behavior policy exceeds the limit, over one minibatch."""
    if config.update.target_kl is None or not records:
        return False
    kl = torch.cat([divergence.sampled_kl(record.logp, record.behavior_logp) for record in records])
    sums = collectives.sum_over_ranks(torch.stack([kl.sum(), kl.new_tensor(len(kl))]))
    return bool(sums[0] / sums[1] > config.update.target_kl)


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
    policy_params = state.backend.outputs(state.network.policy_params, samples.obs)
    policy = state.network.distribution(policy_params.to(state.device))
    return policy.log_prob(samples.action.to(state.device)).to(samples.behavior_logp.device)


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
    return {
        **dict(zip(averaged, means.tolist(), strict=True)),
        **state.steps.metrics(),
        "importance/effective_samples": float(moments.effective_share_of_parts(weights)),
        "losses/explained_variance": returns.explained_variance(
            moments.merged_moments(error), moments.merged_moments(targets)
        ),
        "losses/epochs_done": float(epochs_done),
        "batch/valid_fraction": float(samples.all_valid.float().mean()),
        "staleness/iterations": float(samples.age_iterations),
        "staleness/gradient_steps": float(samples.age_gradient_steps),
    }


def averaged_metrics(seen: PolicyRecord, config: PPOConfig) -> dict[str, Tensor]:
    """The metrics that are means over samples, sample by sample [b]."""
    log_importance = seen.logp - seen.behavior_logp
    return {
        "losses/policy_loss": -seen.objective,
        "losses/value_loss": seen.value_loss,
        "losses/entropy": seen.entropy,
        "losses/approx_kl": divergence.sampled_kl(seen.logp, seen.behavior_logp),
        "losses/clipfrac": divergence.is_clipped(seen.logp - seen.proximal_logp, config.objective.clip),
        "proximal/kl": divergence.sampled_kl_squared(seen.logp, seen.proximal_logp),
        "importance/capped_fraction": log_importance > math.log(config.objective.max_importance),
    }


def start(
    config: PPOConfig,
    env: Environments,
    *,
    factory: NetworkFactory | None = None,
    was_native: bool | None = None,
) -> PPOState:
    """A fresh state. `factory` makes the user's own network; `was_native` is the backend of a resumed run."""
    losses = {"policy": loss_of(config, config.objective)}
    return start_state(config, env, losses, factory=factory, was_native=was_native)


def loss_of(config: PPOConfig, objective: ObjectiveConfig) -> Loss:
    return Loss(
        function=policy_loss,
        objective=objective,
        policy_objective=replace(objective, value_coefficient=0.0),
        record=PolicyRecord,
        optimizer=config.optimizer,
        possible_causes=possible_causes,
        is_native=True,
    )
