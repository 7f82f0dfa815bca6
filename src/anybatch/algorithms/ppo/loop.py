"""PPO, decoupled PPO and PPO-EWMA (arXiv:1707.06347, arXiv:2110.00641).

One pass of the loop is one iteration. The three differ in one choice: the policy the update is held near.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.algorithms.control import Probe, control_batch, probe
from anybatch.algorithms.ppo import native
from anybatch.algorithms.ppo.diagnostics import bad_value, iteration_metrics
from anybatch.algorithms.ppo.loss import policy_loss
from anybatch.algorithms.ppo.samples import PolicyBatch, PolicyRecord, Samples
from anybatch.algorithms.ppo.stale import scaled_learning_rate
from anybatch.algorithms.ppo.state import PPOState, keep_proximal_age
from anybatch.algorithms.steps import Minibatch, gradient, minibatches, steps_ahead
from anybatch.config import PPOConfig
from anybatch.distributed import collectives
from anybatch.equations import divergence, returns
from anybatch.equations.moments import EPSILON
from anybatch.learning.gradient_steps import AddGradient, by_autograd
from anybatch.learning.staging import on_device, take
from anybatch.networks.distributions import Distribution, kept_log_std, make_distribution
from anybatch.runs.run import Run

UNCHANGED = 0.0, 1.0
"""The mean and standard deviation by which normalized advantages stay as they are."""


def train(config: PPOConfig, state: PPOState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is requested."""
    run.begin(state)
    while state.env_steps < config.total_env_steps and not run.is_to_stop:
        learning_rate = state.learner.learning_rate
        metrics: dict[str, float | None] = {"charts/learning_rate": learning_rate}
        with run.timer("rollout"):
            due = state.source.next(state.network, state.batch.num_steps, state.learner.origin)
        if due is None:  # the first data has not arrived: nothing to learn from, or to count
            state.learner.iterations += 1
            run.save_if_due(state)
            continue
        before_updates = probe(config, state, due)
        with run.timer("returns"):
            samples = prepare(due, state, config)
        with run.timer("update"):
            metrics |= improve_policy(samples, state, config, learning_rate)
        state.learner.count(due)
        metrics = state.metrics() | metrics  # for the batch of this iteration
        metrics |= decide_batch(config, state, before_updates, run)
        run.record(state, due.episodes, metrics)
    run.save(state)


def decide_batch(
    config: PPOConfig, state: PPOState, before_updates: Probe | None, run: Run
) -> dict[str, float]:
    """Let the controller decide the next batch; the proximal policy's age in env steps does not jump."""
    before = state.batch.env_steps_per_gradient_step
    metrics = control_batch(config, state, before_updates, run)
    if config.rescales_within_a_run:
        keep_proximal_age(state, config, before)
    return metrics


def prepare(data: Rollout, state: PPOState, config: PPOConfig) -> Samples:
    """The samples of an iteration: advantages and value targets, and the policies that updates refer to."""
    age = state.learner.age_of(data)
    advantage, value_target = advantages_and_targets(data, state, config)
    proximal = data
    if age > 0 and config.proximal.policy == "iteration_start":
        # Fresh data needs no second pass: the policy at the start of the iteration is the one that acted.
        proximal = seen_by_current_policy(data, state)
    behavior = data if config.proximal.importance == "behavior" else proximal
    return Samples(
        obs=data.obs[:-1].flatten(0, 1),
        action=data.action.flatten(0, 1),
        behavior_logp=behavior.behavior_logp.flatten(),
        proximal_logp=proximal.behavior_logp.flatten(),
        proximal_location=proximal.location.flatten(0, 1),
        proximal_log_std=proximal.log_std,
        advantage=advantage.flatten(),
        value=data.value.flatten(),
        value_target=value_target.flatten(),
        valid=data.valid,
        all_valid=collectives.envs_of_all_ranks(data.valid, state.batch.num_envs, axis=1),
        age_iterations=age,
        age_gradient_steps=state.steps.counts.taken - data.origin.gradient_steps,
    )


