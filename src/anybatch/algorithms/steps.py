"""What the loops of all algorithms do between a batch and its gradient steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anybatch import minibatch
from anybatch.config import RunConfig
from anybatch.distributed import collectives
from anybatch.equations import schedules
from anybatch.errors import TrainingError
from anybatch.train_state import TrainState
from anybatch.update import GradientSteps

SKIPS_BEFORE_GIVING_UP = 5
"""Gradient steps in a row that were not numbers before the run ends."""


def current_learning_rate(config: RunConfig, state: TrainState[Any]) -> float:
    learning_rate = state.hyperparameters.learning_rate
    if config.optimizer.anneal == "none":
        return learning_rate
    return schedules.annealed_learning_rate(learning_rate, state.env_steps, config.total_env_steps)


def minibatches(valid: Tensor, state: TrainState[Any], config: RunConfig) -> list[tuple[Tensor, float]]:
    """The gradient steps of one epoch: sample indices of this rank, and their number over all ranks.

    `valid` is [T, N]; indices are into the flattened samples.
    """
    parts = minibatch.epoch(
        valid, state.plan.minibatches_per_epoch, config.update.minibatch_of, state.minibatch_generator
    )
    counts = collectives.sum_over_ranks(torch.tensor([float(len(part)) for part in parts])).tolist()
    return [(part, count) for part, count in zip(parts, counts, strict=True) if count > 0]


def noise_is_due(config: RunConfig, gradient_steps: int, count: float) -> bool:
    every = config.update.noise_scale_every
    return every > 0 and gradient_steps % every == 0 and count >= 2


def take_step(steps: GradientSteps, culprit: Callable[[], str]) -> bool:
    """Apply the gradient in the buffer, if it is one; give up after several in a row that were not numbers.

    `culprit` says what the first bad number is.
    """
    applied = steps.apply()
    if not applied and steps.counts.skipped_in_a_row >= SKIPS_BEFORE_GIVING_UP:
        raise TrainingError(
            f"{SKIPS_BEFORE_GIVING_UP} gradient steps in a row were not numbers; {culprit()}. The newest "
            "checkpoint is from before; a lower learning rate or a gradient clip may help"
        )
    return applied
