"""Which samples go into which gradient step, and how they get to the device that trains on them.

Sizes need not divide evenly: the plan fixes the number of minibatches, and each epoch's valid samples (or
sequences) are split into that many parts whose sizes differ by at most one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from anybatch import machine
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard

Draw = Literal["random", "stratified"]


@dataclass
class Columns:
    """Samples as columns [B, …] of equal length, which minibatches take rows from."""

    COLUMNS: ClassVar[tuple[str, ...]] = ()
    SHARED: ClassVar[tuple[str, ...]] = ()
    """Tensors that belong to all rows."""

    def rows(self, part: Tensor, device: torch.device) -> Self:
        """The samples at the indices `part`, on the network's device."""
        # `index_select` costs half of indexing.
        taken = {name: staged(getattr(self, name).index_select(0, part), device) for name in self.COLUMNS}
        return self._with(taken, device)

    def on_device(self, device: torch.device) -> Self:
        """All samples on `device`, moved once if they fit; otherwise unchanged."""
        columns: dict[str, Tensor] = {name: getattr(self, name) for name in self.COLUMNS}
        count = sum(tensor.nbytes for tensor in columns.values() if tensor.device != device)
        if count == 0 or not machine.fits_beside_training(count, device):
            return self
        return self._with({name: staged(tensor, device) for name, tensor in columns.items()}, device)

    def _with(self, columns: dict[str, Tensor], device: torch.device) -> Self:
        shared: dict[str, Any] = {name: getattr(self, name) for name in self.SHARED}
        moved = {name: staged(tensor, device) for name, tensor in shared.items() if tensor is not None}
        return replace(self, **columns, **moved)


def staged(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`, copied from pinned memory so that the program need not wait."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@dataclass(frozen=True)
class Minibatch:
    """The samples behind one gradient step."""

    local: Tensor
    """The samples of this rank, as indices into its flattened samples, on their device."""
    of_all: Tensor
    """The samples of all ranks, as indices into the flattened samples of all envs, on the host."""
    shard: Shard

    @classmethod
    def of(cls, indices: Tensor, shard: Shard, device: torch.device) -> "Minibatch":
        local = shard.local_indices(indices)
        return cls(local if local.device == device else staged(local, device), indices, shard)

    @property
    def count(self) -> float:
        return float(self.of_all.numel())  # faster than len, which is Python


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


def epoch(
    valid: Tensor,
    minibatches: int,
    minibatch_of: Literal["samples", "sequences"],
    generator: torch.Generator,
    draw: Draw = "random",
) -> list[Tensor]:
    """Index vectors into the flattened [T · N] samples, one for each gradient step of an epoch.

    `valid` is [T, N]. Together the parts hold every valid sample once. A part can be empty if there are
    fewer valid samples than minibatches; every rank makes the same number of parts.
    """
    if minibatch_of == "sequences":
        return sequence_epoch(valid[None], minibatches, generator, draw)
    samples = valid.flatten().nonzero().squeeze(1)
    if draw == "stratified":
        envs = samples % valid.shape[1]
        return [samples[places] for places in stratified(envs, minibatches, generator)]
    order = torch.randperm(len(samples), generator=generator)
    return list(torch.tensor_split(samples[order], minibatches))


def sequence_epoch(
    valid: Tensor, minibatches: int, generator: torch.Generator, draw: Draw = "random"
) -> list[Tensor]:
    """Like `epoch`, for sequences mixed across segments; `valid` is [S, T, N], indices are into [S·T·N]."""
    segments, steps, envs = valid.shape
    flat_valid, nothing = valid.flatten(), torch.empty(0, dtype=torch.int64)
    sequences = shuffled_sequences(segments, steps, envs, minibatches, generator)
    groups = split_evenly(sequences, minibatches)
    if draw == "stratified":
        env_of_each = torch.tensor([int(sequence[0]) % envs for sequence in sequences])
        places = stratified(env_of_each, minibatches, generator)
        groups = [[sequences[place] for place in part.tolist()] for part in places]
    parts = [torch.cat([nothing, *group]) for group in groups]
    return [part[flat_valid[part]] for part in parts]


def stratified(envs: Tensor, parts: int, generator: torch.Generator) -> list[Tensor]:
    """Random parts of 0 … len(envs) - 1, in which any range of envs is about equally frequent.

    In the order of their envs, of every `parts` consecutive ones each part gets one. So parts differ by at
    most two in how many they have from a range of envs, such as those of a rank.
    """
    order = torch.randperm(len(envs), generator=generator)
    order = order[envs[order].argsort(stable=True)]
    rows = -(-len(envs) // parts)
    part_of_each = torch.rand(rows, parts, generator=generator).argsort(1).flatten()[: len(envs)]
    sizes = part_of_each.bincount(minlength=parts).tolist()
    return list(order[part_of_each.argsort(stable=True)].split(sizes))


def shuffled_sequences(
    num_segments: int, num_steps: int, num_envs: int, minibatches: int, generator: torch.Generator
) -> list[Tensor]:
    """Whole env sequences in random order; cut into contiguous time chunks until there are enough.

    Chunks of one sequence follow each other in time order, as in the paper's code: 4 envs for 8 minibatches
    give two halves each, 1 env gives 8 consecutive chunks.
    """
    num_sequences = num_segments * num_envs
    chunks = min(-(-minibatches // num_sequences), num_steps)
    times = (torch.arange(num_steps) * num_envs).tensor_split(chunks)
    starts = torch.arange(num_segments)[:, None] * (num_steps * num_envs) + torch.arange(num_envs)
    order = starts.flatten()[torch.randperm(num_sequences, generator=generator)].tolist()
    return [start + time for start in order for time in times]


def split_evenly(items: list[Tensor], parts: int) -> list[list[Tensor]]:
    """Consecutive groups whose sizes differ by at most one."""
    size, larger = divmod(len(items), parts)
    ends = [(size + 1) * part if part <= larger else size * part + larger for part in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


def microbatches(indices: Tensor, microbatch: int) -> tuple[Tensor, ...]:
    """`indices` in the fewest parts of at most `microbatch`, evenly."""
    return indices.tensor_split(max(1, -(-len(indices) // microbatch)))
