"""The numbers that belong to a batch, and how they follow it from the batch they were tuned at."""

from dataclasses import dataclass

from anybatch.config import PPGConfig, PPOConfig, RunConfig, rescale_rules
from anybatch.equations import rescale

SMALLEST_AUXILIARY_SHARE = 1 / 4
"""The auxiliary minibatch does not fall below this share of its tuned size: smaller ones take too long."""


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
        phase.policy_iterations, ratio if "phase-length" in rules else 1.0, rounded=True
    )
    share = max(ratio, SMALLEST_AUXILIARY_SHARE) if "auxiliary-phase" in rules else 1.0
    whole_phase = iterations * ratio * config.tuned_at.iteration_batch
    minibatch = max(1, round(min(phase.auxiliary_minibatch * share, whole_phase)))
    return PhaseNumbers(
        policy_iterations=int(iterations),
        auxiliary_minibatch=minibatch,
        auxiliary_learning_rate=rescale.rescaled_learning_rate(
            phase.auxiliary_learning_rate, minibatch / phase.auxiliary_minibatch, "adam"
        ),
    )
