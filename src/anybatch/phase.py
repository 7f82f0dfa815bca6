"""The state of PPG: what PPO's has, the data of the phase, and where the auxiliary phase stands."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from anybatch import train_state
from anybatch.config import PPGConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError
from anybatch.runs.memory import available_bytes, readable
from anybatch.train_state import TrainState
from anybatch.update import GradientSteps, Record


class PhaseData:
    """Observations, value targets and masks of a phase's iterations, on the CPU. Images stay uint8."""

    def __init__(self, iterations: int, num_steps: int, spec: EnvSpec):
        shape = (iterations, num_steps, spec.num_envs)
        image = spec.obs_dtype == "uint8"
        self.obs = torch.empty(*shape, *spec.obs_shape, dtype=torch.uint8 if image else torch.float32)
        self.value_target = torch.empty(shape)
        self.valid = torch.empty(shape, dtype=torch.bool)
        self.filled = 0

    @property
    def is_full(self) -> bool:
        return self.filled == len(self.obs)

    @property
    def flat_obs(self) -> Tensor:
        return self.obs.flatten(0, 2)

    @property
    def flat_value_target(self) -> Tensor:
        return self.value_target.flatten()

    def add(self, obs: Tensor, value_target: Tensor, valid: Tensor) -> None:
        """Keep one iteration, flattened to [T · N] as it was optimized on; `valid` is [T, N]."""
        self.obs[self.filled] = obs.view_as(self.obs[self.filled])
        self.value_target[self.filled] = value_target.view_as(valid)
        self.valid[self.filled] = valid
        self.filled += 1

    def clear(self) -> None:
        self.filled = 0

    def segment(self, position: int) -> dict[str, Tensor]:
        return {
            "obs": self.obs[position],
            "value_target": self.value_target[position],
            "valid": self.valid[position],
        }


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

    def add(self, records: list[Record]) -> None:
        """Count the losses of one gradient step."""
        columns = [torch.cat(column) for column in zip(*records, strict=True)]
        self.sums = [total + float(column.sum()) for total, column in zip(self.sums, columns, strict=True)]
        self.samples += len(columns[0])

    def means(self) -> list[float]:
        return [total / max(self.samples, 1) for total in self.sums]


@dataclass
class PPGState(TrainState):
    """What training with phases changes."""

    data: PhaseData = field(kw_only=True)
    auxiliary_steps: GradientSteps = field(kw_only=True)
    value_steps: GradientSteps | None = field(kw_only=True)
    saves_data: bool = field(kw_only=True)
    progress: AuxiliaryProgress | None = None
    phases: int = 0

    def log_std(self) -> Tensor | None:
        parameter = self.network.policy.log_std
        return None if parameter is None else parameter.detach().cpu().clone()

    @property
    def can_be_saved(self) -> bool:
        """Without the phase's data, a checkpoint is worth something only between two phases."""
        return self.saves_data or self.data.filled == 0

    def segments(self) -> dict[str, dict[str, Tensor]]:
        named = super().segments()
        for position in range(self.data.filled):
            named[f"phase_{self.phases:06d}_{position:06d}"] = self.data.segment(position)
        if self.progress is not None:
            named[f"phase_{self.phases:06d}_policy"] = {"location": self.progress.frozen_location}
        return named

    def state_dict(self) -> dict[str, Any]:
        progress = self.progress
        return super().state_dict() | {
            "phases": self.phases,
            "filled": self.data.filled,
            "auxiliary_steps": self.auxiliary_steps.state_dict(),
            "value_steps": self.value_steps.state_dict() if self.value_steps else None,
            "progress": progress
            and {
                "log_std": progress.frozen_log_std,
                "epoch": progress.epoch,
                "minibatch": progress.minibatch,
                "sums": progress.sums,
                "samples": progress.samples,
            },
        }

    def load_state_dict(
        self, state: dict[str, Any], segments: dict[str, dict[str, Tensor]], say: Callable[[str], None]
    ) -> None:
        super().load_state_dict(state, segments, say)
        self.phases = state["phases"]
        self.auxiliary_steps.load_state_dict(state["auxiliary_steps"])
        if self.value_steps is not None and state["value_steps"] is not None:
            self.value_steps.load_state_dict(state["value_steps"])
        kept = [segments[f"phase_{self.phases:06d}_{position:06d}"] for position in range(state["filled"])]
        if kept and (kept[0]["valid"].shape != self.data.valid.shape[1:] or len(kept) > len(self.data.obs)):
            say("The batch has another shape than the phase under way: a new phase is started.")
            return
        for segment in kept:
            self.data.add(segment["obs"].flatten(0, 1), segment["value_target"].flatten(), segment["valid"])
        if state["progress"] is not None:
            location = segments[f"phase_{self.phases:06d}_policy"]["location"]
            saved = state["progress"]
            self.progress = AuxiliaryProgress(
                location,
                saved["log_std"],
                saved["epoch"],
                saved["minibatch"],
                saved["sums"],
                saved["samples"],
            )

    def metrics(self) -> dict[str, float | None]:
        return super().metrics() | {"auxiliary/phases": self.phases}


def phase_bytes(iterations: int, iteration_batch: int, obs_bytes: int) -> int:
    """Memory of a phase's observations, nearly all of its data."""
    return iterations * iteration_batch * obs_bytes


def refuse_beyond_memory(needed: int, iterations: int) -> None:
    """Before anything is computed: a phase that cannot fit would end the run after hours."""
    there = available_bytes()
    if needed > there:
        raise ConfigError(
            f"a phase of {iterations} iterations keeps {readable(needed)} of observations in memory; "
            f"{readable(there)} are available. It is as large at any batch size; a smaller "
            "phase.policy-iterations makes it shorter"
        )


def start(config: PPGConfig, *, say: Callable[[str], None], env_steps: int = 0) -> PPGState:
    """A fresh state, see `train_state.start`."""
    base = train_state.start(config, say=say, env_steps=env_steps, auxiliary=True)
    numbers = base.hyperparameters.phase
    assert numbers is not None
    spec = base.collector.env.spec
    obs_bytes = torch.empty(spec.obs_shape, dtype=torch.uint8).numel() * spec.obs_dtype.itemsize
    local_batch = config.num_envs * config.num_steps
    refuse_beyond_memory(
        phase_bytes(numbers.policy_iterations, local_batch, obs_bytes), numbers.policy_iterations
    )

    def more_steps() -> GradientSteps:
        return GradientSteps(
            base.steps.flat,
            config.optimizer,
            microbatch=base.plan.microbatch,
            say=say,
            networks=base.steps.networks,
        )

    return PPGState(
        **vars(base),
        data=PhaseData(numbers.policy_iterations, config.num_steps, spec),
        auxiliary_steps=more_steps(),
        value_steps=more_steps() if config.phase.value_epochs != config.update.epochs else None,
        saves_data=config.phase.save_data,
    )
