"""PQN: Q-learning from parallel environments, without a replay buffer or a target network (arXiv:2407.04811).

One pass of the loop in `train` is one iteration. Layer normalization keeps the values from diverging; PQN-L
and PQN-XL are the same loop with deeper networks, and Adaptive Batch Scaling (arXiv:2605.21557) is a
controller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from anybatch import networks, seeding
from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.acting.rollout import Rollout, rollout_bytes
from anybatch.acting.sources import validate_queue_memory
from anybatch.algorithms.batch_control import control_batch, probe
from anybatch.algorithms.state import (
    Environments,
    Learner,
    RankState,
    TrainState,
    load_network,
    restore,
    saved_network,
)
from anybatch.backends import Columns, Loss
from anybatch.config import PQNConfig
from anybatch.config.pqn import QLearningConfig
from anybatch.distributed import collectives
from anybatch.envs.protocol import DiscreteActions, EnvSpec
from anybatch.equations import returns
from anybatch.errors import ConfigError
from anybatch.networks.custom import NetworkFactory, custom_q_network
from anybatch.networks.q_network import QNetwork
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
class QSamples(Columns):
    """This rank's iteration batch, prepared for fitting and flattened to [T · N]."""

    COLUMNS: ClassVar = ("obs", "action", "target")

    obs: Tensor
    action: Tensor
    target: Tensor
    valid: Tensor
    """[T, N]."""
    all_valid: Tensor
    """[T, N] of all envs of the run."""


class ValueRecord(NamedTuple):
    """Errors and values of a microbatch, sample by sample [b], without gradients."""

    error: Tensor
    value: Tensor


@dataclass(kw_only=True)
class PQNState(TrainState[QNetwork]):
    """The state that training action values changes."""

    def begin_rollout(self, config: PQNConfig) -> None:
        """Explore as much as the schedule says."""
        self.network.epsilon = self.learner.schedules.epsilon(config, self.env_steps)

    def metrics(self) -> dict[str, float | None]:
        return super().metrics() | {"charts/epsilon": self.network.epsilon}


