"""The rows of a plan's table *hyperparameter · tuned at · this run · rule*."""

from dataclasses import replace

from anybatch import rules
from anybatch.config import RunConfig, rescale_rules
from anybatch.config.planned import MinibatchLimit, Plan, PlanRow, learning_rate_rule, ratio_text
from anybatch.text import number_text


def plan_rows(config: RunConfig, plan: Plan) -> list[PlanRow]:
    """The rows of all hyperparameters that depend on the batch."""
    rows = [*optimizer_rows(config, plan), *config.plan_rows(plan)]
    rows = [replace(row, rule=row.rule + _held(row) + _while_it_changes(config)) for row in rows]
    limit = plan.minibatch_limit
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
    """The row of the number of minibatches, which grows instead of a limited minibatch."""
    return PlanRow(
        number="minibatches per epoch",
        tuned_at=f"{plan.tuned_at.minibatches_per_epoch:,}",
        this_run=f"{plan.batch.minibatches_per_epoch:,}",
        rule=f"iteration batch ÷ minibatch limit of {number_text(limit.samples, 6)}, rounded up"
        if limit.reached
        else "as configured, below the minibatch limit",
        regime="iteration batch" if limit.reached else "kept",
    )


def _held(row: PlanRow) -> str:
    return "; at the minibatch limit" if row.regime == "minibatch limit" else ""


def _while_it_changes(config: RunConfig) -> str:
    """The addition to each rule: with a controller, the batch shown is only the initial one."""
    if config.controller.kind == "fixed" or config.controller.compensate == "all":
        return ""
    return "; kept while the batch changes"
