"""The state of PPG: what PPO's has, the data of the phase, and where the auxiliary phase stands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anybatch.acting.rollout import observation_dtype, rollout_bytes
from anybatch.acting.sources import rollouts_in_memory
from anybatch.algorithms.ppo import state as ppo_state
from anybatch.algorithms.ppo.state import PPOState
from anybatch.config import OptimizerConfig, PPGConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError
from anybatch.learning.updater import GradientSteps
from anybatch.machine import available_bytes, readable


class PhaseData:
    """Observations, value targets and masks of a phase's iterations, on the CPU. Images stay uint8."""

    def __init__(self, policy_iterations: int, num_steps: int, spec: EnvSpec):
        shape = (policy_iterations, num_steps, spec.num_envs)
        self.obs = torch.empty(*shape, *spec.obs_shape, dtype=observation_dtype(spec))
        self.value_target = torch.empty(shape)
        self.valid = torch.empty(shape, dtype=torch.bool)
        self.iterations: list[int] = []
        """Which iterations of the run are in it, in their order."""

    @property
    def is_full(self) -> bool:
        return len(self.iterations) == len(self.obs)

    @property
    def flat_obs(self) -> Tensor:
        return self.obs.flatten(0, 2)

    @property
    def flat_value_target(self) -> Tensor:
        return self.value_target.flatten()

    def add(self, iteration: int, *, obs: Tensor, value_target: Tensor, valid: Tensor) -> None:
        """Keep one iteration, flattened to [T · N] as it was optimized on; `valid` is [T, N]."""
        position = len(self.iterations)
        self.obs[position] = obs.view_as(self.obs[position])
        self.value_target[position] = value_target.view_as(valid)
        self.valid[position] = valid
        self.iterations.append(iteration)

    def clear(self) -> None:
        self.iterations.clear()

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return {
            segment_name(iteration): {
                "obs": self.obs[position],
                "value_target": self.value_target[position],
                "valid": self.valid[position],
            }
            for position, iteration in enumerate(self.iterations)
        }


def segment_name(iteration: int) -> str:
    """Of the file that keeps an iteration's data for the auxiliary phase."""
    return f"phase_{iteration:09d}"


def frozen_policy_name(iteration: int) -> str:
    """Of the file with the policy's outputs before the auxiliary phase that follows so many iterations."""
    return f"policy_{iteration:09d}"


class AuxiliaryRecord(NamedTuple):
    """What one microbatch of the auxiliary phase saw, sample by sample [b], without gradients."""

    clone_kl: Tensor
    auxiliary_value_loss: Tensor
    value_loss: Tensor


@dataclass
class AuxiliaryProgress:
    """Where an auxiliary phase stands, and the policy that it must not move."""

    frozen_location: Tensor
    """[S·T·N, A] logits or means."""
    frozen_log_std: Tensor | None
    epoch: int = 0
    minibatch: int = 0
    """The next one of this epoch."""
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    samples: int = 0

    def add(self, records: list[AuxiliaryRecord]) -> None:
        """Count the losses of one gradient step."""
        columns = [torch.cat(column) for column in zip(*records, strict=True)]
        self.sums = [total + float(column.sum()) for total, column in zip(self.sums, columns, strict=True)]
        self.samples += len(columns[0])

    def means(self) -> list[float]:
        return [total / max(self.samples, 1) for total in self.sums]

    def state_dict(self) -> dict[str, Any]:
        """All but the policy's outputs, which are a segment."""
        return {
            "log_std": self.frozen_log_std,
            "epoch": self.epoch,
            "minibatch": self.minibatch,
            "sums": self.sums,
            "samples": self.samples,
        }


