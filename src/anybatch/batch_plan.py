"""The batches of a run, and the numbers that follow from them: the dial.

The only arithmetic between envs, steps, ranks, minibatch and microbatch is here. A plan is always computed
from the numbers at the batch they were tuned at, never from another plan.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from anybatch.config import PPGConfig, PPOConfig, RunConfig, TunedAt, rescale_rules
from anybatch.equations import rescale
from anybatch.phase_size import PhaseSize

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

SMALLEST_AUXILIARY_SHARE = 1 / 4
"""The auxiliary minibatch does not fall below this share of its tuned size: smaller ones take too long."""


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
            f"iteration batch  {self.num_envs:,} envs × {self.num_steps:,} steps{ranks}"
            f" = {self.iteration_batch:,} samples",
            f"minibatch        {self.iteration_batch:,} ÷ {self.minibatches_per_epoch} = {minibatch} samples,"
            f" {self.epochs} epoch{'s' * (self.epochs > 1)}"
            f" = {self.gradient_steps_per_iteration} gradient steps an iteration",
            f"microbatch       {self.microbatch:,} samples at most: "
            f"{microbatches:.0f} pass{'es' * (microbatches > 1)} a gradient step",
        ]


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """Nominal batch of this run ÷ batch it was tuned at. The paper's c is the inverse."""

    minibatch: float
    env_steps_per_gradient_step: float
    iteration_batch: float


@dataclass(frozen=True, kw_only=True)
class PhaseNumbers:
    """PPG: how long a phase is, and how its auxiliary part steps."""

    policy_iterations: int
    auxiliary_minibatch: int
    auxiliary_learning_rate: float


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The numbers that belong to a batch."""

    learning_rate: float
    beta1: float
    beta2: float
    proximal_decay: float
    """0 where there is no proximal policy."""
    advantage_decay: float
    """0 where there are no advantages."""
    phase: PhaseNumbers | None = None


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One line of the table *number · tuned at · this run · rule*."""

    number: str
    tuned_at: str
    this_run: str
    rule: str


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


def rescaled(config: RunConfig, ratios: Ratios) -> Hyperparameters:
    """Each number follows the batch it belongs to (arXiv:2110.00641, §3.2 and §4)."""
    rules = rescale_rules(config.rescale)
    optimizer = config.optimizer

    def ratio(rule: str, value: float) -> float:
        return value if rule in rules else 1.0

    beta_ratio = ratio("adam-betas", ratios.minibatch)
    return Hyperparameters(
        learning_rate=rescale.rescaled_learning_rate(
            optimizer.learning_rate, ratio("learning-rate", ratios.minibatch), optimizer.name
        ),
        beta1=rescale.rescaled_adam_beta(optimizer.beta1, beta_ratio),
        beta2=rescale.rescaled_adam_beta(optimizer.beta2, beta_ratio),
        proximal_decay=rescale.rescaled_proximal_decay(
            config.proximal.ewma_decay, ratio("proximal-ewma", ratios.env_steps_per_gradient_step)
        )
        if isinstance(config, PPOConfig)
        else 0.0,
        advantage_decay=rescale.rescaled_advantage_decay(
            config.objective.advantage_decay,
            ratio("advantage-moments", ratios.iteration_batch),
            floor=True,
        )
        if isinstance(config, PPOConfig)
        else 0.0,
        phase=rescaled_phase(config, rules, ratios.iteration_batch)
        if isinstance(config, PPGConfig)
        else None,
    )


def rescaled_phase(config: PPGConfig, rules: frozenset[str], ratio: float) -> PhaseNumbers:
    """A phase keeps its env steps. Its auxiliary minibatch follows the iteration batch down to a quarter.

    The paper kept the auxiliary minibatch of a worker and rescaled for the change from 4 workers to 1 only
    (arXiv:2110.00641, App. A): for any number of ranks that is this floor.
    """
    phase = config.phase
    iterations = rescale.rescaled_phase_iterations(
        phase.policy_iterations, ratio if "phase-length" in rules else 1.0, floor=True
    )
    share = max(ratio, SMALLEST_AUXILIARY_SHARE) if "auxiliary-phase" in rules else 1.0
    minibatch = max(1, round(phase.auxiliary_minibatch * share))
    return PhaseNumbers(
        policy_iterations=int(iterations),
        auxiliary_minibatch=minibatch,
        auxiliary_learning_rate=rescale.rescaled_learning_rate(
            phase.auxiliary_learning_rate, minibatch / phase.auxiliary_minibatch, "adam"
        ),
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
        follows_the_batch="phase-length" in rescale_rules(config.rescale),
    )


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
            rule=_rule("learning-rate", rules, f"× {power}{ratios.minibatch:.4g} (minibatch)"),
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
    return rows


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


def _decay(decay: float, meaning: Callable[[float], float], unit: str) -> str:
    return f"{decay:.6g} ({unit} {meaning(decay):.4g})"