def advantages_and_targets(data: Rollout, state: PPOState, config: PPOConfig) -> tuple[Tensor, Tensor]:
    """Advantages, normalized once over the whole iteration batch, and value targets. Both are [T, N]."""
    reward = data.reward
    if state.reward_normalizer is not None:
        reward = state.reward_normalizer(reward, data.valid, data.episode_end)
    advantage = returns.gae(
        reward,
        data.value,
        bootstrapped_now(data, state),
        data.terminated,
        data.episode_end,
        discount=config.objective.discount,
        gae_lambda=config.objective.gae_lambda,
    )
    value_target = advantage + data.value
    state.advantage_normalizer.update(advantage, data.valid, decay=state.plan.hyperparameters.advantage_decay)
    if config.objective.advantage_normalization == "iteration":
        advantage = state.advantage_normalizer.normalize(advantage)
    return advantage, value_target


def bootstrapped_now(data: Rollout, state: PPOState) -> Tensor:
    """The next values from collection time, but with the current network's at the end of stale data."""
    if state.learner.age_of(data) == 0:
        return data.next_value
    next_value = data.next_value.clone()
    with torch.no_grad():
        last = state.learner.over(state.network.value, data.obs[-1])
    next_value[-1] = torch.where(data.episode_end[-1], next_value[-1], last)
    return next_value


def seen_by_current_policy(data: Rollout, state: PPOState) -> Rollout:
    """The same data as if the current policy had acted."""
    with torch.no_grad():
        location = state.learner.over(state.network.locate, data.obs[:-1].flatten(0, 1))
        policy = state.network.distribution(location.to(state.device))
        logp = policy.log_prob(data.action.flatten(0, 1).to(state.device)).cpu()
    return replace(
        data,
        location=location.view_as(data.location),
        behavior_logp=logp.view_as(data.reward),
        log_std=kept_log_std(policy.log_std),
    )


def improve_policy(
    samples: Samples, state: PPOState, config: PPOConfig, learning_rate: float
) -> dict[str, float | None]:
    """Optimize policy and value on one iteration batch, in place. Returns the iteration's metrics."""
    learning_rate, stale_metrics = scaled_learning_rate(learning_rate, samples, state, config)
    samples = on_device(samples, state.device)
    state.steps.begin_iteration(learning_rate, state.plan.hyperparameters)
    if state.proximal_network is not None:
        state.proximal_network.begin_iteration()
    records: list[PolicyRecord] = []
    epochs_done = 0
    for _ in range(state.batch.epochs):
        last = one_epoch(samples, state, config, records)
        if last is None:
            break
        epochs_done += 1
        if config.update.target_kl_check == "epoch" and moved_too_far(last, config):
            break
    if not records:  # reset steps only, which happens if an iteration is a step or two
        return {"batch/valid_fraction": 0.0}
    return iteration_metrics(records, samples, state, config, epochs_done) | stale_metrics


def one_epoch(
    samples: Samples, state: PPOState, config: PPOConfig, records: list[PolicyRecord]
) -> list[PolicyRecord] | None:
    """One pass over the samples; the records of each step are added to `records`.

    Returns those of the last step; None if the policy moved too far, which ends the epoch.
    """
    seen: list[PolicyRecord] = []
    left = minibatches(samples.all_valid, state, config, device=samples.obs.device)
    while left:
        ahead = steps_ahead(config, state.steps, left) if takes_steps_together(state, config) else 0
        if ahead:
            used, seen = steps_together(samples, left[:ahead], state, config)
        else:
            used, seen = 1, gradient_of(samples, left[0], state, config)
            if config.update.target_kl_check == "minibatch" and moved_too_far(seen, config):
                records += seen
                return None
            taken = state.steps.apply(partial(bad_value, samples, state, left[0].own))
            if taken and state.proximal_network is not None:
                state.proximal_network.follow(
                    state.plan.hyperparameters, state.batch.env_steps_per_gradient_step
                )
        records += seen
        left = left[used:]
    return seen


