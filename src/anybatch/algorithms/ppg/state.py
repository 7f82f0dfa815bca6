"""The state of PPG: PPO's state, the data of the phase, and the position in the auxiliary phase."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anybatch.acting.rollout import rollout_bytes
from anybatch.acting.sources import rollouts_in_memory
from anybatch.algorithms.ppg.phase_data import PhaseData, segment_name
from anybatch.algorithms.ppo import state as ppo_state
from anybatch.algorithms.ppo.state import PPOState
from anybatch.algorithms.state import Environments, Learner, RankState, TrainState
from anybatch.config import OptimizerConfig, PPGConfig
from anybatch.distributed import collectives
from anybatch.errors import ConfigError
from anybatch.kernels.policy import PolicyKernel
from anybatch.learning.gradient_steps import GradientSteps
from anybatch.machine import available_bytes, readable
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.own import NetworkFactory
from anybatch.runs import metrics
from anybatch.runs.checkpoint import Snapshot
from anybatch.runs.gathering import FROZEN_POLICY
from anybatch.runs.state_fit import refuse_unlike


class AuxiliaryRecord(NamedTuple):
    """Losses of one microbatch of the auxiliary phase, sample by sample [b], without gradients."""

    clone_kl: Tensor
    auxiliary_value_loss: Tensor
    value_loss: Tensor


@dataclass
class AuxiliaryProgress:
    """The current position in an auxiliary phase, and the frozen policy."""

    frozen_location: Tensor
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

    def means(self) -> list[float]:
        return [total / max(self.samples, 1) for total in self.sums]

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
    def from_state_dict(cls, state: dict[str, Any], frozen_location: Tensor) -> "AuxiliaryProgress":
        return cls(
            frozen_location=frozen_location,
            frozen_log_std=state["log_std"],
            epoch=state["epoch"],
            minibatch=state["minibatch"],
            sums=list(state["sums"]),
            samples=state["samples"],
        )


@dataclass(kw_only=True)
class PPGState(TrainState[ActorCritic]):
    """The state that training with phases changes."""

    policy: PPOState
    """The whole state of PPO: policy iterations are PPO's."""
    data: PhaseData
    auxiliary_steps: GradientSteps
    value_steps: GradientSteps | None
    """The value function's own optimizer, if its epochs differ from the policy's."""
    progress: AuxiliaryProgress | None = None
    phases: int = 0
    auxiliary_metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Metrics of an auxiliary phase that no row of the log contains yet."""

    @property
    def learner(self) -> Learner[ActorCritic]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.policy.learner

    @property
    def kernel(self) -> PolicyKernel | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.policy.kernel

    @property
    def rank(self) -> RankState:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.policy.rank

    def leave_phase(self) -> None:
        """Forget the data of this phase, so that a new one begins.

        After auxiliary steps the proximal policy is reset, since they move the weights a lot
        (arXiv:2110.00641, App. A).
        """
        if self.progress is not None and self.policy.proximal_network is not None:
            self.policy.proximal_network.reset()
        self.data.clear()
        self.progress = None

    def take_auxiliary_metrics(self) -> dict[str, float]:
        taken, self.auxiliary_metrics = self.auxiliary_metrics, {}
        return taken

    def metrics(self) -> dict[str, float | None]:
        return self.policy.metrics() | {"auxiliary/phases": self.phases}

    def snapshot(self) -> Snapshot | None:
        """None within a phase whose data is not saved, from which a checkpoint could not continue."""
        if not self.data.can_be_saved:
            return None
        policy = self.policy.snapshot()
        own = {"phase_iterations": list(self.data.iterations)}
        segments = {**policy.segments, **self.data.segments()}
        if self.progress is not None:
            *_, num_envs = self.data.valid.shape
            location = self.progress.frozen_location
            segments[frozen_policy_name(self.iterations)] = {
                "location": location.view(-1, num_envs, location.shape[1])
            }
        return Snapshot(shared=self.shared(), own=policy.own | own, segments=segments)

    def shared(self) -> dict[str, Any]:
        """The part that all ranks share."""
        phase: dict[str, Any] = {
            "phases": self.phases,
            "auxiliary_steps": self.auxiliary_steps.state_dict(),
            "value_steps": self.value_steps.state_dict() if self.value_steps else None,
            "progress": self.progress.state_dict() if self.progress else None,
            "auxiliary_metrics": self.auxiliary_metrics,
        }
        return self.policy.shared() | {"phase": phase}


def frozen_policy_name(iteration: int) -> str:
    """The name of the file with the policy's outputs before the auxiliary phase after an iteration."""
    return f"{FROZEN_POLICY}{iteration:09d}"


