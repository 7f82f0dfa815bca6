"""PPG and PPG-EWMA (arXiv:2009.04416, arXiv:2110.00641).

A phase is `policy_iterations` of PPO, then an auxiliary phase: the data of the whole phase trains the value
function and, through an auxiliary head, the policy's encoder, while the policy's outputs are kept unchanged.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from anybatch import seeding
from anybatch.acting.rollout import rollout_bytes
from anybatch.acting.sources import rollouts_in_memory
from anybatch.algorithms import ppo, ppo_state
from anybatch.algorithms.batch_control import control_batch
from anybatch.algorithms.phase_data import PhaseData, segment_name
from anybatch.algorithms.ppo_state import PPOState, encoder_name, for_inference, make_observation_normalizer
from anybatch.algorithms.state import Environments
from anybatch.backends import Columns, Loss, Minibatch, minibatches
from anybatch.config import ObjectiveConfig, PPGConfig
from anybatch.distributed import collectives
from anybatch.envs.protocol import EnvSpec
from anybatch.equations import objectives
from anybatch.errors import ConfigError
from anybatch.machine import available_bytes
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.custom import NetworkFactory
from anybatch.networks.distributions import kept_log_std, make_distribution
from anybatch.networks.weight_average import WeightAverage
from anybatch.runs import metrics as metric_names
from anybatch.runs.run import Run
from anybatch.storage.checkpoint import Snapshot
from anybatch.storage.state_fit import validate_fit
from anybatch.text import readable

logger = logging.getLogger(__name__)

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

AUXILIARY_VALUE_COEFFICIENT = 0.5
"""Weight of both squared value errors in the auxiliary phase, as in the paper's code."""


class ValueRecord(NamedTuple):
    """Losses of a microbatch of the value function's own epochs, sample by sample [b], without gradients."""

    value_loss: Tensor


class AuxiliaryRecord(NamedTuple):
    """Losses of a microbatch of the auxiliary phase, sample by sample [b], without gradients."""

    clone_kl: Tensor
    auxiliary_value_loss: Tensor
    value_loss: Tensor


@dataclass
class AuxiliarySamples(Columns):
    """This rank's data of a phase, flattened to [S · T · N], with the outputs of the frozen policy."""

    COLUMNS: ClassVar = ("obs", "value_target", "frozen_params")
    SHARED: ClassVar = ("frozen_log_std",)

    obs: Tensor
    value_target: Tensor
    frozen_params: Tensor
    """[S·T·N, A] logits or means."""
    frozen_log_std: Tensor | None


@dataclass
class AuxiliaryProgress:
    """The current position in an auxiliary phase, and the frozen policy."""

    frozen_params: Tensor
    """[S·T·N, A] logits or means."""
    frozen_log_std: Tensor | None
    epoch: int = 0
    minibatch: int = 0
    """The next minibatch of this epoch."""
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Sums of the losses over all samples so far."""
    samples: int = 0

    def add(self, records: list[AuxiliaryRecord], count: float) -> None:
        """Count the losses of one gradient step, which has `count` samples over all ranks."""
        columns = [torch.cat(column) for column in zip(*records, strict=True)]
        sums = torch.stack([column.sum() for column in columns]).cpu().double()
        added = collectives.sum_over_ranks(sums).tolist()
        self.sums = [total + here for total, here in zip(self.sums, added, strict=True)]
        self.samples += int(count)

    def metrics(self) -> dict[str, float]:
        means = (total / max(self.samples, 1) for total in self.sums)
        return {f"auxiliary/{name}": mean for name, mean in zip(AuxiliaryRecord._fields, means, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """Everything except the policy's outputs, which are a segment."""
        return {
            "log_std": self.frozen_log_std,
            "epoch": self.epoch,
            "minibatch": self.minibatch,
            "sums": list(self.sums),
            "samples": self.samples,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], frozen_params: Tensor) -> "AuxiliaryProgress":
        return cls(
            frozen_params=frozen_params,
            frozen_log_std=state["log_std"],
            epoch=state["epoch"],
            minibatch=state["minibatch"],
            sums=list(state["sums"]),
            samples=state["samples"],
        )


