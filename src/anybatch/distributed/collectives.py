"""Sums over ranks. Identities in a single process, so that there is one code path for any world size."""

import torch
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


def broadcast_from_first(tensor: Tensor) -> Tensor:
    """The first rank's `tensor` on every rank, in place."""
    if world_size() > 1:
        dist.broadcast(tensor, src=0)
    return tensor


def all_ranks_agree(flag: bool) -> bool:
    """Whether `flag` is true on every rank."""
    if world_size() == 1:
        return flag
    votes = torch.tensor([0 if flag else 1])
    return int(sum_over_ranks(votes)) == 0
