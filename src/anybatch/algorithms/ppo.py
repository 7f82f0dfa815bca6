"""PPO, decoupled PPO and PPO-EWMA (arXiv:1707.06347, arXiv:2110.00641).

One pass of the loop is one iteration. The three differ in one choice: the policy the update is held near.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anybatch import minibatch, train_state
from anybatch.config import PPOConfig
from anybatch.distributed import collectives
from anybatch.equations import divergence, moments, objectives, returns, schedules
from anybatch.errors import TrainingError
from anybatch.networks.distributions import Distribution, make_distribution
from anybatch.rollout import Rollout
from anybatch.runs.run import Run
from anybatch.staleness import Delayed
from anybatch.train_state import TrainState
from anybatch.update import Record

SKIPS_BEFORE_GIVING_UP = 5
"""Gradient steps in a row that were not numbers before the run ends."""
NORMALIZATION_EPSILON = 1e-8


start = train_state.start


def train(config: PPOConfig, state: TrainState, run: Run) -> None:
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
        run.record(state, fresh.episodes, metrics)
    run.save(state)


def current_learning_rate(config: PPOConfig, state: TrainState) -> float:
    learning_rate = state.hyperparameters.learning_rate
    if config.optimizer.anneal == "none":
        return learning_rate
    return schedules.annealed_learning_rate(learning_rate, state.env_steps, config.total_env_steps)


@dataclass
class Samples:
    """An iteration batch ready to be optimized on, flattened to [T · N]. `valid` keeps the [T, N] shape."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    """What importance weights divide by."""
    proximal_logp: Tensor
    """Of the policy the update is held near, where that is not an average of weights that moves."""
    proximal_location: Tensor
    proximal_log_std: Tensor | None
    advantage: Tensor
    value: Tensor
    value_target: Tensor
    valid: Tensor
    age_iterations: int
    age_gradient_steps: int


def prepare(delayed: Delayed, state: TrainState, config: PPOConfig) -> Samples:
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


def bootstrapped_now(data: Rollout, state: TrainState) -> Tensor:
    """Next values of stale data: of collection time, but for the end, which the current network sees."""
    next_value = data.next_value.clone()
    with torch.no_grad():
        last = state.collector.evaluate(state.network.value, data.obs[-1])
    next_value[-1] = torch.where(data.episode_end[-1], next_value[-1], last)
    return next_value


def seen_by_current_policy(data: Rollout, state: TrainState) -> Rollout:
    """The same data as if the current policy had taken the actions."""
    with torch.no_grad():
        location = state.collector.evaluate(state.network.locate, data.obs[:-1].flatten(0, 1))
        policy = state.network.distribution(location.to(state.device))
        logp = policy.log_prob(data.action.flatten(0, 1).to(state.device)).cpu()
    log_std = None if policy.log_std is None else policy.log_std.detach().cpu().clone()
    return replace(
        data,
        location=location.view_as(data.location),
        behavior_logp=logp.view_as(data.reward),
        log_std=log_std,
    )


def improve_policy(
    samples: Samples, state: TrainState, config: PPOConfig, learning_rate: float
) -> dict[str, float | None]:
    """Optimize policy and value on one iteration batch, in place. Returns the iteration's metrics."""
    state.steps.set_hyperparameters(learning_rate, state.hyperparameters)
    state.steps.counts.norms.clear()
    records: list[Record] = []
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
    samples: Samples, state: TrainState, config: PPOConfig, records: list[Record]
) -> list[Record] | None:
    """One pass over the samples; what each step saw is added to `records`.

    Returns what the last step saw; None where the policy moved too far within the epoch, to stop there.
    """
    steps, plan, update = state.steps, state.plan, config.update
    seen: list[Record] = []
    for indices, count in minibatches(samples, state, config):
        loss = PolicyLoss(samples, state, config, indices, count)
        if due_for_noise(config, steps.counts.taken, count):
            seen = steps.measured_gradient(indices, loss, count)
        else:
            seen = steps.gradient(indices, loss, count)
        records += seen
        if update.target_kl_check == "minibatch" and moved_too_far(seen, config):
            return None
        if steps.apply():
            if state.ewma is not None:
                state.ewma.update(state.hyperparameters.proximal_decay, plan.env_steps_per_gradient_step)
        elif steps.counts.skipped_in_a_row >= SKIPS_BEFORE_GIVING_UP:
            raise TrainingError(bad_value(samples, state, indices))
    return seen


def minibatches(samples: Samples, state: TrainState, config: PPOConfig) -> list[tuple[Tensor, float]]:
    """The gradient steps of one epoch: sample indices of this rank, and their number over all ranks."""
    parts = minibatch.epoch(
        samples.valid,
        state.plan.minibatches_per_epoch,
        config.update.minibatch_of,
        state.minibatch_generator,
    )
    counts = collectives.sum_over_ranks(torch.tensor([float(len(part)) for part in parts])).tolist()
    return [(part, count) for part, count in zip(parts, counts, strict=True) if count > 0]