def start(
    config: PPGConfig,
    env: Environments,
    *,
    say: Callable[[str], None],
    factory: NetworkFactory | None = None,
) -> PPGState:
    """A fresh state. `factory` makes the user's own network."""
    policy = ppo_state.start(config, env, say=say, factory=factory, auxiliary=True)
    phase, spec = policy.plan.phase, env.spec
    assert phase is not None
    refuse_phase_beyond_memory(
        phase.policy_iterations,
        config.phase.policy_iterations,
        phase_bytes=phase.policy_iterations * config.num_steps * spec.num_envs * spec.obs_bytes,
        rollouts_bytes=rollouts_in_memory(config.lag) * rollout_bytes(spec, config.num_steps),
    )

    def more_steps(optimizer: OptimizerConfig) -> GradientSteps:
        return GradientSteps(
            policy.steps.flat,
            optimizer,
            microbatch=policy.batch.microbatch,
            noise_part=policy.steps.noise_part,
            say=say,
            networks=policy.steps.networks,
        )

    separate_value = config.phase.value_epochs != config.update.epochs
    return PPGState(
        policy=policy,
        data=PhaseData(
            phase.policy_iterations,
            config.num_steps,
            spec,
            dtype=getattr(torch, config.dtype),
            is_saved=config.phase.save_data,
        ),
        auxiliary_steps=more_steps(replace(config.optimizer, name="adam")),
        value_steps=more_steps(config.optimizer) if separate_value else None,
    )


def restore(state: PPGState, saved: Snapshot, config: PPGConfig, say: Callable[[str], None]) -> None:
    """Continue from `saved`; a phase that does not fit this run's batch is restarted."""
    ppo_state.restore(state.policy, saved, config, say)
    phase: dict[str, Any] = saved.shared["phase"]
    state.phases = phase["phases"]
    state.auxiliary_metrics = dict(phase["auxiliary_metrics"])
    metrics.check(state.auxiliary_metrics)
    state.auxiliary_steps.load_state_dict(phase["auxiliary_steps"])
    if state.value_steps is not None and phase["value_steps"] is not None:
        state.value_steps.load_state_dict(phase["value_steps"])
    iterations, progress = saved.own["phase_iterations"], phase["progress"]
    if iterations and not state.data.fits(
        saved.segments[segment_name(iterations[0])]["valid"], len(iterations), is_whole=progress is not None
    ):
        say("The phase in progress does not fit the batch of this run: a new phase is started.")
        if progress is not None and state.policy.proximal_network is not None:
            state.policy.proximal_network.reset()  # as after every auxiliary phase, complete or not
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
    location = torch.empty(rows, num_envs, *like.location.shape[2:], device="meta")
    name = frozen_policy_name(state.iterations)
    frozen = segments[name]
    refuse_unlike(frozen, {"location": location}, name, finite=False)
    position = AuxiliaryProgress(location, like.log_std).state_dict()
    refuse_unlike(saved, position, "shared/phase/progress")
    return AuxiliaryProgress.from_state_dict(saved, frozen["location"].flatten(0, 1))


def refuse_phase_beyond_memory(
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