@dataclass(kw_only=True)
class PPGState(PPOState):
    """PPO's state, the data of the phase, and the position in the auxiliary phase."""

    data: PhaseData
    progress: AuxiliaryProgress | None = None
    phases: int = 0
    auxiliary_metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Metrics of an auxiliary phase that no row of the log contains yet."""

    def gradient_steps(self, config: PPGConfig) -> int:
        own = config.phase.value_epochs if "value" in self.backend.losses else 0
        return (self.batch.epochs + own) * self.batch.minibatches_per_epoch

    def leave_phase(self) -> None:
        """Forget the data of this phase, so that a new one begins.

        After auxiliary steps the proximal policy is reset, since they move the weights a lot
        (arXiv:2110.00641, App. A).
        """
        if self.progress is not None and self.backend.average is not None:
            self.backend.average.reset()
        self.data.clear()
        self.progress = None

    def take_auxiliary_metrics(self) -> dict[str, float]:
        taken, self.auxiliary_metrics = self.auxiliary_metrics, {}
        return taken

    def metrics(self) -> dict[str, float | None]:
        return super().metrics() | {"auxiliary/phases": self.phases}

    def snapshot(self) -> Snapshot | None:
        """None within a phase whose data is not saved, from which a checkpoint could not continue."""
        if not self.data.can_be_saved:
            return None
        whole = super().snapshot()
        assert whole is not None
        local = {"phase_iterations": list(self.data.iterations)}
        segments = {**whole.segments, **self.data.segments()}
        if self.progress is not None:
            *_, num_envs = self.data.valid.shape
            policy_params = self.progress.frozen_params
            segments[frozen_policy_name(self.iterations)] = {
                "policy_params": policy_params.view(-1, num_envs, policy_params.shape[1])
            }
        return replace(whole, local=whole.local | local, segments=segments)

    def shared(self) -> dict[str, Any]:
        """The part that all ranks share."""
        losses = self.backend.losses
        phase: dict[str, Any] = {
            "phases": self.phases,
            "auxiliary_steps": losses["auxiliary"].state_dict(),
            "value_steps": losses["value"].state_dict() if "value" in losses else None,
            "progress": self.progress.state_dict() if self.progress else None,
            "auxiliary_metrics": self.auxiliary_metrics,
        }
        return super().shared() | {"phase": phase}


def train(config: PPGConfig, state: PPGState, run: Run) -> None:
    """Train `state` in place until it has seen `total_env_steps`, or a stop is requested."""
    run.begin(state)
    while state.should_continue(config, run):
        if state.data.is_full:
            with run.timer("auxiliary"), state.backend.torch_threads():
                auxiliary_phase(config, state, run)
        else:
            policy_phase(config, state, run)
    finish(config, state, run)


def policy_phase(config: PPGConfig, state: PPGState, run: Run) -> None:
    """Iterations of PPO until the phase is complete, or the run is over."""
    for rollout in state.rollouts(config, run):
        with run.timer("returns"):
            samples = ppo.prepare(rollout, state, config)
        with run.timer("update"):
            metrics = policy_iteration(samples, state, config, state.learner.learning_rate)
        state.data.add(
            state.iterations, obs=samples.obs, value_target=samples.value_target, valid=samples.valid
        )
        state.learner.count(rollout)
        metrics |= state.metrics() | state.take_auxiliary_metrics()  # of the batch that was trained on
        control_batch(config, state, None)  # the minibatch limit may move
        run.record(state, rollout.episodes, metrics)
        if state.data.is_full:
            return


def finish(config: PPGConfig, state: PPGState, run: Run) -> None:
    """Save the end of the run; if phases are not saved, only its last weights or the last phase's end."""
    if not state.data.can_be_saved:
        if state.env_steps >= config.total_env_steps:
            state.leave_phase()
            logger.info("phase.save-data is off: a resume of this run would start a new phase.")
        else:
            logger.info("phase.save-data is off: the newest checkpoint is from before this phase.")
    run.save(state)


def policy_iteration(
    samples: ppo.Samples, state: PPGState, config: PPGConfig, learning_rate: float
) -> dict[str, float | None]:
    """PPO on one iteration batch. If its epochs differ, the value has its own optimizer."""
    samples = samples.on_device(state.device)
    metrics = ppo.update_policy(samples, state, config, learning_rate)
    if "value" in state.backend.losses:
        metrics |= update_value(samples, state, config, learning_rate)
    return metrics


def update_value(
    samples: ppo.Samples, state: PPGState, config: PPGConfig, learning_rate: float
) -> dict[str, float | None]:
    """`value_epochs` passes of the value loss alone. Returns its mean over all samples."""
    state.backend.begin_iteration(learning_rate, state.plan, loss="value")
    records: list[ValueRecord] = []
    for _ in range(config.phase.value_epochs):
        epoch = state.minibatches(samples, config)
        records += state.backend.take_steps(samples, epoch, loss="value").records
    if not records:  # reset steps only
        return {}
    seen = torch.cat([record.value_loss for record in records])
    total, number = collectives.sum_over_ranks(torch.stack([seen.sum(), seen.new_tensor(len(seen))])).tolist()
    return {"losses/value_loss": total / number}


