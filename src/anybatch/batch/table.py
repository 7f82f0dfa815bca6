"""What a person is told of a plan: *number · tuned at · this run · rule*, and why the rule may not hold."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from anybatch.batch.rescaling import Hyperparameters, PhaseNumbers, Ratios
from anybatch.config import PPGConfig, PPOConfig, RunConfig, rescale_rules
from anybatch.equations import rescale


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One line of the table *number · tuned at · this run · rule*."""

    number: str
    tuned_at: str
    this_run: str
    rule: str


def plan_rows(config: RunConfig, ratios: Ratios, run: Hyperparameters) -> list[PlanRow]:
    """The table of what changed and why. Numbers that this run does not use have no row."""
    rules = rescale_rules(config.rescale)
    optimizer = config.optimizer
    power = "" if optimizer.name == "sgd" else "√"
    rows = [
        PlanRow(
            number="learning rate",
            tuned_at=f"{optimizer.learning_rate:.6g}",
            this_run=f"{run.learning_rate:.6g}",
            rule=_rule(
                "learning-rate",
                rules,
                f"× {power}{ratios.minibatch:.4g} (minibatch)",
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
    if isinstance(config, PPGConfig) and run.phase is not None:
        rows += phase_rows(config, rules, ratios.iteration_batch, run.phase)
    return [replace(row, rule=row.rule + _while_it_changes(config)) for row in rows]


def policy_rows(
    config: PPOConfig, rules: frozenset[str], ratios: Ratios, run: Hyperparameters
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


def phase_rows(config: PPGConfig, rules: frozenset[str], ratio: float, run: PhaseNumbers) -> list[PlanRow]:
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
            rule=_rule("auxiliary-phase", rules, f"× √{share:.4g} (auxiliary minibatch)"),
        ),
    ]


def broken_preconditions(config: RunConfig, ratios: Ratios, run: Hyperparameters) -> list[str]:
    """One sentence for each reason why the rule may not hold in this run, as far as can be known before."""
    epochs, tuned_steps = config.update.epochs, config.tuned_at.num_steps
    rescales = bool(rescale_rules(config.rescale)) and not _is_tuned(ratios)
    reasons = [
        (
            rescales and epochs > 1,
            f"The rule assumes one policy epoch; update.epochs = {epochs} makes it approximate.",
        ),
        (
            config.num_steps != tuned_steps,
            f"num-steps = {config.num_steps} where {tuned_steps} was tuned also changes how far returns look "
            "before they bootstrap; changing num-envs does not.",
        ),
    ]
    if isinstance(config, PPOConfig):
        reasons += _broken_for_policies(config, run, rescales=rescales)
    if isinstance(config, PPGConfig) and run.phase is not None:
        reasons.append(_broken_for_phases(config, ratios.iteration_batch, run.phase))
    return [sentence for broken, sentence in reasons if broken]


def _broken_for_policies(
    config: PPOConfig, run: Hyperparameters, *, rescales: bool
) -> list[tuple[bool, str]]:
    normalization = config.objective.advantage_normalization
    center = rescale.center_of_mass(run.proximal_decay)
    one_sample = config.num_envs * config.num_steps == 1 and run.advantage_decay == 0
    return [
        (
            rescales and normalization == "minibatch",
            "objective.advantage-normalization = minibatch depends on the minibatch in a way that no rule "
            "mends; iteration does not.",
        ),
        (
            rescales and config.update.target_kl is not None,
            f"update.target-kl = {config.update.target_kl} ends iterations early, by an amount that depends "
            "on the batch.",
        ),
        (
            config.proximal.policy == "ewma" and round(center, 9) < 1,
            f"The proximal EWMA's center of mass is {center:.3g} gradient steps: below 1 it hardly holds the "
            "update back.",
        ),
        (
            one_sample and normalization == "iteration",
            "An iteration of one sample has a normalized advantage of 0: objective.advantage-decay above 0 "
            "compares it with earlier ones.",
        ),
    ]


def _broken_for_phases(config: PPGConfig, ratio: float, run: PhaseNumbers) -> tuple[bool, str]:
    iterations = rescale.rescaled_phase_iterations(config.phase.policy_iterations, ratio)
    return (
        "phase-length" in rescale_rules(config.rescale)
        and not math.isclose(iterations, run.policy_iterations),
        f"A phase would be {iterations:.4g} iterations; {run.policy_iterations} is the nearest that can be.",
    )


def _is_tuned(ratios: Ratios) -> bool:
    return ratios.minibatch == ratios.iteration_batch == ratios.env_steps_per_gradient_step == 1


def _rule(name: str, rules: frozenset[str], sentence: str) -> str:
    return sentence if name in rules else f"kept (--rescale without {name})"


def _while_it_changes(config: RunConfig) -> str:
    """With a controller, the batch above the table is where the run starts, not what the numbers are for."""
    if config.controller.kind == "fixed" or config.controller.compensate == "all":
        return ""
    return "; kept while the batch changes"


def _decay(decay: float, meaning: Callable[[float], float], unit: str) -> str:
    return f"{decay:.6g} ({unit} {meaning(decay):.4g})"
