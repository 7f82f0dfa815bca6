"""A plan in words: its batches, the table *number · tuned at · this run · rule*, and notes."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from anybatch.batch.phase import PhasePlan
from anybatch.batch.plan import Plan
from anybatch.batch.rescaling import Hyperparameters, Ratios
from anybatch.batch.sizes import BatchSizes
from anybatch.config import PPGConfig, PPOConfig, RescaleRules, RunConfig, rescale_rules
from anybatch.equations import rescale
from anybatch.machine import readable


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One line of the table *number · tuned at · this run · rule*."""

    number: str
    tuned_at: str
    this_run: str
    rule: str


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
        lines=(*batch_lines(plan.batch), *controller_lines(plan), *phase_lines(config, plan)),
        rows=tuple(plan_rows(config, plan)),
        warnings=tuple(broken_preconditions(config, plan)),
    )


def batch_lines(batch: BatchSizes) -> list[str]:
    """The batches as products."""
    ranks = "" if batch.ranks == 1 else f" × {batch.ranks} ranks"
    minibatch = f"{batch.minibatch:,.0f}" if batch.minibatch.is_integer() else f"{batch.minibatch:,.1f}"
    microbatches = -(-batch.minibatch // batch.microbatch)
    return [
        f"iteration batch  {batch.num_envs:,} env{'s' * (batch.num_envs > 1)} × "
        f"{batch.num_steps:,} steps{ranks}"
        f" = {batch.iteration_batch:,} samples",
        f"minibatch        {batch.iteration_batch:,} ÷ {batch.minibatches_per_epoch} = {minibatch} samples,"
        f" {batch.epochs} epoch{'s' * (batch.epochs > 1)}"
        f" = {batch.gradient_steps_per_iteration} gradient steps per iteration",
        f"microbatch       {batch.microbatch:,} samples at most: "
        f"{microbatches:.0f} pass{'es' * (microbatches > 1)} per gradient step",
    ]


def controller_lines(plan: Plan) -> list[str]:
    """The range of batches that a controller may choose from."""
    if plan.step_range is None:
        return []
    smallest, largest = (replace(plan.batch, num_steps=steps) for steps in plan.step_range)
    return [
        f"controller       {smallest.num_steps:,} to {largest.num_steps:,} steps: iteration batch "
        f"{smallest.iteration_batch:,} to {largest.iteration_batch:,} samples, minibatch "
        f"{smallest.minibatch:,.0f} to {largest.minibatch:,.0f}",
    ]


def phase_lines(config: RunConfig, plan: Plan) -> list[str]:
    """The phase of PPG as products, and the memory and disk space of its data."""
    phase = plan.phase
    if phase is None or not isinstance(config, PPGConfig):
        return []
    lines = [
        f"phase            {phase.policy_iterations:,} iterations × {plan.batch.iteration_batch:,}"
        f" = {phase.env_steps:,} env steps, then {phase.auxiliary_epochs} auxiliary epochs of"
        f" {phase.auxiliary_minibatches:,} gradient steps"
    ]
    if phase.memory_bytes is None:
        return lines
    once, twice = readable(phase.memory_bytes), readable(2 * phase.memory_bytes)
    keeps_env_steps = "phase-length" in rescale_rules(config.rescale) and phase.env_steps == (
        config.phase.policy_iterations * plan.tuned_at.iteration_batch
    )
    at_any_batch = "; the same at any batch, since the rule keeps a phase's env steps" * keeps_env_steps
    on_disk = (
        f"{once} in checkpoints, up to {twice} while they need two phases (--phase.no-save-data: none)"
        if config.phase.save_data
        else "none: checkpoints are saved between two phases only"
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
    return (
        f"{env_steps:,} env steps: rollouts of {before.num_steps:,} → {batch.num_steps:,} steps, "
        f"iteration batch {batch.iteration_batch:,}, minibatch {batch.minibatch:,.0f}, "
        f"{batch.epochs} epoch{'s' * (batch.epochs > 1)}, "
        f"learning rate {now.hyperparameters.learning_rate:.4g}"
    )


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


def broken_preconditions(config: RunConfig, plan: Plan) -> list[str]:
    """One sentence for each reason, known before the run, why the rules may not hold in it."""
    epochs, tuned_steps = config.update.epochs, plan.tuned_at.num_steps
    anneal_until = config.optimizer.anneal_until
    rescales = bool(rescale_rules(config.rescale)) and not plan.ratios.are_one
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
        (
            anneal_until is not None and anneal_until < config.total_env_steps,
            f"The learning rate is 0 from optimizer.anneal-until = {anneal_until} on, before "
            f"total-env-steps = {config.total_env_steps}.",
        ),
    ]
    if isinstance(config, PPOConfig):
        reasons += _broken_for_policies(config, plan.hyperparameters, rescales=rescales)
    if isinstance(config, PPGConfig) and plan.phase is not None:
        reasons.append(_broken_for_phases(config, plan.ratios.iteration_batch, plan.phase))
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
            "corrects; iteration does not.",
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


def _broken_for_phases(config: PPGConfig, ratio: float, run: PhasePlan) -> tuple[bool, str]:
    iterations = rescale.rescaled_phase_iterations(config.phase.policy_iterations, ratio)
    return (
        "phase-length" in rescale_rules(config.rescale)
        and not math.isclose(iterations, run.policy_iterations),
        f"A phase would be {iterations:.4g} iterations; {run.policy_iterations} is the nearest that can be.",
    )


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
