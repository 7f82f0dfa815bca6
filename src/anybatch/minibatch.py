"""Which samples go into which gradient step.

Nothing has to divide anything: the plan fixes the number of minibatches, and each epoch's valid samples (or
sequences) are split into that many parts that differ by at most one.
"""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor


def epoch(
    valid: Tensor,
    minibatches: int,
    minibatch_of: Literal["samples", "sequences"],
    generator: torch.Generator,
) -> list[Tensor]:
    """Index vectors into the flattened [T · N] samples, one for each gradient step of an epoch.

    `valid` is [T, N]. Together the parts hold every valid sample once. A part can be empty where there are
    fewer valid samples than minibatches; every rank makes the same number of parts.
    """
    if minibatch_of == "samples":
        samples = valid.flatten().nonzero().squeeze(1)
        order = torch.randperm(len(samples), generator=generator)
        return list(torch.tensor_split(samples[order], minibatches))
    num_steps, num_envs = valid.shape
    sequences = shuffled_sequences(num_steps, num_envs, minibatches, generator)
    flat_valid = valid.flatten()
    parts = []
    for group in split_evenly(sequences, minibatches):
        indices = torch.cat(group)
        parts.append(indices[flat_valid[indices]])
    return parts


def shuffled_sequences(
    num_steps: int, num_envs: int, minibatches: int, generator: torch.Generator
) -> list[Tensor]:
    """Whole env sequences in random order; cut into contiguous time chunks until there are enough.

    Chunks of one env follow each other in time order, as in the paper's code: 4 envs for 8 minibatches give
    two halves each, 1 env gives 8 consecutive chunks.
    """
    chunks = min(-(-minibatches // num_envs), num_steps)
    times = torch.arange(num_steps).tensor_split(chunks)
    order = torch.randperm(num_envs, generator=generator).tolist()
    return [time * num_envs + env for env in order for time in times]


def split_evenly(items: list[Tensor], parts: int) -> list[list[Tensor]]:
    """Consecutive groups whose sizes differ by at most one."""
    size, larger = divmod(len(items), parts)
    ends = [(size + 1) * part if part <= larger else size * part + larger for part in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


def microbatches(indices: Tensor, microbatch: int) -> tuple[Tensor, ...]:
    """`indices` in the fewest parts of at most `microbatch`, evenly."""
    return indices.tensor_split(max(1, -(-len(indices) // microbatch)))
