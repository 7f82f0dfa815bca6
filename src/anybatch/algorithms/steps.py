"""The steps from a batch to its gradient steps, shared by all algorithms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anybatch import seeding
from anybatch.algorithms.state import TrainState
from anybatch.config import RunConfig
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.learning import minibatch
from anybatch.learning.gradient_steps import AddGradient, GradientSteps, Record
from anybatch.learning.staging import staged


@dataclass(frozen=True)
class Minibatch:
    """The samples behind one gradient step."""

    own: Tensor
    """The samples of this rank, as indices into its flattened samples, on their device."""
    of_all: Tensor
    """The samples of all ranks, as indices into the flattened samples of all envs, on the host."""
    shard: Shard

    @classmethod
    def of(cls, indices: Tensor, shard: Shard, device: torch.device) -> "Minibatch":
        return cls(staged(shard.own_indices(indices), device), indices, shard)

    @property
    def count(self) -> float:
        return float(self.of_all.numel())  # faster than len, which is Python

    def own_among(self, indices: Tensor) -> Tensor:
        """This rank's part of samples of all envs, in the order of `own`."""
        return staged(self.shard.own_indices(indices), self.own.device)


def minibatches(
    all_valid: Tensor, state: TrainState[Any], config: RunConfig, *, device: torch.device
) -> list[Minibatch]:
    """The gradient steps of one epoch: one draw over the samples of all ranks, which are not moved.

    `all_valid` is [T, N] over all envs of the run, on the host; the samples are on `device`.
    """
    parts = minibatch.epoch(
        all_valid,
        state.batch.minibatches_per_epoch,
        config.update.minibatch_of,
        state.rank.minibatch_generator,
        config.update.draw,
    )
    shard = state.shard
    drawn = [Minibatch.of(part, shard, device) for part in parts if part.numel()]
    if not shard.is_whole:
        state.steps.counts.imbalances += imbalances([part.of_all for part in drawn], shard.total)
    return drawn


def imbalances(parts: Sequence[Tensor], num_envs: int) -> list[float]:
    """Of each minibatch, the largest number of samples on a rank ÷ the mean: how long the others wait."""
    if not parts:  # reset steps only
        return []
    shards = Shard.whole(num_envs).split(collectives.world_size())
    ends = torch.tensor([shard.first + shard.count for shard in shards])
    owners = torch.bucketize(torch.cat([*parts]) % num_envs, ends, right=True)
    numbers = torch.arange(len(parts)).repeat_interleave(torch.tensor([part.numel() for part in parts]))
    counts = torch.zeros(len(parts), len(shards), dtype=torch.int64)
    counts.index_put_((numbers, owners), torch.tensor(1), accumulate=True)
    return (counts.amax(1) * len(shards) / counts.sum(1)).tolist()


def steps_ahead(config: RunConfig, steps: GradientSteps, batches: Sequence[Minibatch]) -> int:
    """How many of the next steps native code can take in one call: those before a noise measurement."""
    if not steps.can_be_taken_together(max(batch.own.numel() for batch in batches)):
        return 0
    every = config.update.noise_scale_every
    return len(batches) if every == 0 else min(len(batches), -steps.number % every)


def gradient(
    config: RunConfig, steps: GradientSteps, batch: Minibatch, add_gradient: AddGradient[Record]
) -> list[Record]:
    """Compute the mean gradient of a minibatch into the buffer; at intervals, measure its noise scale too."""
    every, number = config.update.noise_scale_every, steps.number
    if every == 0 or number % every or batch.count < 2:
        return steps.gradient(batch.own, add_gradient, batch.count)
    # A separate stream: a run that measures draws the same minibatches as one that does not.
    generator = seeding.torch_generator(config.seed, role="noise_scale", draw=(number,))
    mixed = batch.of_all[torch.randperm(len(batch.of_all), generator=generator)]
    return steps.measured_gradient(mixed, add_gradient, batch.count, batch.own_among)


def first_bad_value(named: Mapping[str, Tensor], indices: Tensor, shard: Shard) -> str | None:
    """The first tensor with a non-finite number, and where it came from; None if all numbers are finite.

    The tensors are [B, …], with a row for each of the `indices` into [T · N] of the shard; B may be 0.
    """
    for name, tensor in named.items():
        bad = ~torch.isfinite(tensor.float()).view(len(tensor), math.prod(tensor.shape[1:])).all(1)
        if bad.any():
            step, env = divmod(int(indices[int(bad.nonzero()[0, 0])]), shard.count)
            return (
                f"the first is the {name} of environment {shard.first + env} at step {step} of the iteration"
            )
    return None
