"""Shards: which environments of a run a process owns."""

import pytest
import torch

from anybatch.distributed.shard import Shard


@pytest.mark.parametrize("total", [1, 5, 7, 64])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_shards_follow_each_other_and_differ_by_at_most_one_env(total: int, parts: int):
    shards = [Shard.part(total, index=index, parts=parts) for index in range(parts)]
    owned = [env for shard in shards for env in range(total)[shard.envs]]
    assert owned == list(range(total))
    counts = [shard.count for shard in shards]
    assert max(counts) - min(counts) <= 1 and sum(counts) == total
    assert all(shard.is_whole == (shard.count == total) for shard in shards)


def test_shards_of_a_shard_are_numbered_as_in_the_run():
    first, second = Shard(first=3, count=5, total=11).split(2)
    assert (first.first, first.count, first.total) == (3, 3, 11)
    assert (second.first, second.count, second.total) == (6, 2, 11)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_indices_into_all_samples_become_those_of_the_shards_that_have_them(parts: int):
    """T = 3 steps of N = 7 envs: each sample is one shard's, in the order of the indices."""
    samples = torch.arange(3 * 7).view(3, 7)
    order = torch.randperm(21, generator=torch.Generator().manual_seed(1))[:17]
    found: list[int] = []
    for index in range(parts):
        shard = Shard.part(7, index=index, parts=parts)
        own = samples[:, shard.envs].flatten()[shard.local_indices(order)]
        places = [order.tolist().index(sample) for sample in own.tolist()]
        assert places == sorted(places)
        found += own.tolist()
    assert sorted(found) == sorted(order.tolist())
