"""A plan in words: its batches, the table *hyperparameter · tuned at · this run · rule*, and notes."""

from dataclasses import asdict, dataclass, replace

from anybatch import rules
from anybatch.config import RunConfig, rescale_rules
from anybatch.config.planned import BatchSizes, MinibatchLimit, Plan, PlanRow, learning_rate_rule, ratio_text
from anybatch.text import counted, number_text


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
            *config.plan_lines(plan),
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
    """The largest minibatch, whether this run reaches it, and where that ends."""
    limit = plan.minibatch_limit
    if limit is None:
        return []
    samples, configured = number_text(limit.samples, 6), config.update.minibatches_per_epoch
    count = plan.batch.minibatches_per_epoch
    minibatches = f"{count:,} minibatch{'es' * (count > 1)} per epoch"
    instead = f"{minibatches} instead of {configured:,}" if limit.reached else minibatches
    smallest = ratio_text(limit.samples / plan.tuned_at.iteration_batch)
    match limit.choice:
        case "auto":
            return [
                f"minibatch kept   {samples} samples above the tuned batch: {instead}, and what follows the "
                "minibatch stays the same; --minibatch scaled lets it grow"
            ]
        case "keep" if plan.batch.iteration_batch < limit.samples:
            return [
                f"minibatch kept   not below {samples} samples, {smallest} of the tuned batch: an iteration "
                "cannot hold one such minibatch, so it is one, and what follows the minibatch is rescaled"
            ]
        case "keep":
            return [
                f"minibatch kept   {samples} samples: {instead}, and what follows the minibatch stays the "
                f"same, down to {smallest} of the tuned batch, where an iteration is one minibatch"
            ]
        case _:
            start = ", until the noise scale is measured; then the noise scale"
            ratio = number_text(limit.ratio, 4) + " × tuned" + start * (limit.choice == "noise-scale")
            effect = (
                f"reached, so {instead}, and what follows the minibatch stays the same"
                if limit.reached
                else f"not reached, so {minibatches} as configured, and the minibatch follows the iteration "
                "batch"
            )
            return [f"minibatch limit  {samples} samples, {ratio}: {effect}"]


def controller_lines(config: RunConfig, plan: Plan) -> list[str]:
    """The range of batches that a controller may choose from."""
    if plan.step_range is None:
        return []
    batch, limit = plan.batch, plan.minibatch_limit
    if limit is not None and limit.choice == "auto":
        limit = None  # the number of minibatches does not change within a run
    elif limit is not None:
        batch = replace(batch, minibatches_per_epoch=config.update.minibatches_per_epoch)
    smallest, largest = (replace(batch, num_steps=steps).within(limit) for steps in plan.step_range)
    return [
        f"controller       {smallest.num_steps:,} to {largest.num_steps:,} steps: iteration batch "
        f"{smallest.iteration_batch:,} to {largest.iteration_batch:,} samples, minibatch "
        f"{smallest.minibatch:,.0f} to {largest.minibatch:,.0f}",
    ]


def collection_lines(config: RunConfig) -> list[str]:
    """Who collects the data while the learner learns, and how old it is when it is trained on."""
    if config.collection is None:
        return []
    lag = counted(config.lag, "iteration")
    return [f"collected by     {config.collection}, while the learner learns: lag of {lag}"]


def plan_rows(config: RunConfig, plan: Plan) -> list[PlanRow]:
    """The rows of all hyperparameters that depend on the batch."""
    rows = [*optimizer_rows(config, plan), *config.plan_rows(plan)]
    limit = plan.minibatch_limit
    kept = "; minibatch kept" if limit and limit.choice in ("auto", "keep") else "; at the minibatch limit"
    # With a controller, the batch shown is only the initial one.
    changes = config.controller.kind != "fixed" and config.controller.compensate != "all"
    for place, row in enumerate(rows):
        held = kept if limit is not None and row.regime == "minibatch limit" else ""
        still = "; kept while the batch changes" if changes and row.regime != "batch" else ""
        rows[place] = replace(row, rule=row.rule + held + still)
    return rows if limit is None else [minibatches_row(plan, limit), *rows]


