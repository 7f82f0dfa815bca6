"""The rows of a plan's table *number · tuned at · this run · rule*."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from anybatch.batch.minibatch_limit import MinibatchLimit
from anybatch.batch.phase import PhasePlan
from anybatch.batch.plan import Plan
from anybatch.batch.rescaling import Hyperparameters, Ratios
from anybatch.batch.stale import StalePlan, proximal_follows_lag
from anybatch.config import PPGConfig, PPOConfig, RescaleRules, RunConfig, rescale_rules
from anybatch.equations import rescale

Regime = Literal["minibatch", "minibatch limit", "iteration batch", "lag"]
"""What a number follows. At the minibatch limit it stays, whatever the iteration batch. The lag is that of
stale data."""


OF_THE_PROXIMAL_POLICY = ("proximal EWMA decay", "proximal copy every")


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
    ratios, run = plan.ratios, plan.hyperparameters
    rules = rescale_rules(config.rescale)
    optimizer = config.optimizer
    limit = plan.minibatch_limit
    regime: Regime = "minibatch limit" if limit is not None and limit.reached else "minibatch"
    rows = [] if limit is None else [minibatches_row(plan, limit)]
    rows.append(
        PlanRow(
            number="learning rate",
            tuned_at=f"{optimizer.learning_rate:.6g}",
            this_run=f"{run.learning_rate:.6g}",
            rule=_rule(
                "learning-rate",
                rules,
                _learning_rate_rule(ratios.minibatch, "minibatch", optimizer.name, rules),
            )
            + _for_stale_data(config),
            regime=regime,
        )
    )
    if isinstance(config, PPOConfig):
        rows += policy_rows(config, rules, ratios, run, regime)
        if proximal_follows_lag(config) and plan.stale is not None:
            rows = [
                with_lag(row, plan.stale) if row.number in OF_THE_PROXIMAL_POLICY else row for row in rows
            ]
    if "adam-betas" in rules and optimizer.name != "sgd":
        rows.append(
            PlanRow(
                number="Adam β₁, β₂",
                tuned_at=f"{optimizer.beta1:.6g}, {optimizer.beta2:.8g}",
                this_run=f"{run.beta1:.6g}, {run.beta2:.8g}",
                rule=_rule("adam-betas", rules, f"power {ratios.minibatch:.4g} (minibatch)"),
                regime=regime,
            )
        )
    if isinstance(config, PPGConfig) and plan.phase is not None:
        rows += phase_rows(config, rules, ratios.iteration_batch, plan.phase, limit)
    return [replace(row, rule=row.rule + _held(row) + _while_it_changes(config)) for row in rows]


def minibatches_row(plan: Plan, limit: MinibatchLimit) -> PlanRow:
    """The row of what grows instead of the minibatch where that has a limit."""
    return PlanRow(
        number="minibatches per epoch",
        tuned_at=f"{plan.tuned_at.minibatches_per_epoch:,}",
        this_run=f"{plan.batch.minibatches_per_epoch:,}",
        rule=f"iteration batch ÷ minibatch limit of {limit.samples:,.6g}, rounded up"
        if limit.reached
        else "as configured, below the minibatch limit",
        regime="iteration batch" if limit.reached else "minibatch",
    )


def with_lag(row: PlanRow, stale: StalePlan) -> PlanRow:
    """The row of a number that the lag of stale data decides instead of the batch."""
    return replace(
        row, rule=f"half of the lag of {stale.gradient_steps:,} gradient steps, not as tuned", regime="lag"
    )


def policy_rows(
    config: PPOConfig, rules: RescaleRules, ratios: Ratios, run: Hyperparameters, regime: Regime
) -> list[PlanRow]:
    rows: list[PlanRow] = []
    if config.proximal.policy == "ewma":
        rows.append(
            PlanRow(
                number=OF_THE_PROXIMAL_POLICY[0],
                tuned_at=_decay(config.proximal.ewma_decay, rescale.center_of_mass, "center of mass"),
                this_run=_decay(run.proximal_decay, rescale.center_of_mass, "center of mass"),
                rule=_rule(
                    "proximal-ewma",
                    rules,
                    f"center of mass ÷ {ratios.env_steps_per_gradient_step:.4g} "
                    "(env steps per gradient step)",
                ),
                regime=regime,
            )
        )
    if config.proximal.policy == "periodic":
        rows.append(
            PlanRow(
                number=OF_THE_PROXIMAL_POLICY[1],
                tuned_at=_copy(config.proximal.copy_every),
                this_run=_copy(run.proximal_copy_every),
                rule=_rule(
                    "proximal-copy",
                    rules,
                    f"mean age ÷ {ratios.env_steps_per_gradient_step:.4g} (env steps per gradient step)",
                ),
                regime=regime,
            )
        )
    if config.objective.advantage_normalization == "iteration":
        rows.append(
            PlanRow(
                number="advantage moments decay",
                tuned_at=_decay(
                    config.objective.advantage_decay, rescale.effective_sample_size, "iterations"
                ),
                this_run=_decay(run.advantage_decay, rescale.effective_sample_size, "iterations"),
                rule=_rule(
                    "advantage-moments",
                    rules,
                    f"iterations ÷ {ratios.iteration_batch:.4g} (iteration batch), at least 1",
                ),
                regime="iteration batch",
            )
        )
    return rows


def phase_rows(
    config: PPGConfig, rules: RescaleRules, ratio: float, run: PhasePlan, limit: MinibatchLimit | None
) -> list[PlanRow]:
    phase = config.phase
    share = run.auxiliary_minibatch / phase.auxiliary_minibatch
    is_held = limit is not None and ratio > limit.ratio and "auxiliary-phase" in rules
    grown = min(ratio, limit.ratio) if limit is not None else ratio
    return [
        PlanRow(
            number="iterations per phase",
            tuned_at=f"{phase.policy_iterations:,}",
            this_run=f"{run.policy_iterations:,}",
            rule=_rule("phase-length", rules, f"÷ {ratio:.4g} (iteration batch), at least 1"),
            regime="iteration batch",
        ),
        PlanRow(
            number="auxiliary minibatch",
            tuned_at=f"{phase.auxiliary_minibatch:,}",
            this_run=f"{run.auxiliary_minibatch:,}",
            rule=_rule("auxiliary-phase", rules, f"× {grown:.4g} (iteration batch), at least a quarter"),
            regime="minibatch limit" if is_held else "iteration batch",
        ),
        PlanRow(
            number="auxiliary learning rate",
            tuned_at=f"{phase.auxiliary_learning_rate:.6g}",
            this_run=f"{run.auxiliary_learning_rate:.6g}",
            rule=_rule(
                "auxiliary-phase", rules, _learning_rate_rule(share, "auxiliary minibatch", "adam", rules)
            ),
            regime="minibatch limit" if is_held else "iteration batch",
        ),
    ]


def _rule(name: str, rules: RescaleRules, sentence: str) -> str:
    return sentence if name in rules else f"kept (--rescale without {name})"


def _learning_rate_rule(ratio: float, batch: str, optimizer: str, rules: RescaleRules) -> str:
    asked = rules.learning_rate
    root = "√" * ((asked or rescale.LEARNING_RATE_RULE[optimizer]) == "square-root")
    return f"× {root}{ratio:.4g} ({batch})" + (f", {asked} rule asked for" if asked is not None else "")


def _for_stale_data(config: RunConfig) -> str:
    if not isinstance(config, PPOConfig) or config.staleness.iterations == 0:
        return ""
    return "; × √(effective samples ÷ samples) at each iteration" * config.staleness.scale_learning_rate


def _held(row: PlanRow) -> str:
    return "; at the minibatch limit" * (row.regime == "minibatch limit")


def _while_it_changes(config: RunConfig) -> str:
    """What to add to each rule: with a controller, the batch shown is only that of the start."""
    if config.controller.kind == "fixed" or config.controller.compensate == "all":
        return ""
    return "; kept while the batch changes"


def _copy(every: int) -> str:
    steps = f"{every:,} gradient step{'s' * (every > 1)}"
    return f"{steps} (mean age {rescale.mean_copy_age(every):.4g})"


def _decay(decay: float, meaning: Callable[[float], float], unit: str) -> str:
    return f"{decay:.6g} ({unit} {meaning(decay):.4g})"
