"""PQN: Q-learning from parallel environments, without a replay buffer or a target network (arXiv:2407.04811).

One pass of the loop is one iteration. Layer normalization keeps the values from diverging; PQN-L and PQN-XL
are the same loop with deeper networks, and Adaptive Batch Scaling (arXiv:2605.21557) is a controller.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.algorithms.control import control_batch
from anybatch.algorithms.ppo.diagnostics import first_bad_value
from anybatch.algorithms.pqn.state import PQNState
from anybatch.algorithms.steps import gradient, minibatches, take_step
from anybatch.config import PQNConfig
from anybatch.equations import returns
from anybatch.kernels.structs import QSamplesStruct, pointer
from anybatch.learning.gradient_steps import AddGradient, by_autograd
from anybatch.runs.run import Run


@dataclass(frozen=True)
class QSamples:
    """An iteration batch ready to be fitted, flattened to [T · N]. `valid` keeps the [T, N] shape."""

    obs: Tensor
    action: Tensor
    target: Tensor
    valid: Tensor


class ValueRecord(NamedTuple):
    """What one microbatch saw, sample by sample [b], without gradients."""

    error: Tensor
    value: Tensor


def train(config: PQNConfig, state: PQNState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is asked for."""
    run.begin(state)
    while state.env_steps < config.total_env_steps and not run.stop.requested:
        learning_rate = state.learner.learning_rate
        state.network.epsilon = state.learner.schedules.epsilon(config, state.env_steps)
        metrics = {"charts/learning_rate": learning_rate, "charts/epsilon": state.network.epsilon}
        with run.timer("rollout"):
            collected, due = state.source.next(state.network, state.batch.num_steps, state.learner.origin)
        assert due is not None  # PQN has no delayed data
        with run.timer("returns"):
            samples = prepare(due, config)
        with run.timer("update"):
            metrics |= improve_values(samples, state, config, learning_rate)
        state.learner.count(collected)
        metrics = state.metrics() | metrics  # of the batch that this iteration had
        metrics |= control_batch(config, state, collected, run)
        run.record(state, collected.episodes, metrics)
    run.save(state)


def prepare(data: Rollout, config: PQNConfig) -> QSamples:
    """Targets once per iteration, from the values that the network had while acting."""
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
    )


def improve_values(
    samples: QSamples, state: PQNState, config: PQNConfig, learning_rate: float
) -> dict[str, float | None]:
    """Fit the values of the taken actions to their targets, in place. Returns the iteration's metrics."""
    steps = state.steps
    steps.begin_iteration(learning_rate, state.plan.hyperparameters)

    add_gradient = value_gradient(samples, state, config.objective.loss_coefficient)
    records: list[ValueRecord] = []
    for _ in range(state.batch.epochs):
        for indices, count in minibatches(samples.valid, state, config):
            records += gradient(config, steps, indices, add_gradient, count)
            take_step(steps, partial(bad_value, samples, state, indices))
    if not records:  # reset steps only
        return {"batch/valid_fraction": 0.0}
    return iteration_metrics(records, samples, state)


def value_gradient(samples: QSamples, state: PQNState, coefficient: float) -> AddGradient[ValueRecord]:
    """The gradient of any microbatch: `coefficient` · (Q(s, a) - target)²."""
    kernel = state.kernel
    if kernel is not None:
        addresses = QSamplesStruct(pointer(samples.obs), pointer(samples.action), pointer(samples.target))
        return lambda part, count: ValueRecord(*kernel.add_gradient(addresses, coefficient, part, count))

    def loss_of(part: Tensor) -> tuple[Tensor, ValueRecord]:
        obs = samples.obs.index_select(0, part).to(state.device)
        action = samples.action.index_select(0, part).to(state.device)
        target = samples.target.index_select(0, part).to(state.device)
        value = state.network.locate(obs).gather(1, action[:, None]).squeeze(1)
        error = (value - target).square()
        return coefficient * error, ValueRecord(error.detach(), value.detach())

    return by_autograd(loss_of)


def iteration_metrics(
    records: list[ValueRecord], samples: QSamples, state: PQNState
) -> dict[str, float | None]:
    """Means over all samples of all gradient steps, read from the device once."""
    means = [torch.cat(column).mean() for column in zip(*records, strict=True)]
    mean_error, mean_value = torch.stack(means).tolist()
    return state.steps.metrics() | {
        "losses/td_loss": mean_error,
        "losses/q_values": mean_value,
        "losses/epochs_done": float(state.batch.epochs),
        "batch/valid_fraction": float(samples.valid.float().mean()),
    }


def bad_value(samples: QSamples, state: PQNState, indices: Tensor) -> str:
    """The first non-finite value of the last minibatch, and where it came from."""
    with torch.no_grad():
        values = state.network.locate(samples.obs[indices].to(state.device)).cpu()
    named = {
        "observation": samples.obs[indices],
        "target": samples.target[indices],
        "action values": values,
    }
    return first_bad_value(named, indices, num_envs=samples.valid.shape[1])
