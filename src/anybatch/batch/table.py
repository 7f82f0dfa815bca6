"""A plan in words: its batches, the table *number · tuned at · this run · rule*, and notes."""

from dataclasses import asdict, dataclass, replace

from anybatch.batch.number_text import counted, number_text
from anybatch.batch.plan import Plan
from anybatch.batch.preconditions import broken_preconditions
from anybatch.batch.rows import PlanRow, plan_rows
from anybatch.batch.sizes import BatchSizes
from anybatch.batch.stale import proximal_follows_lag
from anybatch.config import PPGConfig, PPOConfig, PQNConfig, RunConfig, rescale_rules
from anybatch.machine import readable


@dataclass(frozen=True, kw_only=True)
class PlanTable:
    """A plan in words."""

    lines: tuple[str, ...]
    """The batches as products, the range of a controller and the phase of PPG."""
    rows: tuple[PlanRow, ...]
    warnings: tuple[str, ...]
    """Reasons why the rules may not hold."""

    def to_json(self) -> dict[str, object]:
        return {"rows": [asdict(row) for row in self.rows], "warnings": list(self.warnings)}


def plan_table(config: RunConfig, plan: Plan) -> PlanTable:
    return PlanTable(
        lines=(
            *batch_lines(plan.batch),
            *limit_lines(config, plan),
            *controller_lines(config, plan),
            *collection_lines(config),
            *stale_lines(config, plan),
            *phase_lines(config, plan),
        ),
        rows=tuple(plan_rows(config, plan)),
        warnings=tuple(broken_preconditions(config, plan)),
    )


