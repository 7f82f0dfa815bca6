"""PQN: Q-learning from parallel environments, without a replay buffer or a target network (arXiv:2407.04811).

One pass of the loop is one iteration. Layer normalization keeps the values from diverging; PQN-L and PQN-XL
are the same loop with deeper networks, and Adaptive Batch Scaling (arXiv:2605.21557) is a controller.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.algorithms.control import control_batch, probe
from anybatch.algorithms.pqn.state import PQNState
from anybatch.algorithms.steps import Minibatch, first_bad_value, gradient, minibatches, steps_ahead
from anybatch.config import PQNConfig
from anybatch.distributed import collectives
from anybatch.equations import returns
from anybatch.kernels.structs import QSamplesStruct, pointer
from anybatch.learning.gradient_steps import AddGradient, by_autograd
from anybatch.learning.staging import on_device, take
from anybatch.runs.run import Run


@dataclass(frozen=True)
class QSamples:
    """This rank's iteration batch, prepared for fitting and flattened to [T · N]."""

    obs: Tensor
    action: Tensor
    target: Tensor
    valid: Tensor
    """[T, N]."""
    all_valid: Tensor
    """[T, N] of all envs of the run."""


class ValueRecord(NamedTuple):
    """Errors and values of one microbatch, sample by sample [b], without gradients."""

    error: Tensor
    value: Tensor


