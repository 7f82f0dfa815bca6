"""The rows of a plan's table *number · tuned at · this run · rule*."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from anybatch.batch.phase import PhasePlan
from anybatch.batch.plan import Plan
from anybatch.batch.rescaling import Hyperparameters, Ratios
from anybatch.config import PPGConfig, PPOConfig, RescaleRules, RunConfig, rescale_rules
from anybatch.equations import rescale


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One line of the table *number · tuned at · this run · rule*."""

    number: str
    tuned_at: str
    this_run: str
    rule: str


def plan_rows(config: RunConfig, plan: Plan) -> list[PlanRow]:
    """The rows of all numbers that this run uses."""
    ratios, run = plan.ratios, plan.hyperparameters
    rules = rescale_rules(config.rescale)
    optimizer = config.optimizer
    rows = [
        PlanRow(
            number="learning rate",
            tuned_at=f"{optimizer.learning_rate:.6g}",
            this_run=f"{run.learning_rate:.6g}",
            rule=_rule(
                "learning-rate",
                rules,
                _learning_rate_rule(ratios.minibatch, "minibatch", optimizer.name, rules),
            ),
        )
    ]
    if isinstance(config, PPOConfig):
        rows += policy_rows(config, rules, ratios, run)
    if "adam-betas" in rules and optimizer.name != "sgd":
        rows.append(
            PlanRow(
                number="Adam β₁, β₂",
                tuned_at=f"{optimizer.beta1:.6g}, {optimizer.beta2:.8g}",
                this_run=f"{run.beta1:.6g}, {run.beta2:.8g}",
                rule=_rule("adam-betas", rules, f"power {ratios.minibatch:.4g} (minibatch)"),
            )
        )
    if isinstance(config, PPGConfig) and plan.phase is not None:
        rows += phase_rows(config, rules, ratios.iteration_batch, plan.phase)
    return [replace(row, rule=row.rule + _while_it_changes(config)) for row in rows]


def policy_rows(
    config: PPOConfig, rules: RescaleRules, ratios: Ratios, run: Hyperparameters
) -> list[PlanRow]:
    rows: list[PlanRow] = []
    if config.proximal.policy == "ewma":
        rows.append(
            PlanRow(
                number="proximal EWMA decay",
                tuned_at=_decay(config.proximal.ewma_decay, rescale.center_of_mass, "center of mass"),
                this_run=_decay(run.proximal_decay, rescale.center_of_mass, "center of mass"),
                rule=_rule(
                    "proximal-ewma",
                    rules,
                    f"center of mass ÷ {ratios.env_steps_per_gradient_step:.4g} "
                    "(env steps per gradient step)",
                ),
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
            )
        )
    return rows


def phase_rows(config: PPGConfig, rules: RescaleRules, ratio: float, run: PhasePlan) -> list[PlanRow]:
    phase = config.phase
    share = run.auxiliary_minibatch / phase.auxiliary_minibatch
    return [
        PlanRow(
            number="iterations per phase",
            tuned_at=f"{phase.policy_iterations:,}",
            this_run=f"{run.policy_iterations:,}",
            rule=_rule("phase-length", rules, f"÷ {ratio:.4g} (iteration batch), at least 1"),
        ),
        PlanRow(
            number="auxiliary minibatch",
            tuned_at=f"{phase.auxiliary_minibatch:,}",
            this_run=f"{run.auxiliary_minibatch:,}",
            rule=_rule("auxiliary-phase", rules, f"× {ratio:.4g} (iteration batch), at least a quarter"),
        ),
        PlanRow(
            number="auxiliary learning rate",
            tuned_at=f"{phase.auxiliary_learning_rate:.6g}",
            this_run=f"{run.auxiliary_learning_rate:.6g}",
            rule=_rule(
                "auxiliary-phase", rules, _learning_rate_rule(share, "auxiliary minibatch", "adam", rules)
            ),
        ),
    ]


def _rule(name: str, rules: RescaleRules, sentence: str) -> str:
    return sentence if name in rules else f"kept (--rescale without {name})"


def _learning_rate_rule(ratio: float, batch: str, optimizer: str, rules: RescaleRules) -> str:
    asked = rules.learning_rate
    root = "√" * ((asked or rescale.LEARNING_RATE_RULE[optimizer]) == "square-root")
    return f"× {root}{ratio:.4g} ({batch})" + (f", {asked} rule asked for" if asked is not None else "")


def _while_it_changes(config: RunConfig) -> str:
    """What to add to each rule: with a controller, the batch shown is only that of the start."""
    if config.controller.kind == "fixed" or config.controller.compensate == "all":
        return ""
    return "; kept while the batch changes"


def _decay(decay: float, meaning: Callable[[float], float], unit: str) -> str:
    return f"{decay:.6g} ({unit} {meaning(decay):.4g})"
