"""Ranks on one machine exchange through shared memory: the same sums on all of them, whoever is late."""

import ctypes
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_runs import in_ranks
from torch import Tensor

from anybatch.distributed import collectives
from anybatch.distributed.shared_memory import SLOT_BYTES, SharedMemory, bytes_for
from anybatch.errors import LostRankError

Result = TypeVar("Result")
KINDS = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool)


def never(_rank: int) -> bool:
    return False


@contextmanager
def allocated(ranks: int) -> Iterator[int]:
    """The address of memory for so many ranks."""
    with mmap.mmap(-1, bytes_for(ranks)) as memory:
        yield ctypes.addressof(ctypes.c_char.from_buffer(memory))


def as_ranks(
    ranks: int,
    work: Callable[[SharedMemory], Result],
    *,
    is_lost: Callable[[int], bool] = never,
    seconds: float = 60.0,
) -> list[Result]:
    """What `work` returns for each of several ranks, which are threads here."""
    timeout = timedelta(seconds=seconds)
    with allocated(ranks) as memory, ThreadPoolExecutor(ranks) as pool:
        accesses = [
            SharedMemory(memory, rank, ranks, is_lost=is_lost, timeout=timeout) for rank in range(ranks)
        ]
        return list(pool.map(work, accesses))


def own_tensor(rank: int, kind: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=kind)
    return torch.randint(0, 2, shape, generator=generator).to(kind)


@settings(max_examples=25, deadline=None)
@given(
    ranks=st.integers(1, 5),
    exchanges=st.lists(
        st.tuples(
            st.sampled_from(["sum", "of_all"]),
            st.sampled_from(KINDS),
            st.sampled_from([(), (0,), (1,), (7, 3), (2, 0), (5000,), (SLOT_BYTES // 4 + 13,)]),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_exchanges_in_any_order_are_those_of_torch_and_the_same_on_all_ranks(
    ranks: int, exchanges: list[tuple[str, torch.dtype, tuple[int, ...]]]
):
    def work(memory: SharedMemory) -> list[Tensor]:
        found = []
        for seed, (call, kind, shape) in enumerate(exchanges):
            if random.random() < 0.2:
                time.sleep(random.random() * 0.002)  # ranks are late in turns
            own = own_tensor(memory.rank, kind, shape, seed)
            if call == "sum":
                memory.sum(own)
            found.append(own if call == "sum" else memory.of_all(own))
        return found

    of_ranks = as_ranks(ranks, work)
    for seed, (call, kind, shape) in enumerate(exchanges):
        joined = torch.stack([own_tensor(rank, kind, shape, seed) for rank in range(ranks)])
        expected = joined.sum(0).to(kind) if call == "sum" else joined
        for found in of_ranks:
            assert torch.equal(found[seed], of_ranks[0][seed])
            torch.testing.assert_close(found[seed], expected, rtol=1e-5, atol=1e-5)
            assert found[seed].shape == expected.shape


def test_a_sum_is_made_in_the_tensor_itself_even_if_its_numbers_are_not_side_by_side():
    def work(memory: SharedMemory) -> Tensor:
        whole = torch.full((4, 3), float(memory.rank + 1))
        memory.sum(whole[:, 1])
        return whole

    for rank, whole in enumerate(as_ranks(3, work)):
        assert whole[:, 1].tolist() == [6.0] * 4
        assert whole[:, [0, 2]].tolist() == [[rank + 1.0] * 2] * 4


def test_a_rank_that_has_ended_is_named_and_one_that_hangs_is_given_up():
    def sum_unless_last(memory: SharedMemory) -> str:
        if memory.rank == 2:
            return ""
        with pytest.raises(RuntimeError) as failed:
            memory.sum(torch.ones(3))
        return str(failed.value)

    assert as_ranks(3, sum_unless_last, is_lost=lambda rank: rank == 2) == ["rank 2 has ended"] * 2 + [""]
    found = as_ranks(3, sum_unless_last, seconds=0.06)
    assert found == ["no answer for 0.001 minutes"] * 2 + [""]


def test_a_rank_that_ended_after_its_part_is_not_missed():
    with allocated(2) as memory:
        own = torch.tensor([5.0])

        def finish_and_end(_other: int) -> bool:
            other._library.exchange_write(other._exchange, ctypes.c_void_p(own.data_ptr()), ctypes.c_int64(4))
            return True

        timeout = timedelta(seconds=60)
        one = SharedMemory(memory, 0, 2, is_lost=finish_and_end, timeout=timeout)
        other = SharedMemory(memory, 1, 2, is_lost=never, timeout=timeout)
        assert one.of_all(torch.tensor([1.0])).tolist() == [[1.0], [5.0]]


def open_files() -> list[int]:
    return [number for number in range(3, 256) if os.path.islink(f"/proc/self/fd/{number}")]


def exchange_then_lose_one() -> tuple[float, list[str], str, float]:
    """In three ranks: a sum, the files of shared memory, and how and when the end of one rank shows."""
    numbers = torch.arange(600_000, dtype=torch.float32)
    total = float(collectives.sum_over_ranks(numbers)[-1])
    assert collectives.text_from_rank_0(f"from {collectives.rank()}") == "from 0"
    assert collectives.from_rank_0(collectives.rank()) == 0
    assert collectives.largest_over_ranks(collectives.rank()) == 2
    links = [Path(os.readlink(f"/proc/self/fd/{number}")).name for number in open_files()]
    files = [name for name in links if name.startswith("anybatch-")]
    start = time.monotonic()
    if collectives.rank() == 1:
        return total, files, "", 0.0
    try:
        while True:
            collectives.sum_over_ranks(torch.ones(10))
    except LostRankError as error:
        return total, files, str(error), time.monotonic() - start


def test_ranks_share_memory_without_a_name_and_notice_the_end_of_one(tmp_path: Path):
    found = in_ranks(3, exchange_then_lose_one, meeting=tmp_path / "meeting")
    for total, files, _, seconds in found:
        assert total == 3 * 599_999 and seconds < 30
        assert files and all(name.endswith("(deleted)") for name in files)  # nothing is left behind by a kill
    lost = "the connection to another rank was lost (rank 1 has ended)"
    assert [said for *_, said, _ in found] == [lost, "", lost]


def sum_without_shared_memory() -> tuple[bool, float]:
    return collectives._memory is None, float(collectives.sum_over_ranks(torch.ones(())))


def test_without_native_code_torch_exchanges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert in_ranks(2, sum_without_shared_memory, meeting=tmp_path / "meeting") == [(True, 2.0)] * 2
