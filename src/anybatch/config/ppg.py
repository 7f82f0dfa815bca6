"""Configuration of PPG and PPG-EWMA."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from anybatch import rules
from anybatch.config.planned import (
    BatchSizes,
    MinibatchLimit,
    PhasePlan,
    Plan,
    PlanRow,
    Regime,
    divided_by,
    learning_rate_rule,
    ratio_text,
    rescale_rules,
)
from anybatch.config.ppo import PPOConfig
from anybatch.config.require import Group, NonNegativeFloat, PositiveFloat, PositiveInt, require
from anybatch.config.tunable import ABOVE_0, Dimension
from anybatch.text import counted, number_text, readable

SMALLEST_AUXILIARY_SHARE = 1 / 4
"""Smallest auxiliary minibatch, as a share of its tuned size: smaller ones take too long."""


@dataclass(frozen=True, kw_only=True)
class PhaseConfig(Group, group="phase"):
    """Policy iterations, then an auxiliary phase on all their data. Numbers refer to the tuned batch."""

    policy_iterations: PositiveInt = 32
    """Iterations before each auxiliary phase (N_π)."""
    value_epochs: PositiveInt = 1
    """Epochs of the value function in the policy phase (E_V); update.epochs is the policy's (E_π). If they
    differ, each has its own optimizer."""
    auxiliary_epochs: PositiveInt = 6
    """Passes over the phase's data in the auxiliary phase (E_aux)."""
    auxiliary_minibatch: PositiveInt = 4096
    """Samples per gradient step of the auxiliary phase, over all ranks."""
    auxiliary_learning_rate: PositiveFloat = 5e-4
    """Learning rate of the auxiliary phase's own Adam."""
    clone_coefficient: NonNegativeFloat = 1.0
    """Weight of the divergence from the policy before the auxiliary phase (β_clone)."""
    save_data: bool = True
    """Keep the phase's data in checkpoints; otherwise checkpoints are saved only at the ends of phases."""


