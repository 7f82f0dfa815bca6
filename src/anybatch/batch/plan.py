"""The batches of a run and, put together, all that follows from them: the dial.

The only arithmetic between envs, steps, ranks, minibatch and microbatch is here. A plan is always computed
from the numbers at the batch they were tuned at, never from another plan.
"""

from dataclasses import asdict, dataclass, replace

from anybatch.batch.phase import PhaseSize
from anybatch.batch.rescaling import Hyperparameters, PhaseNumbers, Ratios, rescaled
from anybatch.batch.table import PlanRow, broken_preconditions, plan_rows
from anybatch.config import PPGConfig, RunConfig, TunedAt, rescale_rules

# Samples per forward and backward pass. Large activations are mapped and unmapped at every step on a CPU, so
# images go in small parts; a plain rule instead of a timing keeps two runs on one machine bitwise equal.
AUTO_MICROBATCH = {
    ("mlp", "cpu"): 4096,
    ("nature", "cpu"): 128,
    ("impala", "cpu"): 64,
    ("minatar", "cpu"): 1024,
    ("mlp", "gpu"): 65536,
    ("nature", "gpu"): 8192,
    ("impala", "gpu"): 4096,
    ("minatar", "gpu"): 65536,
}


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """The three batches of a run. All but the microbatch are over all ranks."""

    num_envs: int
    num_steps: int
    ranks: int
    minibatches_per_epoch: int
    epochs: int
    microbatch: int

    @property
    def iteration_batch(self) -> int:
        """Samples collected between two optimizations, reset steps included."""
        return self.num_envs * self.num_steps * self.ranks

    @property
    def minibatch(self) -> float:
        """Samples behind one gradient step."""
        return self.iteration_batch / self.minibatches_per_epoch

    @property
    def gradient_steps_per_iteration(self) -> int:
        return self.minibatches_per_epoch * self.epochs

    @property
    def env_steps_per_gradient_step(self) -> float:
        """How far the environments move for each gradient step: the clock of the proximal EWMA."""
        return self.iteration_batch / self.gradient_steps_per_iteration

    def lines(self) -> list[str]:
        """The batches as products, for a person."""
        ranks = "" if self.ranks == 1 else f" × {self.ranks} ranks"
        minibatch = f"{self.minibatch:,.0f}" if self.minibatch.is_integer() else f"{self.minibatch:,.1f}"
        microbatches = -(-self.minibatch // self.microbatch)
        return [
            f"iteration batch  {self.num_envs:,} env{'s' * (self.num_envs > 1)} × "
            f"{self.num_steps:,} steps{ranks}"
            f" = {self.iteration_batch:,} samples",
            f"minibatch        {self.iteration_batch:,} ÷ {self.minibatches_per_epoch} = {minibatch} samples,"
            f" {self.epochs} epoch{'s' * (self.epochs > 1)}"
            f" = {self.gradient_steps_per_iteration} gradient steps an iteration",
            f"microbatch       {self.microbatch:,} samples at most: "
            f"{microbatches:.0f} pass{'es' * (microbatches > 1)} a gradient step",
        ]


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A plan with everything that follows from it."""

    plan: BatchPlan
    tuned_at: TunedAt
    ratios: Ratios
    hyperparameters: Hyperparameters
    rows: tuple[PlanRow, ...]
    warnings: tuple[str, ...]
    phase: PhaseSize | None = None
    step_range: tuple[int, int] | None = None
    """The shortest and the longest rollout that a controller may choose; None where it is fixed."""

    def lines(self) -> list[str]:
        """The batches and, where there are such, the controller's range and PPG's phase, for a person."""
        return self.plan.lines() + self._controller_lines() + (self.phase.lines() if self.phase else [])

    def _controller_lines(self) -> list[str]:
        if self.step_range is None:
            return []
        smallest, largest = (replace(self.plan, num_steps=steps) for steps in self.step_range)
        return [
            f"controller       {smallest.num_steps:,} to {largest.num_steps:,} steps: iteration batch "
            f"{smallest.iteration_batch:,} to {largest.iteration_batch:,} samples, minibatch "
            f"{smallest.minibatch:,.0f} to {largest.minibatch:,.0f}",
        ]

    def to_json(self) -> dict[str, object]:
        batches = {
            "iteration_batch": self.plan.iteration_batch,
            "minibatch": self.plan.minibatch,
            "env_steps_per_gradient_step": self.plan.env_steps_per_gradient_step,
        }
        return {
            "batch": asdict(self.plan) | batches,
            "tuned_at": asdict(self.tuned_at),
            "ratios": asdict(self.ratios),
            "hyperparameters": asdict(self.hyperparameters),
            "phase": self.phase.to_json() if self.phase else None,
            "step_range": self.step_range,
            "rows": [asdict(row) for row in self.rows],
            "warnings": list(self.warnings),
        }


def automatic_microbatch(encoder: str, device: str) -> int:
    """The fixed rule behind `--microbatch 0`."""
    return AUTO_MICROBATCH[encoder, "cpu" if device == "cpu" else "gpu"]


def resolve(
    config: RunConfig,
    *,
    encoder: str,
    ranks: int = 1,
    obs_bytes: int | None = None,
    num_steps: int | None = None,
    epochs: int | None = None,
) -> Resolved:
    """The plan of a run and the numbers it will use.

    `encoder` decides the automatic microbatch; `obs_bytes`, where known, the memory of a phase. `num_steps`
    and `epochs` are what a controller chose; the other numbers follow them only if it is to be compensated.
    """
    configured = BatchPlan(
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        ranks=ranks,
        minibatches_per_epoch=config.update.minibatches_per_epoch,
        epochs=config.update.epochs,
        microbatch=config.microbatch or automatic_microbatch(encoder, config.device),
    )
    plan = replace(
        configured, num_steps=num_steps or configured.num_steps, epochs=epochs or configured.epochs
    )
    followed = plan if config.controller.compensate == "all" else configured
    ratios = batch_ratios(followed, config.tuned_at)
    hyperparameters = rescaled(config, ratios)
    return Resolved(
        plan=plan,
        tuned_at=config.tuned_at,
        ratios=ratios,
        hyperparameters=hyperparameters,
        rows=tuple(plan_rows(config, ratios, hyperparameters)),
        warnings=tuple(broken_preconditions(config, ratios, hyperparameters)),
        phase=phase_size(config, plan, hyperparameters.phase, obs_bytes)
        if isinstance(config, PPGConfig) and hyperparameters.phase is not None
        else None,
        step_range=None if config.controller.kind == "fixed" else config.step_range,
    )


def batch_ratios(plan: BatchPlan, tuned_at: TunedAt) -> Ratios:
    tuned = replace(
        plan,
        num_envs=tuned_at.num_envs,
        num_steps=tuned_at.num_steps,
        ranks=tuned_at.ranks,
        minibatches_per_epoch=tuned_at.minibatches_per_epoch,
        epochs=tuned_at.epochs,
    )
    return Ratios(
        minibatch=plan.minibatch / tuned.minibatch,
        env_steps_per_gradient_step=plan.env_steps_per_gradient_step / tuned.env_steps_per_gradient_step,
        iteration_batch=plan.iteration_batch / tuned.iteration_batch,
    )


def phase_size(config: PPGConfig, plan: BatchPlan, numbers: PhaseNumbers, obs_bytes: int | None) -> PhaseSize:
    env_steps = numbers.policy_iterations * plan.iteration_batch
    # No more gradient steps than every rank has samples.
    most = numbers.policy_iterations * plan.num_envs * plan.num_steps
    return PhaseSize(
        iterations=numbers.policy_iterations,
        iteration_batch=plan.iteration_batch,
        auxiliary_epochs=config.phase.auxiliary_epochs,
        auxiliary_minibatches=min(max(1, round(env_steps / numbers.auxiliary_minibatch)), most),
        obs_bytes=obs_bytes,
        is_saved=config.phase.save_data,
        keeps_env_steps="phase-length" in rescale_rules(config.rescale)
        and env_steps == config.phase.policy_iterations * config.tuned_at.iteration_batch,
    )