class PolicyLoss:
    """The loss of each sample of one minibatch, to be minimized."""

    def __init__(self, samples: Samples, state: TrainState, config: PPOConfig, indices: Tensor, count: float):
        self.samples = samples
        self.state = state
        self.config = config
        self.shift, self.scale = 0.0, 1.0
        if config.objective.advantage_normalization == "minibatch":
            self.shift, self.scale = minibatch_moments(samples.advantage[indices], count)

    def __call__(self, part: Tensor) -> tuple[Tensor, Record]:
        samples, device, objective = self.samples, self.state.device, self.config.objective
        obs = samples.obs[part].to(device)
        action = samples.action[part].to(device)
        behavior_logp = samples.behavior_logp[part].to(device)
        advantage = samples.advantage[part].to(device)
        if objective.advantage_normalization == "minibatch":
            advantage = (advantage - self.shift) / self.scale

        policy, value = self.state.network(obs)
        logp = policy.log_prob(action)
        proximal_logp = self.proximal_logp(part, obs, action)
        gain = objectives.decoupled_clip_objective(
            logp,
            proximal_logp,
            behavior_logp,
            advantage,
            clip=math.inf if objective.clip is None else objective.clip,
            max_importance=objective.max_importance,
        )
        if objective.kl_penalty > 0:
            gain = gain - objective.kl_penalty * self.kl(policy, logp, proximal_logp, obs, part)
        value_loss = objectives.value_loss(
            value,
            samples.value_target[part].to(device),
            collected_value=samples.value[part].to(device) if objective.value_clip is not None else None,
            clip=objective.value_clip,
        )
        entropy = policy.entropy()
        loss = objective.value_coefficient * value_loss - gain
        if objective.entropy_coefficient:
            loss = loss - objective.entropy_coefficient * entropy
        kept = (gain, value_loss, entropy, logp, behavior_logp, proximal_logp)
        return loss, tuple(tensor.detach() for tensor in kept)

    def proximal_logp(self, part: Tensor, obs: Tensor, action: Tensor) -> Tensor:
        """Log-probabilities of the taken actions under the policy that the update is held near."""
        if self.state.ewma is None:
            return self.samples.proximal_logp[part].to(self.state.device)
        return self.state.ewma.policy_at(obs).log_prob(action)

    def kl(
        self, policy: Distribution, logp: Tensor, proximal_logp: Tensor, obs: Tensor, part: Tensor
    ) -> Tensor:
        """Divergence from the proximal policy, sample by sample."""
        if self.config.objective.kl == "sampled":
            return divergence.sampled_kl_squared(logp, proximal_logp)
        if self.state.ewma is not None:
            return policy.kl_from(self.state.ewma.policy_at(obs))
        device = self.state.device
        log_std = self.samples.proximal_log_std
        location = self.samples.proximal_location[part].to(device)
        return policy.kl_from(make_distribution(location, None if log_std is None else log_std.to(device)))


def minibatch_moments(advantage: Tensor, count: float) -> tuple[float, float]:
    """Mean and sample standard deviation over one minibatch, all ranks; (0, 1) for a single sample."""
    if count < 2:
        return 0.0, 1.0
    mean = float(collectives.sum_over_ranks(advantage.sum())) / count
    variance = float(collectives.sum_over_ranks((advantage - mean).square().sum())) / (count - 1)
    return mean, math.sqrt(variance) + NORMALIZATION_EPSILON


def due_for_noise(config: PPOConfig, gradient_steps: int, count: float) -> bool:
    every = config.update.noise_scale_every
    return every > 0 and gradient_steps % every == 0 and count >= 2


def moved_too_far(records: list[Record], config: PPOConfig) -> bool:
    """Whether the sampled KL from the behavior policy exceeds the limit, over one minibatch."""
    if config.update.target_kl is None or not records:
        return False
    kl = torch.cat([divergence.sampled_kl(logp, behavior) for *_, logp, behavior, _ in records])
    sums = collectives.sum_over_ranks(torch.stack([kl.sum(), torch.tensor(float(len(kl)))]))
    return bool(sums[0] / sums[1] > config.update.target_kl)


def iteration_metrics(
    records: list[Record], samples: Samples, state: TrainState, config: PPOConfig, epochs_done: int
) -> dict[str, float | None]:
    """Means over all samples of all gradient steps, read from the device once."""
    gain, value_loss, entropy, logp, behavior_logp, proximal_logp = (
        torch.cat(column) for column in zip(*records, strict=True)
    )
    clip = math.inf if config.objective.clip is None else config.objective.clip
    means = torch.stack(
        [
            -gain.mean(),
            value_loss.mean(),
            entropy.mean(),
            divergence.sampled_kl(logp, behavior_logp).mean(),
            divergence.clip_fraction(logp - proximal_logp, clip),
            divergence.sampled_kl_squared(logp, proximal_logp).mean(),
            moments.effective_samples(logp - behavior_logp),
            (logp - behavior_logp > math.log(config.objective.max_importance)).float().mean(),
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
    norms = state.steps.counts.norms
    valid = samples.valid.flatten()
    return metrics | {
        "losses/explained_variance": float(
            returns.explained_variance(samples.value[valid], samples.value_target[valid])
        ),
        "losses/grad_norm": sum(norms) / len(norms) if norms else None,
        "losses/grad_clip_fraction": state.steps.clipped_fraction(),
        "losses/epochs_done": float(epochs_done),
        "batch/valid_fraction": float(samples.valid.float().mean()),
        "staleness/iterations": float(samples.age_iterations),
        "staleness/gradient_steps": float(samples.age_gradient_steps),
    }


def bad_value(samples: Samples, state: TrainState, indices: Tensor) -> str:
    """Which value of the last minibatch is the first that is not a number, and where it came from."""
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
    where = "no single input is: the loss itself overflowed"
    for name, tensor in candidates.items():
        bad = (
            (~torch.isfinite(tensor.float())).flatten(1).any(1)
            if tensor.dim() > 1
            else ~torch.isfinite(tensor)
        )
        if bad.any():
            step, env = divmod(int(indices[bad.nonzero()[0, 0]]), samples.valid.shape[1])
            where = f"the first is the {name} of environment {env} at step {step} of the iteration"
            break
    return (
        f"{SKIPS_BEFORE_GIVING_UP} gradient steps in a row were not numbers; {where}. "
        "The newest checkpoint is from before; a lower learning rate or a gradient clip may help"
    )