@dataclass(frozen=True, kw_only=True)
class PPGConfig(PPOConfig):
    """PPG and PPG-EWMA."""

    algorithm: ClassVar[str] = "ppg"
    stores_observations: ClassVar[bool] = True
    tunable: ClassVar[tuple[Dimension, ...]] = (
        *PPOConfig.tunable,
        Dimension(
            name="auxiliary-learning-rate", setting="phase.auxiliary_learning_rate", factor=8, sense=ABOVE_0
        ),
    )

    phase: PhaseConfig = field(default_factory=PhaseConfig)

    def __post_init__(self) -> None:
        require(
            self.controller.kind == "fixed",
            f"controller.kind = {self.controller.kind} changes the batch within a run, but all iterations of "
            "a PPG phase must have the same size",
        )
        super().__post_init__()

    def plan_phase(
        self, batch: BatchSizes, ratio: float, *, obs_bytes: int | None, limit: MinibatchLimit | None
    ) -> PhasePlan:
        """The plan of a phase: its env steps stay the same, its auxiliary minibatch follows the iteration
        batch, which is `ratio` times the tuned one.

        With a `limit` of the minibatch it grows only as far as the minibatch does.

        The paper kept the auxiliary minibatch per worker and rescaled only for the change from 4 workers to 1
        (arXiv:2110.00641, App. A): for any number of ranks that is this floor.
        """
        phase, asked = self.phase, rescale_rules(self.rescale)
        iterations = int(
            rules.rescaled_phase_iterations(
                phase.policy_iterations, asked.ratio("phase-length", ratio), rounded=True
            )
        )
        tuned_at = self.tuned_batch()
        grown = ratio if limit is None else limit.grown(ratio, tuned_at)
        share = max(grown, SMALLEST_AUXILIARY_SHARE) if "auxiliary-phase" in asked else 1.0
        whole_phase = iterations * ratio * tuned_at.iteration_batch
        minibatch = max(1, round(min(phase.auxiliary_minibatch * share, whole_phase)))
        env_steps = iterations * batch.iteration_batch
        return PhasePlan(
            policy_iterations=iterations,
            env_steps=env_steps,
            auxiliary_epochs=phase.auxiliary_epochs,
            auxiliary_minibatch=minibatch,
            auxiliary_minibatches=max(1, round(env_steps / minibatch)),
            auxiliary_learning_rate=rules.rescaled_learning_rate(
                phase.auxiliary_learning_rate,
                minibatch / phase.auxiliary_minibatch,
                "adam",
                asked.learning_rate,
            ),
            obs_bytes=obs_bytes,
        )

    def plan_rows(self, plan: Plan) -> list[PlanRow]:
        phase, run, limit = self.phase, plan.phase, plan.minibatch_limit
        asked, ratio = rescale_rules(self.rescale), plan.ratios.iteration_batch
        assert run is not None
        share = run.auxiliary_minibatch / phase.auxiliary_minibatch
        grown = ratio if limit is None else limit.grown(ratio, plan.tuned_at)
        auxiliary: Regime = "iteration batch" if grown == ratio else "minibatch limit"
        return [
            *super().plan_rows(plan),
            PlanRow.by_rule(
                "phase-length",
                asked,
                number="iterations per phase",
                tuned_at=f"{phase.policy_iterations:,}",
                this_run=f"{run.policy_iterations:,}",
                rule=f"{divided_by(ratio)} (iteration batch), at least 1",
                regime="iteration batch",
            ),
            PlanRow.by_rule(
                "auxiliary-phase",
                asked,
                number="auxiliary minibatch",
                tuned_at=f"{phase.auxiliary_minibatch:,}",
                this_run=f"{run.auxiliary_minibatch:,}",
                rule=f"× {ratio_text(grown)} (iteration batch), at least a quarter",
                regime=auxiliary,
            ),
            PlanRow.by_rule(
                "auxiliary-phase",
                asked,
                number="auxiliary learning rate",
                tuned_at=f"{phase.auxiliary_learning_rate:.6g}",
                this_run=f"{run.auxiliary_learning_rate:.6g}",
                rule=learning_rate_rule(share, "auxiliary minibatch", "adam", asked),
                regime=auxiliary,
            ),
        ]

    def plan_lines(self, plan: Plan) -> list[str]:
        """The phase as products, and the memory and disk space of its data."""
        phase = plan.phase
        assert phase is not None
        lines = [
            *super().plan_lines(plan),
            f"phase            {counted(phase.policy_iterations, 'iteration')} × "
            f"{plan.batch.iteration_batch:,} = {counted(phase.env_steps, 'env step')}, then"
            f" {counted(phase.auxiliary_epochs, 'auxiliary epoch')} of"
            f" {counted(phase.auxiliary_minibatches, 'gradient step')}",
        ]
        if phase.memory_bytes is None:
            return lines
        once, twice = readable(phase.memory_bytes), readable(2 * phase.memory_bytes)
        keeps_env_steps = "phase-length" in rescale_rules(self.rescale) and phase.env_steps == (
            self.phase.policy_iterations * plan.tuned_at.iteration_batch
        )
        at_any_batch = (
            "; the same at any batch, since the rule keeps a phase's env steps" if keeps_env_steps else ""
        )
        on_disk = (
            f"{once} in checkpoints, up to {twice} while they span two phases (--phase.no-save-data: none)"
            if self.phase.save_data
            else "none: checkpoints are saved only between phases"
        )
        return [
            *lines,
            f"phase memory     {phase.env_steps:,} × {phase.obs_bytes:,} bytes = {once} of observations"
            + at_any_batch,
            f"phase disk       {on_disk}",
        ]

    def plan_warnings(self, plan: Plan, *, rescales: bool) -> list[tuple[bool, str]]:
        assert plan.phase is not None
        iterations = rules.rescaled_phase_iterations(
            self.phase.policy_iterations, plan.ratios.iteration_batch
        )
        return [
            *super().plan_warnings(plan, rescales=rescales),
            (
                "phase-length" in rescale_rules(self.rescale)
                and not math.isclose(iterations, plan.phase.policy_iterations),
                f"A phase would be {number_text(iterations, 4)} iterations; "
                f"{plan.phase.policy_iterations:,} is the nearest possible.",
            ),
        ]

    def stated(self, plan: Plan) -> dict[str, Any]:
        assert plan.phase is not None
        names = ("policy_iterations", "auxiliary_minibatch", "auxiliary_learning_rate")
        return super().stated(plan) | {"phase": {name: getattr(plan.phase, name) for name in names}}

    @property
    def plan_settings(self) -> dict[str, Any]:
        phase = self.phase
        return super().plan_settings | {
            "phase.policy-iterations": phase.policy_iterations,
            "phase.auxiliary-epochs": phase.auxiliary_epochs,
            "phase.auxiliary-minibatch": phase.auxiliary_minibatch,
            "phase.auxiliary-learning-rate": phase.auxiliary_learning_rate,
        }
