"""The rows of a plan's table *number · tuned at · this run · rule*."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from anybatch.batch.minibatch_limit import MinibatchLimit
from anybatch.batch.number_text import counted, number_text
from anybatch.batch.phase import PhasePlan
from anybatch.batch.plan import Plan
from anybatch.batch.stale import proximal_follows_lag
from anybatch.config import PPGConfig, PPOConfig, RescaleRules, RunConfig, rescale_rules
from anybatch.equations import rescale

Regime = Literal["kept", "minibatch", "minibatch limit", "iteration batch", "lag"]
"""What a number follows at this batch: nothing; the minibatch; its limit, at which the number stays; the
iteration batch; the lag of stale data."""


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One line of the table *number · tuned at · this run · rule*."""

    number: str
    tuned_at: str
    this_run: str
    rule: str
    regime: Regime
    """What it follows at this batch."""


def plan_rows(config: RunConfig, plan: Plan) -> list[PlanRow]:
    """The rows of all numbers that this run uses."""
    rules, limit = rescale_rules(config.rescale), plan.minibatch_limit
    of_minibatch: Regime = "minibatch limit" if limit is not None and limit.holds_numbers else "minibatch"
    rows = optimizer_rows(config, plan, rules, of_minibatch)
    if isinstance(config, PPOConfig):
        rows += policy_rows(config, plan, rules, of_minibatch)
    if isinstance(config, PPGConfig) and plan.phase is not None:
        rows += phase_rows(config, rules, plan.ratios.iteration_batch, plan.phase, limit)
    rows = [replace(row, rule=row.rule + _held(row) + _while_it_changes(config)) for row in rows]
    return rows if limit is None else [minibatches_row(plan, limit), *rows]