def train(config: PQNConfig, state: PQNState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is requested."""
    run.begin(state)
    for rollout in state.rollouts(config, run):
        before_updates = probe(config, state, rollout)
        metrics = age_metrics(rollout, state)
        with run.timer("returns"):
            samples = prepare(valued_now(rollout, state), config)
        with run.timer("update"):
            metrics |= update_values(samples, state, config, state.learner.learning_rate)
        state.learner.count(rollout)
        metrics |= state.metrics()  # of the batch that was trained on
        metrics |= control_batch(config, state, before_updates)
        run.record(state, rollout.episodes, metrics)
    run.save(state)


def prepare(rollout: Rollout, config: PQNConfig) -> QSamples:
    """Targets, computed once per iteration from the network's values while acting, or now."""
    target = returns.q_lambda(
        rollout.reward * config.objective.reward_scale,
        rollout.next_value,
        rollout.terminated,
        rollout.episode_end,
        discount=config.objective.discount,
        q_lambda=config.objective.q_lambda,
    )
    return QSamples(
        obs=rollout.obs[:-1].flatten(0, 1),
        action=rollout.action.flatten(),
        target=target.flatten(),
        valid=rollout.valid,
        all_valid=collectives.envs_of_all_ranks(rollout.valid, config.num_envs, axis=1),
    )


def valued_now(rollout: Rollout, state: PQNState) -> Rollout:
    """Data with next values of the current network, which fresh data already has.

    At the ends of episodes they stay unchanged: the last observation there may not be in the data.
    """
    if state.learner.age_of(rollout) == 0:
        return rollout
    now = state.backend.outputs(state.network.value, rollout.obs[1:].flatten(0, 1))
    now = now.view_as(rollout.next_value)
    return replace(rollout, next_value=torch.where(rollout.episode_end, rollout.next_value, now))


def age_metrics(rollout: Rollout, state: PQNState) -> dict[str, float | None]:
    """The age of the data at the start of an iteration; empty if it is fresh."""
    age = state.learner.age_of(rollout)
    if age == 0:
        return {}
    return {
        "staleness/iterations": float(age),
        "staleness/gradient_steps": float(state.steps.counts.taken - rollout.origin.gradient_steps),
    }


def update_values(
    samples: QSamples, state: PQNState, config: PQNConfig, learning_rate: float
) -> dict[str, float | None]:
    """Fit the values of the chosen actions to their targets, in place. Returns the iteration's metrics."""
    samples = samples.on_device(state.device)
    state.backend.begin_iteration(learning_rate, state.plan)
    noise = state.measure_noise(config, samples, samples.all_valid)
    records: list[ValueRecord] = []
    for _ in range(state.batch.epochs):
        records += state.backend.take_steps(samples, state.minibatches(samples, config)).records
    metrics: dict[str, float | None] = {"charts/learning_rate": learning_rate} | noise
    if not records:  # reset steps only
        return metrics | {"batch/valid_fraction": 0.0}
    if not state.learner.wants_metrics:
        return metrics
    return metrics | iteration_metrics(records, samples, state)


def value_loss(
    network: QNetwork, batch: QSamples, objective: QLearningConfig, _average: WeightAverage | None
) -> tuple[Tensor, ValueRecord]:
    """loss_coefficient · (Q(s, a) - target)², sample by sample [b]."""
    value = network.policy_params(batch.obs).gather(1, batch.action[:, None]).squeeze(1)
    error = (value - batch.target).square()
    return objective.loss_coefficient * error, ValueRecord(error.detach(), value.detach())


def possible_causes(network: QNetwork, batch: QSamples) -> dict[str, Tensor]:
    """The numbers behind a loss, of which the first that is not finite is its cause."""
    return {
        "observation": batch.obs,
        "target": batch.target,
        "action values": network.policy_params(batch.obs),
    }


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


def start(
    config: PQNConfig,
    env: Environments,
    *,
    factory: NetworkFactory | None = None,
    was_native: bool | None = None,
) -> PQNState:
    """A fresh state. `factory` makes the user's own network; `was_native` is the backend of a resumed run."""
    validate_queue_memory(config.lag, rollout_bytes(env.spec, config.step_range[1]))
    loss = Loss(
        function=value_loss,
        objective=config.objective,
        record=ValueRecord,
        optimizer=config.optimizer,
        possible_causes=possible_causes,
        is_native=True,
    )
    learner = Learner.fresh(
        config,
        make_network(config, env.spec, factory),
        {"values": loss},
        env.spec,
        encoder=encoder_name(config, env.spec),
        noise_of={"action values": slice(None)},
        was_native=was_native,
    )
    return PQNState(learner=learner, rank=RankState.fresh(config, env, learner))


def make_network(config: PQNConfig, spec: EnvSpec, factory: NetworkFactory | None = None) -> QNetwork:
    """The network: the same weights for the same seed, on every rank."""
    if not isinstance(spec.actions, DiscreteActions):
        raise ConfigError(f"PQN needs one Discrete action, but {spec.env_id} has actions {spec.actions}")
    seed = seeding.torch_generator(config.seed, role="network").initial_seed()
    if factory is not None:
        return custom_q_network(factory, config.network, spec, generator_seed=seed)
    return networks.make_q_network(
        config.network,
        layout=spec.obs_layout,
        num_actions=spec.actions.count,
        generator_seed=seed,
    )


def encoder_name(config: PQNConfig, spec: EnvSpec) -> str:
    """The name of the encoder, which determines the automatic microbatch and the threads of torch."""
    return networks.encoder_name(config.network, layout=spec.obs_layout)


def make_observation_normalizer(config: PQNConfig, spec: EnvSpec) -> ObservationNormalizer | None:
    """PQN normalizes within its network only."""
    del config, spec
    return None


def for_inference(
    config: PQNConfig, spec: EnvSpec, shared: Mapping[str, Any], factory: NetworkFactory | None = None
) -> tuple[QNetwork, None]:
    """The network of a checkpoint; if it explores, as little as at the end of a run."""
    network = make_network(config, spec, factory).to(getattr(torch, config.dtype))
    load_network(network, saved_network(shared))
    network.epsilon = config.exploration.end
    return network, None
