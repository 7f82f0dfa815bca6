"""Sums over ranks. Identities in a single process, so that there is one code path for any world size."""

import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of `tensor` over all ranks, in place. Every rank must call it, in the same order."""
    if world_size() > 1:
        dist.all_reduce(tensor)
    return tensor
