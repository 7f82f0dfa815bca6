"""Exchanges between ranks. In a single process they are identities: one code path serves any world size.

Every rank must call each of these, in the same order. Only tensors are sent: nothing is pickled.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from anybatch.distributed.shard import Shard
from anybatch.errors import LostRankError

_seconds = 0.0


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def local_shard(total: int) -> Shard:
    """The environments of this rank, of `total` environments of the run."""
    return Shard.part(total, index=rank(), parts=world_size())


def take_seconds() -> float:
    """Seconds that this rank has spent in exchanges, including waiting, since the last call."""
    global _seconds
    taken, _seconds = _seconds, 0.0
    return taken


@contextmanager
def _timed() -> Iterator[None]:
    """Count the time of an exchange, and turn its failure into LostRankError."""
    global _seconds
    start = time.perf_counter()
    try:
        yield
    except RuntimeError as error:
        raise LostRankError(f"the connection to another rank was lost ({_reason(error)})") from None
    finally:
        _seconds += time.perf_counter() - start


def _reason(error: RuntimeError) -> str:
    """The first sentence of torch's error, without the place in its source."""
    return re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0]).partition(". ")[0]


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of `tensor` over all ranks, in place and with the same bits on every rank."""
    if world_size() > 1:
        assert tensor.is_contiguous()  # gloo would add the memory between the numbers
        with _timed():
            dist.all_reduce(tensor)
    return tensor


def of_all_ranks(tensor: Tensor) -> Tensor:
    """The tensors of all ranks, which have the same shape, along a new first axis."""
    if world_size() == 1:
        return tensor[None]
    tensor = tensor.contiguous()
    parts = [torch.empty_like(tensor) for _ in range(world_size())]
    with _timed():
        dist.all_gather(parts, tensor)
    return torch.stack(parts)


def largest_over_ranks(number: int) -> int:
    """The largest of the ranks' numbers."""
    if world_size() == 1:
        return number
    return int(of_all_ranks(torch.tensor(number)).max())


def from_rank_0(number: int) -> int:
    """The number that rank 0 has."""
    if world_size() == 1:
        return number
    return int(of_all_ranks(torch.tensor(number))[0])


def text_from_rank_0(text: str) -> str:
    """The text that rank 0 has."""
    told = list(text.encode())
    length = from_rank_0(len(told))
    content = torch.tensor(told if rank() == 0 else [0] * length, dtype=torch.uint8)
    return bytes(of_all_ranks(content)[0].tolist()).decode()


def rows_of_all_ranks(rows: Tensor) -> Tensor:
    """The rows [n, k] of rank 0, then those of rank 1, and so on; n may differ from rank to rank."""
    if world_size() == 1:
        return rows
    counts = of_all_ranks(torch.tensor(len(rows))).tolist()
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = of_all_ranks(padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def envs_of_all_ranks(tensor: Tensor, total: int, axis: int) -> Tensor:
    """`tensor` of this rank's environments along `axis`, joined to all `total` environments."""
    return gather_envs(tensor, total, axis, everywhere=True)


def gather_envs(tensor: Tensor, total: int, axis: int, *, everywhere: bool = False) -> Tensor:
    """`envs_of_all_ranks` on rank 0; other ranks get only their own part back, to save memory."""
    if world_size() == 1:
        return tensor
    rows = tensor.movedim(axis, 0)
    parts = _parts(_padded_bytes(rows, total), everywhere=everywhere)
    if parts is None:
        return tensor
    shards = Shard.whole(total).split(world_size())
    joined = torch.cat([part[: shard.count] for part, shard in zip(parts, shards, strict=True)])
    whole = joined.flatten().view(rows.dtype).view(len(joined), *rows.shape[1:])
    return whole.movedim(0, axis).contiguous()


def gather_env_arrays(arrays: Sequence[np.ndarray], total: int) -> list[np.ndarray]:
    """`gather_envs` for arrays of any type whose first axis is the environments, in one exchange."""
    if world_size() == 1 or not arrays:
        return list(arrays)
    rows = [
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(len(array), -1) for array in arrays
    ]
    joined = gather_envs(torch.from_numpy(np.concatenate(rows, axis=1)), total, 0).numpy()
    ends = np.cumsum([row.shape[1] for row in rows])
    return [
        np.ascontiguousarray(part).reshape(-1).view(array.dtype).reshape(len(joined), *array.shape[1:])
        for array, part in zip(arrays, np.split(joined, ends[:-1], axis=1), strict=True)
    ]


def _padded_bytes(rows: Tensor, total: int) -> Tensor:
    """The rows as bytes, [n, width], padded to the largest shard: gloo sends only equal shapes."""
    content = rows.contiguous().flatten().view(torch.uint8).view(len(rows), -1)
    largest = -(-total // world_size())
    return torch.cat([content, content.new_zeros(largest - len(content), content.shape[1])])


def _parts(tensor: Tensor, *, everywhere: bool) -> Tensor | list[Tensor] | None:
    """The tensors of all ranks; None on ranks other than 0 unless `everywhere`."""
    if everywhere:
        return of_all_ranks(tensor)
    parts = [torch.empty_like(tensor) for _ in range(world_size())] if rank() == 0 else None
    with _timed():
        dist.gather(tensor, parts, dst=0)
    return parts