def value_loss(
    network: ActorCritic, batch: ppo.Samples, objective: ObjectiveConfig, _average: WeightAverage | None
) -> tuple[Tensor, ValueRecord]:
    """The loss of the value function's own epochs."""
    error = objectives.value_loss(
        network.value(batch.obs),
        batch.value_target,
        collected_value=batch.value,
        clip=objective.value_clip,
    )
    return objective.value_coefficient * error, ValueRecord(error.detach())


def auxiliary_phase(config: PPGConfig, state: PPGState, run: Run) -> None:
    """All auxiliary epochs on the phase's data, then a new phase; returns early if a stop is requested.

    The position is part of the state, so that a checkpoint can be taken, and a run resumed, in the middle.
    """
    phase = state.plan.phase
    assert phase is not None
    if state.progress is None:
        state.progress = AuxiliaryProgress(
            frozen_params=frozen_policy(state), frozen_log_std=kept_log_std(state.network.policy.log_std)
        )
    progress = state.progress
    state.backend.losses["auxiliary"].learning_rate = phase.auxiliary_learning_rate
    while progress.epoch < config.phase.auxiliary_epochs:
        parts = auxiliary_minibatches(state, config)
        while progress.minibatch < len(parts):
            auxiliary_step(parts[progress.minibatch], state)
            progress.minibatch += 1
            done = progress.epoch + progress.minibatch / len(parts)
            run.display.update(state.env_steps, {"auxiliary/epochs": done})
            run.save_if_due(state)
            if run.should_stop:
                return
        progress.epoch, progress.minibatch = progress.epoch + 1, 0
    begin_phase(state)
    run.display.update(state.env_steps, {"auxiliary/epochs": None})
    if config.phase.save_data:
        run.save_if_due(state)
    else:  # the only points at which the state can be saved
        run.save(state)


def begin_phase(state: PPGState) -> None:
    """Begin the next phase. The metrics of the auxiliary phase go into the next row of the log."""
    assert state.progress is not None
    state.auxiliary_metrics = state.progress.metrics()
    state.backend.losses["auxiliary"].counts.norms.clear()
    state.phases += 1
    state.leave_phase()


def frozen_policy(state: PPGState) -> Tensor:
    """Outputs of the policy on all of the phase's observations, before any auxiliary step. [S·T·N, A]."""
    return state.backend.outputs(state.network.policy_params, state.data.flat_obs)


def auxiliary_minibatches(state: PPGState, config: PPGConfig) -> list[Minibatch]:
    """The epoch's minibatches, one draw over all ranks' data. The order depends only on phase and epoch."""
    phase, progress = state.plan.phase, state.progress
    assert phase is not None and progress is not None
    generator = seeding.torch_generator(config.seed, role="auxiliary", draw=(state.phases, progress.epoch))
    valid = collectives.envs_of_all_ranks(state.data.valid, state.batch.num_envs, axis=2)
    parts = minibatches.sequence_epoch(valid, phase.auxiliary_minibatches, generator, config.update.draw)
    return [Minibatch.of(part, state.shard, state.data.flat_obs.device) for part in parts]


def auxiliary_step(batch: Minibatch, state: PPGState) -> None:
    """One gradient step of the auxiliary loss."""
    if batch.count == 0:
        return
    progress, data = state.progress, state.data
    assert progress is not None
    samples = AuxiliarySamples(
        obs=data.flat_obs,
        value_target=data.flat_value_target,
        frozen_params=progress.frozen_params,
        frozen_log_std=progress.frozen_log_std,
    )
    progress.add(state.backend.take_steps(samples, [batch], loss="auxiliary").records, batch.count)


def auxiliary_loss(
    network: ActorCritic, batch: AuxiliarySamples, clone_coefficient: float, _average: WeightAverage | None
) -> tuple[Tensor, AuxiliaryRecord]:
    """β_clone KL(π_frozen ‖ π) + ½ (V_auxiliary - target)² + ½ (V - target)²."""
    policy, auxiliary_value, value = network.auxiliary(batch.obs)
    frozen = make_distribution(batch.frozen_params, batch.frozen_log_std, network.action_counts)
    clone = policy.kl_from(frozen)
    auxiliary_error = objectives.value_loss(auxiliary_value, batch.value_target)
    error = objectives.value_loss(value, batch.value_target)
    loss = clone_coefficient * clone + AUXILIARY_VALUE_COEFFICIENT * (auxiliary_error + error)
    return loss, AuxiliaryRecord(clone.detach(), auxiliary_error.detach(), error.detach())