def optimizer_rows(config: RunConfig, plan: Plan, rules: RescaleRules, regime: Regime) -> list[PlanRow]:
    optimizer, run, ratio = config.optimizer, plan.hyperparameters, plan.ratios.minibatch
    learning_rate = PlanRow(
        number="learning rate",
        tuned_at=f"{optimizer.learning_rate:.6g}",
        this_run=f"{run.learning_rate:.6g}",
        rule=_rule("learning-rate", rules, _learning_rate_rule(ratio, "minibatch", optimizer.name, rules))
        + _for_stale_data(config),
        regime=_regime("learning-rate", rules, regime),
    )
    if "adam-betas" not in rules or optimizer.name == "sgd":
        return [learning_rate]
    betas = PlanRow(
        number="Adam β₁, β₂",
        tuned_at=f"{optimizer.beta1:.6g}, {optimizer.beta2:.8g}",
        this_run=f"{run.beta1:.6g}, {run.beta2:.8g}",
        rule=f"power {number_text(ratio, 4)} (minibatch)",
        regime=regime,
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


def policy_rows(config: PPOConfig, plan: Plan, rules: RescaleRules, regime: Regime) -> list[PlanRow]:
    rows: list[PlanRow] = []
    if config.proximal.policy in ("ewma", "periodic"):
        rows.append(proximal_row(config, plan, rules, regime))
    if config.objective.advantage_normalization == "iteration":
        decay, size = config.objective.advantage_decay, rescale.effective_sample_size
        ratio = number_text(plan.ratios.iteration_batch, 4)
        rows.append(
            PlanRow(
                number="advantage moments decay",
                tuned_at=_decay(decay, size, "iterations"),
                this_run=_decay(plan.hyperparameters.advantage_decay, size, "iterations"),
                rule=_rule("advantage-moments", rules, f"iterations ÷ {ratio} (iteration batch), at least 1"),
                regime=_regime("advantage-moments", rules, "iteration batch"),
            )
        )
    return rows


def proximal_row(config: PPOConfig, plan: Plan, rules: RescaleRules, regime: Regime) -> PlanRow:
    """The row of the number that sets the age of the proximal policy."""
    run, proximal = plan.hyperparameters, config.proximal
    name, age, number = "proximal-ewma", "center of mass", "proximal EWMA decay"
    tuned_at, this_run = (
        _decay(decay, rescale.center_of_mass, age) for decay in (proximal.ewma_decay, run.proximal_decay)
    )
    if proximal.policy == "periodic":
        name, age, number = "proximal-copy", "mean age", "proximal copy every"
        tuned_at, this_run = _copy(proximal.copy_every), _copy(run.proximal_copy_every)
    if plan.stale is not None and proximal_follows_lag(config):
        rule = f"half of the lag of {plan.stale.gradient_steps:,} gradient steps, not as tuned"
        return PlanRow(number=number, tuned_at=tuned_at, this_run=this_run, rule=rule, regime="lag")
    ratio = plan.ratios.env_steps_per_gradient_step
    return PlanRow(
        number=number,
        tuned_at=tuned_at,
        this_run=this_run,
        rule=_rule(name, rules, f"{age} ÷ {number_text(ratio, 4)} (env steps per gradient step)"),
        regime=_regime(name, rules, regime),
    )


def phase_rows(
    config: PPGConfig, rules: RescaleRules, ratio: float, run: PhasePlan, limit: MinibatchLimit | None
) -> list[PlanRow]:
    phase = config.phase
    share = run.auxiliary_minibatch / phase.auxiliary_minibatch
    is_held = limit is not None and ratio > limit.ratio
    auxiliary = _regime("auxiliary-phase", rules, "minibatch limit" if is_held else "iteration batch")
    grown = min(ratio, limit.ratio) if limit is not None else ratio
    return [
        PlanRow(
            number="iterations per phase",
            tuned_at=f"{phase.policy_iterations:,}",
            this_run=f"{run.policy_iterations:,}",
            rule=_rule("phase-length", rules, f"÷ {number_text(ratio, 4)} (iteration batch), at least 1"),
            regime=_regime("phase-length", rules, "iteration batch"),
        ),
        PlanRow(
            number="auxiliary minibatch",
            tuned_at=f"{phase.auxiliary_minibatch:,}",
            this_run=f"{run.auxiliary_minibatch:,}",
            rule=_rule(
                "auxiliary-phase", rules, f"× {number_text(grown, 4)} (iteration batch), at least a quarter"
            ),
            regime=auxiliary,
        ),
        PlanRow(
            number="auxiliary learning rate",
            tuned_at=f"{phase.auxiliary_learning_rate:.6g}",
            this_run=f"{run.auxiliary_learning_rate:.6g}",
            rule=_rule(
                "auxiliary-phase", rules, _learning_rate_rule(share, "auxiliary minibatch", "adam", rules)
            ),
            regime=auxiliary,
        ),
    ]


def _rule(name: str, rules: RescaleRules, sentence: str) -> str:
    return sentence if name in rules else f"kept (--rescale without {name})"


def _regime(name: str, rules: RescaleRules, regime: Regime) -> Regime:
    return regime if name in rules else "kept"


def _learning_rate_rule(ratio: float, batch: str, optimizer: str, rules: RescaleRules) -> str:
    asked = rules.learning_rate
    root = "√" * ((asked or rescale.LEARNING_RATE_RULE[optimizer]) == "square-root")
    requested = f", {asked} rule requested" if asked is not None else ""
    return f"× {root}{number_text(ratio, 4)} ({batch}){requested}"


def _for_stale_data(config: RunConfig) -> str:
    if not isinstance(config, PPOConfig) or config.lag == 0:
        return ""
    return "; × √(effective samples ÷ samples) at each iteration" * config.staleness.scale_learning_rate


def _held(row: PlanRow) -> str:
    return "; at the minibatch limit" * (row.regime == "minibatch limit")


def _while_it_changes(config: RunConfig) -> str:
    """The addition to each rule: with a controller, the batch shown is only the initial one."""
    if config.controller.kind == "fixed" or config.controller.compensate == "all":
        return ""
    return "; kept while the batch changes"


def _copy(every: int) -> str:
    return f"{counted(every, 'gradient step')} (mean age {number_text(rescale.mean_copy_age(every), 4)})"


def _decay(decay: float, meaning: Callable[[float], float], unit: str) -> str:
    return f"{decay:.6g} ({unit} {number_text(meaning(decay), 4)})"