@dataclass(kw_only=True)
class PPGState(PPOState):
    """What training with phases changes."""

    data: PhaseData
    auxiliary_steps: GradientSteps
    value_steps: GradientSteps | None
    saves_data: bool
    progress: AuxiliaryProgress | None = None
    phases: int = 0
    auxiliary_metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Of an auxiliary phase that no row of the log has told yet."""

    @property
    def can_be_saved(self) -> bool:
        """Without the phase's data, a checkpoint is worth something only between two phases."""
        return self.saves_data or not self.data.iterations

    def take_auxiliary_metrics(self) -> dict[str, float]:
        taken, self.auxiliary_metrics = self.auxiliary_metrics, {}
        return taken

    def segments(self) -> dict[str, dict[str, Tensor]]:
        named = super().segments() | self.data.segments()
        if self.progress is not None:
            named[frozen_policy_name(self.iterations)] = {"location": self.progress.frozen_location}
        return named

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "phases": self.phases,
            "phase_iterations": list(self.data.iterations),
            "auxiliary_steps": self.auxiliary_steps.state_dict(),
            "value_steps": self.value_steps.state_dict() if self.value_steps else None,
            "progress": self.progress.state_dict() if self.progress else None,
            "auxiliary_metrics": self.auxiliary_metrics,
        }

    def load_state_dict(
        self, state: dict[str, Any], segments: Mapping[str, dict[str, Tensor]], say: Callable[[str], None]
    ) -> None:
        super().load_state_dict(state, segments, say)
        self.phases = state["phases"]
        self.auxiliary_metrics = dict(state["auxiliary_metrics"])
        self.auxiliary_steps.load_state_dict(state["auxiliary_steps"])
        if self.value_steps is not None and state["value_steps"] is not None:
            self.value_steps.load_state_dict(state["value_steps"])
        iterations, saved = state["phase_iterations"], state["progress"]
        if iterations and not self._can_go_on_with(
            segments[segment_name(iterations[0])], len(iterations), in_auxiliary_phase=saved is not None
        ):
            say("The phase under way does not fit the batch of this run: a new phase is started.")
            if saved is not None and self.ewma is not None:
                self.ewma.reset()  # as after every auxiliary phase, whole or not
            return
        for iteration in iterations:
            self.data.add(iteration, **segments[segment_name(iteration)])
        if saved is not None:
            location = segments[frozen_policy_name(self.iterations)]["location"]
            self.progress = AuxiliaryProgress(
                location,
                saved["log_std"],
                saved["epoch"],
                saved["minibatch"],
                list(saved["sums"]),
                saved["samples"],
            )

    def _can_go_on_with(self, first: dict[str, Tensor], number: int, *, in_auxiliary_phase: bool) -> bool:
        longest, *shape = self.data.valid.shape
        same_shape = list(first["valid"].shape) == shape
        return same_shape and (number == longest if in_auxiliary_phase else number <= longest)

    def metrics(self) -> dict[str, float | None]:
        return super().metrics() | {"auxiliary/phases": self.phases}


def start(config: PPGConfig, *, say: Callable[[str], None], env_steps: int = 0) -> PPGState:
    """A fresh state, see `ppo_state.start`."""
    base = ppo_state.start(config, say=say, env_steps=env_steps, auxiliary=True)
    numbers = base.hyperparameters.phase
    assert numbers is not None
    spec, iterations = base.collector.env.spec, numbers.policy_iterations
    refuse_phase_beyond_memory(
        iterations,
        config.phase.policy_iterations,
        phase_bytes=iterations * config.num_steps * spec.num_envs * spec.obs_bytes,
        rollouts_bytes=rollouts_in_memory(config.staleness.iterations)
        * rollout_bytes(spec, config.num_steps),
    )

    def more_steps(optimizer: OptimizerConfig) -> GradientSteps:
        return GradientSteps(
            base.steps.flat,
            optimizer,
            microbatch=base.plan.microbatch,
            say=say,
            networks=base.steps.networks,
        )

    return PPGState(
        **vars(base),
        data=PhaseData(iterations, config.num_steps, spec),
        auxiliary_steps=more_steps(replace(config.optimizer, name="adam")),
        value_steps=more_steps(config.optimizer)
        if config.phase.value_epochs != config.update.epochs
        else None,
        saves_data=config.phase.save_data,
    )


def refuse_phase_beyond_memory(
    iterations: int, tuned_iterations: int, *, phase_bytes: int, rollouts_bytes: int
) -> None:
    """Before anything is computed: a phase that cannot fit would end the run after hours."""
    there = available_bytes()
    if phase_bytes + rollouts_bytes <= there:
        return
    most = int(tuned_iterations * (there - rollouts_bytes) / phase_bytes)
    allowed = f"can be {most:,} at most" if most > 0 else "is too much even at 1"
    raise ConfigError(
        f"a phase of {iterations:,} iterations keeps {readable(phase_bytes)} of observations in memory, "
        f"beside {readable(rollouts_bytes)} of rollouts; {readable(there)} are available. "
        f"phase.policy-iterations, {tuned_iterations:,} at the batch tuned at, {allowed}"
    )