def start(
    config: PPGConfig,
    env: Environments,
    *,
    factory: NetworkFactory | None = None,
    was_native: bool | None = None,
) -> PPGState:
    """A fresh state. `factory` makes the user's own network; `was_native` is the backend of a resumed run."""
    policy = ppo_state.start(
        config, env, losses_of(config), factory=factory, was_native=was_native, auxiliary=True
    )
    phase, spec = policy.plan.phase, env.spec
    assert phase is not None
    validate_phase_memory(
        phase.policy_iterations,
        config.phase.policy_iterations,
        phase_bytes=phase.policy_iterations * config.num_steps * spec.num_envs * spec.obs_bytes,
        rollouts_bytes=rollouts_in_memory(config.lag) * rollout_bytes(spec, config.num_steps),
    )
    data = PhaseData(
        phase.policy_iterations,
        config.num_steps,
        spec,
        dtype=getattr(torch, config.dtype),
        is_saved=config.phase.save_data,
    )
    return PPGState(data=data, **{part.name: getattr(policy, part.name) for part in fields(policy)})


def losses_of(config: PPGConfig) -> dict[str, Loss]:
    """The policy's loss, the auxiliary one and, if its epochs differ from the policy's, the value's own."""
    objective, losses = config.objective, dict[str, Loss]()
    if config.phase.value_epochs != config.update.epochs:
        losses["value"] = Loss(
            function=value_loss, objective=objective, record=ValueRecord, optimizer=config.optimizer
        )
        objective = replace(objective, value_coefficient=0.0)
    losses["auxiliary"] = Loss(
        function=auxiliary_loss,
        objective=config.phase.clone_coefficient,
        record=AuxiliaryRecord,
        optimizer=replace(config.optimizer, name="adam"),
    )
    return {"policy": ppo.loss_of(config, objective), **losses}


def make_network(config: PPGConfig, spec: EnvSpec, factory: NetworkFactory | None = None) -> ActorCritic:
    """The network with its auxiliary head."""
    return ppo_state.make_network(config, spec, factory, auxiliary=True)


def restore(state: PPGState, saved: Snapshot, config: PPGConfig) -> None:
    """Continue from `saved`; a phase that does not fit this run's batch is restarted."""
    ppo_state.restore(state, saved, config)
    phase: dict[str, Any] = saved.shared["phase"]
    state.phases = phase["phases"]
    state.auxiliary_metrics = dict(phase["auxiliary_metrics"])
    metric_names.check(state.auxiliary_metrics)
    state.backend.losses["auxiliary"].load_state_dict(phase["auxiliary_steps"])
    if "value" in state.backend.losses and phase["value_steps"] is not None:
        state.backend.losses["value"].load_state_dict(phase["value_steps"])
    iterations, progress = saved.local["phase_iterations"], phase["progress"]
    if iterations and not state.data.fits(
        saved.segments[segment_name(iterations[0])]["valid"], len(iterations), is_whole=progress is not None
    ):
        logger.info("The phase in progress does not fit the batch of this run: a new phase is started.")
        if progress is not None and state.backend.average is not None:
            state.backend.average.reset()  # as after every auxiliary phase, complete or not
        return
    for iteration in iterations:
        state.data.restore(iteration, saved.segments[segment_name(iteration)])
    if progress is not None:
        state.progress = restored_progress(state, progress, saved.segments)


def restored_progress(
    state: PPGState, saved: dict[str, Any], segments: Mapping[str, dict[str, Tensor]]
) -> AuxiliaryProgress:
    """The position in an auxiliary phase and its frozen policy, from checked parts."""
    like = state.source.example(1)
    *_, num_envs = state.data.valid.shape
    rows = state.data.valid.numel() // num_envs
    policy_params = torch.empty(rows, num_envs, *like.policy_params.shape[2:], device="meta")
    name = frozen_policy_name(state.iterations)
    frozen = segments[name]
    validate_fit(frozen, {"policy_params": policy_params}, name, finite=False)
    position = AuxiliaryProgress(policy_params, like.log_std).state_dict()
    validate_fit(saved, position, "shared/phase/progress")
    return AuxiliaryProgress.from_state_dict(saved, frozen["policy_params"].flatten(0, 1))


def frozen_policy_name(iteration: int) -> str:
    """The name of the file with the policy's outputs before the auxiliary phase after an iteration."""
    return f"policy_{iteration:09d}"


def validate_phase_memory(
    iterations: int, tuned_iterations: int, *, phase_bytes: int, rollouts_bytes: int
) -> None:
    """Refuse a phase that does not fit into memory, which would end the run after hours."""
    there = available_bytes()
    if phase_bytes + rollouts_bytes <= there:
        return
    most = int(tuned_iterations * (there - rollouts_bytes) / phase_bytes)
    allowed = f"can be at most {most:,}" if most > 0 else "is too much even at 1"
    raise ConfigError(
        f"a phase of {iterations:,} iterations keeps {readable(phase_bytes)} of observations in memory, "
        f"in addition to {readable(rollouts_bytes)} of rollouts; {readable(there)} are available. "
        f"phase.policy-iterations, {tuned_iterations:,} at the tuned batch, {allowed}"
    )
