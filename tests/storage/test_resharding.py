"""A checkpoint of one process, divided among ranks by env."""

import pytest
import torch

from anybatch.distributed.shard import Shard
from anybatch.envs.episodes import EPISODES, Episode, from_table, to_table
from anybatch.storage.checkpoint import Snapshot
from anybatch.storage.resharding import of_shard

ENDED = [
    Episode(1.0, 3, env=0, step=2),
    Episode(2.0, 4, env=4, truncated=True, step=3),
    Episode(3.0, 5, env=2, step=3),
    Episode(4.0, 6, env=3, step=7),
]


def snapshot(num_envs: int) -> Snapshot:
    """A waiting rollout of seven steps, in which some episodes ended."""
    waiting = {
        "reward": torch.arange(7 * num_envs).view(7, num_envs),
        EPISODES: torch.from_numpy(to_table(ENDED)),
    }
    return Snapshot(shared={}, local={}, num_envs=num_envs, segments={"iteration_000000001": waiting})


@pytest.mark.parametrize(("shard", "expected"), [(Shard(0, 3, 5), [0, 2]), (Shard(3, 2, 5), [4, 3])])
def test_waiting_episodes_go_to_the_rank_of_their_env_and_are_numbered_within_it(
    shard: Shard, expected: list[int]
):
    part = of_shard(snapshot(5), shard).segments["iteration_000000001"]
    assert torch.equal(part["reward"], torch.arange(35).view(7, 5)[:, shard.envs])
    by_env = {episode.env: episode for episode in ENDED}
    wanted = [by_env[env]._replace(env=env - shard.first) for env in expected]
    assert from_table(part[EPISODES].numpy()) == wanted
