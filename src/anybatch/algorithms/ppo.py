"""PPO, decoupled PPO and PPO-EWMA (arXiv:1707.06347, arXiv:2110.00641).

One pass of the loop is one iteration. The three differ in one choice: the policy the update is held near.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from anybatch import ppo_state
from anybatch.algorithms.batch_control import control_batch
from anybatch.algorithms.diagnostics import bad_value, iteration_metrics
from anybatch.algorithms.samples import PolicyRecord, Samples
from anybatch.algorithms.steps import current_learning_rate, gradient, minibatches, take_step
from anybatch.config import PPOConfig
from anybatch.distributed import collectives
from anybatch.equations import divergence, objectives, returns
from anybatch.networks.distributions import Distribution, kept_log_std, make_distribution
from anybatch.normalizers import EPSILON
from anybatch.ppo_state import PPOState
from anybatch.rollout import Rollout
from anybatch.runs.run import Run
from anybatch.staleness import Delayed

start = ppo_state.start
for_playing = ppo_state.for_playing


def train(config: PPOConfig, state: PPOState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is asked for."""
    run.begin(state)
    while state.env_steps < config.total_env_steps and not run.stop.requested:
        learning_rate = current_learning_rate(config, state)
        with run.timer("rollout"):
            fresh = state.collector.collect(state.network, state.plan.num_steps)
        metrics: dict[str, float | None] = {"charts/learning_rate": learning_rate}
        data = state.queue.exchange(
            fresh, iteration=state.iterations, gradient_steps=state.steps.counts.taken
        )
        if data is not None:  # else the queue is still filling
            with run.timer("returns"):
                samples = prepare(data, state, config)
            with run.timer("update"):
                metrics |= improve_policy(samples, state, config, learning_rate)
        state.iterations += 1
        state.env_steps += int(collectives.sum_over_ranks(torch.tensor(fresh.num_valid)))
        metrics = state.metrics() | metrics  # of the batch that this iteration had
        metrics |= control_batch(config, state, fresh, run, trained=data is not None)
        run.record(state, fresh.episodes, metrics)
    run.save(state)


def prepare(delayed: Delayed, state: PPOState, config: PPOConfig) -> Samples:
    """Rewards, advantages and value targets, computed and normalized once over the whole iteration batch."""
    data = delayed.rollout
    age = state.iterations - delayed.iteration
    reward = data.reward
    if state.reward_normalizer is not None:
        reward = state.reward_normalizer(reward, data.valid, data.episode_end)
    advantage = returns.gae(
        reward,
        data.value,
        data.next_value if age == 0 else bootstrapped_now(data, state),
        data.terminated,
        data.episode_end,
        discount=config.objective.discount,
        gae_lambda=config.objective.gae_lambda,
    )
    value_target = advantage + data.value
    state.advantage_normalizer.update(advantage, data.valid, decay=state.hyperparameters.advantage_decay)
    if config.objective.advantage_normalization == "iteration":
        advantage = state.advantage_normalizer.normalize(advantage)
    proximal = data
    if age > 0 and config.proximal.policy == "iteration_start":
        # Fresh data need no second look: the policy at the start of the iteration is the one that acted.
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
        age_iterations=age,
        age_gradient_steps=state.steps.counts.taken - delayed.gradient_steps,
    )


def bootstrapped_now(data: Rollout, state: PPOState) -> Tensor:
    """Next values of stale data: of collection time, but for the end, which the current network sees."""
    next_value = data.next_value.clone()
    with torch.no_grad():
        last = state.collector.in_chunks(state.network.value, data.obs[-1])
    next_value[-1] = torch.where(data.episode_end[-1], next_value[-1], last)
    return next_value


def seen_by_current_policy(data: Rollout, state: PPOState) -> Rollout:
    """The same data as if the current policy had taken the actions."""
    with torch.no_grad():
        location = state.collector.in_chunks(state.network.locate, data.obs[:-1].flatten(0, 1))
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
    state.steps.begin_iteration(learning_rate, state.hyperparameters)
    records: list[PolicyRecord] = []
    epochs_done, moved = 0, False
    while epochs_done < state.plan.epochs and not moved:
        last = one_epoch(samples, state, config, records)
        if last is None:
            break
        epochs_done += 1
        moved = config.update.target_kl_check == "epoch" and moved_too_far(last, config)
    if not records:  # reset steps only, which happens where an iteration is a step or two
        return {"batch/valid_fraction": 0.0}
    return iteration_metrics(records, samples, state, config, epochs_done)


