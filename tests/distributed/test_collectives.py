"""Exchanges between real ranks: the same numbers on all of them, and an end where one is lost or hangs."""

import hashlib
import time
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
import torch
from rank_runs import in_ranks
from torch import Tensor

from anybatch.distributed import collectives
from anybatch.errors import LostRankError

SHAPES = ((), (0,), (1,), (7, 3), (2, 0), (5000,), (300_001,))
KINDS = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool)
SUMMED = (torch.float32, torch.float64, torch.int64)


def own_tensor(rank: int, kind: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=kind)
    return torch.randint(0, 2, shape, generator=generator).to(kind)


def digest_of_exchanges() -> str:
    """A digest of joined tensors and sums of every kind and shape, each compared with what it should be."""
    rank, ranks = collectives.rank(), collectives.world_size()
    assert collectives.text_from_rank_0(f"from {rank}") == "from 0"
    assert collectives.largest_over_ranks(rank) == ranks - 1
    digest = hashlib.sha256()
    for kind, shape in product(KINDS, SHAPES):
        of_all = torch.stack([own_tensor(other, kind, shape) for other in range(ranks)])
        joined = collectives.of_all_ranks(own_tensor(rank, kind, shape))
        assert joined.dtype == kind and torch.equal(joined, of_all)
        if kind in SUMMED:
            total = collectives.sum_over_ranks(own_tensor(rank, kind, shape))
            torch.testing.assert_close(total, of_all.sum(0))
            digest.update(total.numpy().tobytes())
    transposed = [own_tensor(other, torch.float32, (7, 3)).T for other in range(ranks)]
    assert torch.equal(collectives.of_all_ranks(transposed[rank]), torch.stack(transposed))
    with pytest.raises(AssertionError):  # gloo would add what lies between the numbers
        collectives.sum_over_ranks(torch.ones(4, 3)[:, 1])
    return digest.hexdigest()


def test_joined_tensors_and_sums_are_right_and_have_the_same_bits_on_all_ranks(tmp_path: Path):
    assert len(set(in_ranks(3, digest_of_exchanges, meeting=tmp_path / "meeting"))) == 1


def sum_until_one_is_lost(ends_after: int, hangs_for: float) -> tuple[str, float]:
    """What the end of rank 1 looks like to this rank, and after how many seconds."""
    sums, start = 0, time.monotonic()
    try:
        while True:
            if collectives.rank() == 1 and sums == ends_after:
                time.sleep(hangs_for)
                return "", 0.0
            collectives.sum_over_ranks(torch.ones(10))
            sums, start = sums + 1, time.monotonic()
    except LostRankError as error:
        return str(error), time.monotonic() - start


def test_a_rank_that_has_ended_is_noticed_at_once(tmp_path: Path):
    found = in_ranks(3, sum_until_one_is_lost, 5, 0.0, meeting=tmp_path / "meeting")
    for rank in (0, 2):
        said, seconds = found[rank]
        assert said.startswith("the connection to another rank was lost (")
        assert "\n" not in said and ".cc" not in said and seconds < 10


def test_a_rank_that_hangs_is_given_up_after_the_timeout(tmp_path: Path):
    timeout = timedelta(seconds=2)
    found = in_ranks(2, sum_until_one_is_lost, 5, 12.0, meeting=tmp_path / "meeting", timeout=timeout)
    said, seconds = found[0]
    assert said.startswith("the connection to another rank was lost (Timed out waiting 2000ms")
    assert 1.5 < seconds < 10
