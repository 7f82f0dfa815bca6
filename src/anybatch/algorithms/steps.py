"""What the loops of all algorithms do between a batch and its gradient steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anybatch import seeding
from anybatch.algorithms.state import TrainState
from anybatch.config import RunConfig
from anybatch.distributed import collectives
from anybatch.errors import TrainingError
from anybatch.learning import minibatch
from anybatch.learning.gradient_steps import AddGradient, GradientSteps, Record

SKIPS_BEFORE_GIVING_UP = 5
"""Non-finite gradient steps in a row before the run ends."""


def minibatches(valid: Tensor, state: TrainState[Any], config: RunConfig) -> list[tuple[Tensor, float]]:
    """The gradient steps of one epoch: sample indices of this rank, and their number over all ranks.

    `valid` is [T, N]; indices are into the flattened samples.
    """
    parts = minibatch.epoch(
        valid, state.batch.minibatches_per_epoch, config.update.minibatch_of, state.rank.minibatch_generator
    )
    return [(part, count) for part, count in zip(parts, sizes_over_ranks(parts), strict=True) if count > 0]


def sizes_over_ranks(parts: list[Tensor]) -> list[float]:
    return collectives.sum_over_ranks(torch.tensor([float(len(part)) for part in parts])).tolist()


def gradient(
    config: RunConfig, steps: GradientSteps, indices: Tensor, add_gradient: AddGradient[Record], count: float
) -> list[Record]:
    """Leave the mean gradient of a minibatch in the buffer; now and then, measure its noise scale too."""
    every, taken = config.update.noise_scale_every, steps.counts.taken
    if every == 0 or taken % every or count < 2:
        return steps.gradient(indices, add_gradient, count)
    # A stream of its own: a run that measures takes the same minibatches as one that does not.
    generator = seeding.torch_generator(
        config.seed, role="noise_scale", rank=collectives.rank(), draw=(taken,)
    )
    return steps.measured_gradient(
        indices[torch.randperm(len(indices), generator=generator)], add_gradient, count
    )


def take_step(steps: GradientSteps, culprit: Callable[[], str]) -> bool:
    """Apply the gradient in the buffer if it is finite; give up after several in a row that were not.

    `culprit` says what the first bad number is.
    """
    applied = steps.apply()
    if not applied and steps.counts.skipped_in_a_row >= SKIPS_BEFORE_GIVING_UP:
        raise TrainingError(
            f"{SKIPS_BEFORE_GIVING_UP} gradient steps in a row were non-finite; {culprit()}. The newest "
            "checkpoint is from before them; a lower learning rate or a gradient clip may help"
        )
    return applied