def train(config: PQNConfig, state: PQNState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is requested."""
    run.begin(state)
    while state.env_steps < config.total_env_steps and not run.is_to_stop:
        learning_rate = state.learner.learning_rate
        state.network.epsilon = state.learner.schedules.epsilon(config, state.env_steps)
        metrics = {"charts/learning_rate": learning_rate, "charts/epsilon": state.network.epsilon}
        with run.timer("rollout"):
            due = state.source.next(state.network, state.batch.num_steps, state.learner.origin)
        if due is None:  # the first data has not arrived: nothing to learn from, or to count
            state.learner.iterations += 1
            run.save_if_due(state)
            continue
        before_updates = probe(config, state, due)
        metrics |= age_metrics(due, state)
        with run.timer("returns"):
            samples = prepare(valued_now(due, state), config)
        with run.timer("update"):
            metrics |= improve_values(samples, state, config, learning_rate)
        state.learner.count(due)
        metrics = state.metrics() | metrics  # for the batch of this iteration
        metrics |= control_batch(config, state, before_updates, run)
        run.record(state, due.episodes, metrics)
    run.save(state)


def prepare(data: Rollout, config: PQNConfig) -> QSamples:
    """Targets, computed once per iteration from the network's values while acting, or now."""
    target = returns.q_lambda(
        data.reward * config.objective.reward_scale,
        data.next_value,
        data.terminated,
        data.episode_end,
        discount=config.objective.discount,
        q_lambda=config.objective.q_lambda,
    )
    return QSamples(
        obs=data.obs[:-1].flatten(0, 1),
        action=data.action.flatten(),
        target=target.flatten(),
        valid=data.valid,
        all_valid=collectives.envs_of_all_ranks(data.valid, config.num_envs, axis=1),
    )


def valued_now(data: Rollout, state: PQNState) -> Rollout:
    """Data with next values of the current network, which fresh data already has.

    At the ends of episodes they stay unchanged: the last observation there may not be in the data.
    """
    if state.learner.age_of(data) == 0:
        return data
    with torch.no_grad():
        now = state.learner.over(state.network.value, data.obs[1:].flatten(0, 1)).view_as(data.next_value)
    return replace(data, next_value=torch.where(data.episode_end, data.next_value, now))


def age_metrics(data: Rollout, state: PQNState) -> dict[str, float | None]:
    """The age of the data at the start of an iteration; empty if it is fresh."""
    age = state.learner.age_of(data)
    if age == 0:
        return {}
    return {
        "staleness/iterations": float(age),
        "staleness/gradient_steps": float(state.steps.counts.taken - data.origin.gradient_steps),
    }


def improve_values(
    samples: QSamples, state: PQNState, config: PQNConfig, learning_rate: float
) -> dict[str, float | None]:
    """Fit the values of the chosen actions to their targets, in place. Returns the iteration's metrics."""
    steps, samples = state.steps, on_device(samples, state.device)
    steps.begin_iteration(learning_rate, state.plan.hyperparameters)

    add_gradient = value_gradient(samples, state, config.objective.loss_coefficient)
    records: list[ValueRecord] = []
    for _ in range(state.batch.epochs):
        left = minibatches(samples.all_valid, state, config, device=samples.obs.device)
        while left:
            ahead = steps_ahead(config, steps, left) if state.kernel is not None else 0
            if ahead:
                used, seen = steps_together(samples, left[:ahead], state, config.objective.loss_coefficient)
            else:
                used, seen = 1, gradient(config, steps, left[0], add_gradient)
                steps.apply(partial(bad_value, samples, state, left[0].own))
            records += seen
            left = left[used:]
    if not records:  # reset steps only
        return {"batch/valid_fraction": 0.0}
    return iteration_metrics(records, samples, state)


def steps_together(
    samples: QSamples, batches: list[Minibatch], state: PQNState, coefficient: float
) -> tuple[int, list[ValueRecord]]:
    """Gradient steps in native code, up to the first non-finite gradient.

    Returns how many minibatches were used, and what they saw.
    """
    assert state.kernel is not None
    sizes = [batch.own.numel() for batch in batches]
    weights, schedule = state.steps.schedule(sizes)
    indices = torch.cat([batch.own for batch in batches])
    taken, seen = state.kernel.take_steps(addresses(samples), coefficient, indices, weights, schedule)
    used = state.steps.count_scheduled(
        schedule, taken, lambda place: bad_value(samples, state, batches[place].own)
    )
    return used, [ValueRecord(*seen[:, : sum(sizes[:used])])]


def addresses(samples: QSamples) -> QSamplesStruct:
    """Where the samples are in memory, for native code."""
    return QSamplesStruct(pointer(samples.obs), pointer(samples.action), pointer(samples.target))


def value_gradient(samples: QSamples, state: PQNState, coefficient: float) -> AddGradient[ValueRecord]:
    """The gradient of any microbatch: `coefficient` · (Q(s, a) - target)²."""
    kernel = state.kernel
    if kernel is not None:
        where = addresses(samples)
        return lambda part, count: ValueRecord(*kernel.add_gradient(where, coefficient, part, count))

    def loss_of(part: Tensor) -> tuple[Tensor, ValueRecord]:
        obs, action, target = (
            take(column, part, state.device) for column in (samples.obs, samples.action, samples.target)
        )
        value = state.network.locate(obs).gather(1, action[:, None]).squeeze(1)
        error = (value - target).square()
        return coefficient * error, ValueRecord(error.detach(), value.detach())

    return by_autograd(loss_of)


def iteration_metrics(
    records: list[ValueRecord], samples: QSamples, state: PQNState
) -> dict[str, float | None]:
    """Means over all samples of all gradient steps, read from the device once."""
    columns = [torch.cat(column) for column in zip(*records, strict=True)]
    sums = torch.stack([*(column.sum() for column in columns), columns[0].new_tensor(len(columns[0]))])
    error, value, count = collectives.sum_over_ranks(sums).tolist()
    return state.steps.metrics() | {
        "losses/td_loss": error / count,
        "losses/q_values": value / count,
        "losses/epochs_done": float(state.batch.epochs),
        "batch/valid_fraction": float(samples.all_valid.float().mean()),
    }


def bad_value(samples: QSamples, state: PQNState, indices: Tensor) -> str | None:
    """The first non-finite value of the last minibatch, and where it came from."""
    with torch.no_grad():
        values = state.network.locate(samples.obs[indices].to(state.device))
    named = {
        "observation": samples.obs[indices],
        "target": samples.target[indices],
        "action values": values,
    }
    return first_bad_value(named, indices, state.shard)