def optimizer_rows(config: RunConfig, plan: Plan) -> list[PlanRow]:
    optimizer, run, ratio = config.optimizer, plan.hyperparameters, plan.ratios.minibatch
    asked = rescale_rules(config.rescale)
    learning_rate = PlanRow.by_rule(
        "learning-rate",
        asked,
        number="learning rate",
        tuned_at=f"{optimizer.learning_rate:.6g}",
        this_run=f"{run.learning_rate:.6g}",
        rule=learning_rate_rule(ratio, "minibatch", optimizer.name, asked),
        regime=plan.minibatch_regime,
    )
    if factor := config.learning_rate_factor:
        rule = f"{learning_rate.rule}; × {factor} at each iteration"
        learning_rate = replace(learning_rate, rule=rule)
    if "adam-betas" not in asked or optimizer.name == "sgd":
        return [learning_rate]
    least1, least2 = rules.ADAM_BETA_FLOORS
    betas = PlanRow(
        number="Adam β₁, β₂",
        tuned_at=f"{optimizer.beta1:.6g}, {optimizer.beta2:.8g}",
        this_run=f"{run.beta1:.6g}, {run.beta2:.8g}",
        rule=f"power {ratio_text(ratio)} (minibatch), at least {least1:g} and {least2:g}",
        regime=plan.minibatch_regime,
    )
    return [learning_rate, betas]


def minibatches_row(plan: Plan, limit: MinibatchLimit) -> PlanRow:
    """The row of the number of minibatches, which changes instead of a limited minibatch."""
    return PlanRow(
        number="minibatches per epoch",
        tuned_at=f"{plan.tuned_at.minibatches_per_epoch:,}",
        this_run=f"{plan.batch.minibatches_per_epoch:,}",
        rule=f"iteration batch ÷ {number_text(limit.samples, 6)}, rounded up"
        if limit.reached
        else "as configured",
        regime="iteration batch" if limit.reached else "kept",
    )


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


def broken_preconditions(config: RunConfig, plan: Plan) -> list[str]:
    """One sentence for each reason why the rules may not hold in this run, as far as known beforehand."""
    epochs, tuned_steps = config.update.epochs, plan.tuned_at.num_steps
    anneal_until, anneals_to_0 = config.optimizer.anneal_until, config.optimizer.anneal_to == 0
    max_norm, ratio = config.optimizer.max_grad_norm, plan.ratios.minibatch
    # Where the minibatch is kept, nothing that depends on it is rescaled.
    is_kept = ratio == plan.ratios.env_steps_per_gradient_step == 1
    rescales = bool(rescale_rules(config.rescale)) and not is_kept
    reasons = [
        (
            rescales and ratio > 1,
            f"The minibatch is {number_text(ratio, 4)} times the tuned one: in our studies less was learned "
            "from minibatches of 128 to 512 samples on; --minibatch keep does not let it grow.",
        ),
        (
            rescales and ratio != 1 and max_norm is not None,
            f"optimizer.max-grad-norm = {max_norm} clips gradients, whose norm depends on the minibatch, and "
            "no rule corrects that.",
        ),
        (
            rescales and epochs > 1,
            f"The rule assumes one policy epoch; update.epochs = {epochs} makes it approximate.",
        ),
        (
            config.num_steps != tuned_steps,
            f"num-steps = {config.num_steps} instead of the tuned {tuned_steps} also changes how far "
            "returns look before they bootstrap; changing num-envs does not.",
        ),
        (
            anneal_until is not None and anneals_to_0 and anneal_until < config.total_env_steps,
            f"The learning rate reaches 0 at optimizer.anneal-until = {anneal_until}, before "
            f"total-env-steps = {config.total_env_steps}.",
        ),
        *config.plan_warnings(plan, rescales=rescales),
    ]
    return [sentence for broken, sentence in reasons if broken]
