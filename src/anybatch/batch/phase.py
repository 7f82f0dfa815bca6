"""The phases of PPG: their length, their auxiliary gradient steps and the memory of their data."""

import math
from dataclasses import dataclass

from anybatch.batch.rescaling import Ratios
from anybatch.batch.sizes import BatchSizes
from anybatch.config import PPGConfig, rescale_rules
from anybatch.equations import rescale

SMALLEST_AUXILIARY_SHARE = 1 / 4
"""Smallest auxiliary minibatch, as a share of its tuned size: smaller ones take too long."""


@dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """The numbers of a phase, over all ranks, including reset steps as in every nominal batch."""

    policy_iterations: int
    env_steps: int
    auxiliary_epochs: int
    auxiliary_minibatch: int
    """Samples behind one gradient step of the auxiliary phase."""
    auxiliary_minibatches: int
    """Gradient steps of an auxiliary epoch."""
    auxiliary_learning_rate: float
    obs_bytes: int | None
    """Bytes of one observation; None if no environment could be built."""

    @property
    def memory_bytes(self) -> int | None:
        """Memory of the observations, which are nearly all of a phase's data."""
        return None if self.obs_bytes is None else self.env_steps * self.obs_bytes


def plan_phase(
    config: PPGConfig,
    batch: BatchSizes,
    ratios: Ratios,
    obs_bytes: int | None,
    largest_share: float = math.inf,
) -> PhasePlan:
    """The plan of a phase: its env steps stay the same, its auxiliary minibatch follows the iteration batch.

    With a minibatch limit it stops growing when the minibatch does, at `largest_share` of its tuned size.

    The paper kept the auxiliary minibatch per worker and rescaled only for the change from 4 workers to 1
    (arXiv:2110.00641, App. A): for any number of ranks that is this floor.
    """
    phase, rules, ratio = config.phase, rescale_rules(config.rescale), ratios.iteration_batch
    iterations = int(
        rescale.rescaled_phase_iterations(
            phase.policy_iterations, ratio if "phase-length" in rules else 1.0, rounded=True
        )
    )
    share = min(max(ratio, SMALLEST_AUXILIARY_SHARE), largest_share) if "auxiliary-phase" in rules else 1.0
    whole_phase = iterations * ratio * config.tuned_batch().iteration_batch
    minibatch = max(1, round(min(phase.auxiliary_minibatch * share, whole_phase)))
    env_steps = iterations * batch.iteration_batch
    return PhasePlan(
        policy_iterations=iterations,
        env_steps=env_steps,
        auxiliary_epochs=phase.auxiliary_epochs,
        auxiliary_minibatch=minibatch,
        auxiliary_minibatches=max(1, round(env_steps / minibatch)),
        auxiliary_learning_rate=rescale.rescaled_learning_rate(
            phase.auxiliary_learning_rate,
            minibatch / phase.auxiliary_minibatch,
            "adam",
            rules.learning_rate,
        ),
        obs_bytes=obs_bytes,
    )