def batch_lines(batch: BatchSizes) -> list[str]:
    """The batches as products."""
    microbatches = -(-batch.minibatch // batch.microbatch)
    return [
        f"iteration batch  {counted(batch.num_envs, 'env')} × {counted(batch.num_steps, 'step')} = "
        f"{counted(batch.iteration_batch, 'sample')}",
        f"minibatch        {batch.iteration_batch:,} ÷ {batch.minibatches_per_epoch:,} = "
        f"{counted(batch.minibatch, 'sample')}, {counted(batch.epochs, 'epoch')} = "
        f"{counted(batch.gradient_steps_per_iteration, 'gradient step')} per iteration",
        f"microbatch       {counted(batch.microbatch, 'sample')} at most: "
        f"{microbatches:,.0f} pass{'es' * (microbatches > 1)} per gradient step",
    ]


def limit_lines(config: RunConfig, plan: Plan) -> list[str]:
    """The minibatch limit, and whether this run reaches it."""
    limit = plan.minibatch_limit
    if limit is None:
        return []
    start = ", until the noise scale is measured; then the noise scale" * limit.measured
    minibatches = config.update.minibatches_per_epoch
    effect = (
        f"reached, so {plan.batch.minibatches_per_epoch:,} minibatches per epoch instead of {minibatches:,}, "
        "and numbers that follow the minibatch stay the same"
        if limit.reached
        else f"not reached, so {minibatches:,} minibatch{'es' * (minibatches > 1)} per epoch as configured, "
        "and the minibatch follows the iteration batch"
    )
    samples, ratio = number_text(limit.samples, 6), number_text(limit.ratio, 4)
    return [f"minibatch limit  {samples} samples, {ratio} × tuned{start}: {effect}"]


def controller_lines(config: RunConfig, plan: Plan) -> list[str]:
    """The range of batches that a controller may choose from."""
    if plan.step_range is None:
        return []
    limit = plan.minibatch_limit.samples if plan.minibatch_limit else None
    configured = replace(plan.batch, minibatches_per_epoch=config.update.minibatches_per_epoch)
    smallest, largest = (replace(configured, num_steps=steps).within(limit) for steps in plan.step_range)
    return [
        f"controller       {smallest.num_steps:,} to {largest.num_steps:,} steps: iteration batch "
        f"{smallest.iteration_batch:,} to {largest.iteration_batch:,} samples, minibatch "
        f"{smallest.minibatch:,.0f} to {largest.minibatch:,.0f}",
    ]


def collection_lines(config: RunConfig) -> list[str]:
    """Who collects the data, and how old it is when it is trained on."""
    lag = counted(config.lag, "iteration")
    if config.collection is not None:
        return [f"collected by     {config.collection}, while the learner learns: lag of {lag}"]
    if config.lag and isinstance(config, PQNConfig):
        return [f"stale data       lag of {lag}; next values are those of the current network"]
    return []


def stale_lines(config: RunConfig, plan: Plan) -> list[str]:
    """The lag of stale data, and what the two options for it choose, or would choose."""
    stale = plan.stale
    if stale is None or not isinstance(config, PPOConfig):
        return []
    chosen = (
        f"a proximal copy every {stale.copy_every:,}"
        if config.proximal.policy == "periodic"
        else f"a proximal EWMA decay of {stale.ewma_decay:.6g} "
        f"(center of mass {number_text(stale.half_lag, 4)})"
    )
    needed = " with --proximal.policy ewma" * (config.proximal.policy not in ("ewma", "periodic"))
    age = (
        f"half of it gives {chosen}"
        if proximal_follows_lag(config)
        else f"--staleness.proximal-age half_lag{needed} would give {chosen}"
    )
    rate = (
        "the learning rate is multiplied"
        if config.staleness.scale_learning_rate
        else "--staleness.scale-learning-rate would multiply the learning rate"
    )
    iterations, lag = stale.iterations, stale.gradient_steps
    return [
        f"stale data       {counted(iterations, 'iteration')} × {lag // iterations:,} = lag of "
        f"{counted(lag, 'gradient step')}: {age}; {rate} by √(effective samples ÷ samples) of each iteration"
    ]


def phase_lines(config: RunConfig, plan: Plan) -> list[str]:
    """The phase of PPG as products, and the memory and disk space of its data."""
    phase = plan.phase
    if phase is None or not isinstance(config, PPGConfig):
        return []
    lines = [
        f"phase            {counted(phase.policy_iterations, 'iteration')} × {plan.batch.iteration_batch:,}"
        f" = {counted(phase.env_steps, 'env step')}, then"
        f" {counted(phase.auxiliary_epochs, 'auxiliary epoch')} of"
        f" {counted(phase.auxiliary_minibatches, 'gradient step')}"
    ]
    if phase.memory_bytes is None:
        return lines
    once, twice = readable(phase.memory_bytes), readable(2 * phase.memory_bytes)
    keeps_env_steps = "phase-length" in rescale_rules(config.rescale) and phase.env_steps == (
        config.phase.policy_iterations * plan.tuned_at.iteration_batch
    )
    at_any_batch = "; the same at any batch, since the rule keeps a phase's env steps" * keeps_env_steps
    on_disk = (
        f"{once} in checkpoints, up to {twice} while they span two phases (--phase.no-save-data: none)"
        if config.phase.save_data
        else "none: checkpoints are saved only between phases"
    )
    return [
        *lines,
        f"phase memory     {phase.env_steps:,} × {phase.obs_bytes:,} bytes = {once} of observations"
        + at_any_batch,
        f"phase disk       {on_disk}",
    ]


def change_of_batch(before: BatchSizes, now: Plan, env_steps: int) -> str:
    """One sentence for a batch that a controller changed."""
    batch = now.batch
    change = (
        f"rollouts of {before.num_steps:,} → {batch.num_steps:,} steps"
        if before.num_steps != batch.num_steps
        else f"{before.minibatches_per_epoch:,} → {batch.minibatches_per_epoch:,} minibatches per epoch, by "
        "the noise scale"
    )
    return (
        f"{env_steps:,} env steps: {change}, "
        f"iteration batch {batch.iteration_batch:,}, minibatch {batch.minibatch:,.0f}, "
        f"{counted(batch.epochs, 'epoch')}, "
        f"learning rate {now.hyperparameters.learning_rate:.4g}"
    )