def takes_steps_together(state: PPOState, config: PPOConfig) -> bool:
    """Whether native code may take several steps in one call: nothing is to be looked at between them.

    Between steps on few samples, Python would take most of the time.
    """
    return (
        state.kernel is not None
        and state.periodic_copy is None
        and config.update.target_kl is None
        and config.objective.advantage_normalization != "minibatch"
    )


def steps_together(
    samples: Samples, batches: list[Minibatch], state: PPOState, config: PPOConfig
) -> tuple[int, list[PolicyRecord]]:
    """Gradient steps in native code. Returns how many minibatches were used, and what they saw."""
    used, record = native.take_steps(
        samples,
        batches,
        state,
        native.objective(config.objective),
        lambda batch: bad_value(samples, state, batch.own),
    )
    return used, [record]


def gradient_of(samples: Samples, batch: Minibatch, state: PPOState, config: PPOConfig) -> list[PolicyRecord]:
    """Leave the mean gradient of a minibatch in the buffer. Returns what its microbatches saw."""
    add_gradient = minibatch_gradient(samples, batch.own, batch.count, state, config)
    return gradient(config, state.steps, batch, add_gradient)


def minibatch_gradient(
    samples: Samples, indices: Tensor, count: float, state: PPOState, config: PPOConfig
) -> AddGradient[PolicyRecord]:
    """The gradient of any microbatch of the minibatch `indices`, which has `count` samples over all ranks."""
    shift, scale = UNCHANGED
    if config.objective.advantage_normalization == "minibatch":
        shift, scale = minibatch_moments(samples.advantage[indices], count)
    if state.kernel is not None:
        objective = native.objective(config.objective, shift, scale)
        return native.add_gradient(state.kernel, samples, objective)

    def loss_of(part: Tensor) -> tuple[Tensor, PolicyRecord]:
        batch = gather(samples, part, state, config)
        if config.objective.advantage_normalization == "minibatch":
            batch = batch._replace(advantage=(batch.advantage - shift) / scale)
        return policy_loss(state.network, batch, config.objective)

    return by_autograd(loss_of)


def gather(samples: Samples, part: Tensor, state: PPOState, config: PPOConfig) -> PolicyBatch:
    """The samples of a microbatch, and the proximal policy at their observations."""
    device, objective = state.device, config.objective
    obs, action = take(samples.obs, part, device), take(samples.action, part, device)
    # Before the current network runs: on top of its graph, the temporaries would cause page faults.
    proximal: Distribution | None = None
    if state.proximal_network is not None:
        proximal = state.proximal_network.policy_at(obs)
        proximal_logp = proximal.log_prob(action)
    else:
        proximal_logp = take(samples.proximal_logp, part, device)
        if objective.kl_penalty > 0 and objective.kl == "exact":
            location = take(samples.proximal_location, part, device)
            proximal = make_distribution(location, samples.proximal_log_std, state.network.action_counts)
    return PolicyBatch(
        obs=obs,
        action=action,
        behavior_logp=take(samples.behavior_logp, part, device),
        proximal_logp=proximal_logp,
        proximal=proximal,
        advantage=take(samples.advantage, part, device),
        value_target=take(samples.value_target, part, device),
        value=take(samples.value, part, device) if objective.value_clip is not None else None,
    )


def minibatch_moments(advantage: Tensor, count: float) -> tuple[float, float]:
    """Mean and sample standard deviation over one minibatch, all ranks; (0, 1) for a single sample."""
    if count < 2:
        return UNCHANGED
    mean = float(collectives.sum_over_ranks(advantage.sum())) / count
    squares = float(collectives.sum_over_ranks((advantage - mean).square().sum()))
    return mean, math.sqrt(squares / (count - 1)) + EPSILON


def moved_too_far(records: list[PolicyRecord], config: PPOConfig) -> bool:
    """Whether the sampled KL from the behavior policy exceeds the limit, over one minibatch."""
    if config.update.target_kl is None or not records:
        return False
    kl = torch.cat([divergence.sampled_kl(record.logp, record.behavior_logp) for record in records])
    sums = collectives.sum_over_ranks(torch.stack([kl.sum(), kl.new_tensor(len(kl))]))
    return bool(sums[0] / sums[1] > config.update.target_kl)