def one_epoch(
    samples: Samples, state: PPOState, config: PPOConfig, records: list[PolicyRecord]
) -> list[PolicyRecord] | None:
    """One pass over the samples; what each step saw is added to `records`.

    Returns what the last step saw; None where the policy moved too far within the epoch, to stop there.
    """
    steps, plan, update = state.steps, state.plan, config.update
    seen: list[PolicyRecord] = []
    for indices, count in minibatches(samples.valid, state, config):
        loss = PolicyLoss(samples, state, config, indices, count)
        seen = gradient(config, steps, indices, loss, count)
        records += seen
        if update.target_kl_check == "minibatch" and moved_too_far(seen, config):
            return None
        taken = take_step(steps, partial(bad_value, samples, state, indices))
        if taken and state.ewma is not None:
            state.ewma.update(state.hyperparameters.proximal_decay, plan.env_steps_per_gradient_step)
    return seen


class PolicyLoss:
    """The loss of each sample of one minibatch, to be minimized."""

    def __init__(self, samples: Samples, state: PPOState, config: PPOConfig, indices: Tensor, count: float):
        self.samples = samples
        self.state = state
        self.config = config
        self.shift, self.scale = 0.0, 1.0
        if config.objective.advantage_normalization == "minibatch":
            self.shift, self.scale = minibatch_moments(samples.advantage[indices], count)

    def __call__(self, part: Tensor) -> tuple[Tensor, PolicyRecord]:
        samples, objective = self.samples, self.config.objective
        obs = self.take(samples.obs, part)
        action = self.take(samples.action, part)
        behavior_logp = self.take(samples.behavior_logp, part)
        advantage = self.take(samples.advantage, part)
        if objective.advantage_normalization == "minibatch":
            advantage = (advantage - self.shift) / self.scale

        # Before the network: its temporaries would lie on top of a graph that is kept, and cost page faults.
        proximal_logp = self.proximal_logp(part, obs, action)
        policy, value = self.state.network(obs)
        logp = policy.log_prob(action)
        gain = objectives.decoupled_clip_objective(
            logp,
            proximal_logp,
            behavior_logp,
            advantage,
            clip=math.inf if objective.clip is None else objective.clip,
            max_importance=objective.max_importance,
        )
        if objective.kl_penalty > 0:
            kl = self.kl(policy, logp, proximal_logp, obs, part)
            gain = objectives.penalized(gain, kl, kl_penalty=objective.kl_penalty)
        value_loss = objectives.value_loss(
            value,
            self.take(samples.value_target, part),
            collected_value=self.take(samples.value, part) if objective.value_clip is not None else None,
            clip=objective.value_clip,
        )
        entropy = policy.entropy()
        loss = objective.value_coefficient * value_loss - gain
        if objective.entropy_coefficient:
            loss = loss - objective.entropy_coefficient * entropy
        kept = (gain, value_loss, entropy, logp, behavior_logp, proximal_logp)
        return loss, PolicyRecord(*(tensor.detach() for tensor in kept))

    def proximal_logp(self, part: Tensor, obs: Tensor, action: Tensor) -> Tensor:
        """Log-probabilities of the taken actions under the policy that the update is held near."""
        if self.state.ewma is None:
            return self.take(self.samples.proximal_logp, part)
        return self.state.ewma.policy_at(obs).log_prob(action)

    def kl(
        self, policy: Distribution, logp: Tensor, proximal_logp: Tensor, obs: Tensor, part: Tensor
    ) -> Tensor:
        """Divergence from the proximal policy, sample by sample."""
        if self.config.objective.kl == "sampled":
            return divergence.sampled_kl_squared(logp, proximal_logp)
        if self.state.ewma is not None:
            return policy.kl_from(self.state.ewma.policy_at(obs))
        location = self.take(self.samples.proximal_location, part)
        counts = self.state.network.action_counts
        return policy.kl_from(make_distribution(location, self.samples.proximal_log_std, counts))

    def take(self, tensor: Tensor, part: Tensor) -> Tensor:
        """The samples of a microbatch, where the network is. `index_select` costs half of indexing."""
        return tensor.index_select(0, part).to(self.state.device)


def minibatch_moments(advantage: Tensor, count: float) -> tuple[float, float]:
    """Mean and sample standard deviation over one minibatch, all ranks; (0, 1) for a single sample."""
    if count < 2:
        return 0.0, 1.0
    mean = float(collectives.sum_over_ranks(advantage.sum())) / count
    variance = float(collectives.sum_over_ranks((advantage - mean).square().sum())) / (count - 1)
    return mean, math.sqrt(variance) + EPSILON


def moved_too_far(records: list[PolicyRecord], config: PPOConfig) -> bool:
    """Whether the sampled KL from the behavior policy exceeds the limit, over one minibatch."""
    if config.update.target_kl is None or not records:
        return False
    kl = torch.cat([divergence.sampled_kl(record.logp, record.behavior_logp) for record in records])
    sums = collectives.sum_over_ranks(torch.stack([kl.sum(), kl.new_tensor(len(kl))]))
    return bool(sums[0] / sums[1] > config.update.target_kl)
