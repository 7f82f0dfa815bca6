"""Joining the parts of several actors, and splitting a state into parts.

Environments are numbered over the whole run, so that saved data does not depend on the number of actors.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.distributed.shard import Shard
from anybatch.envs.episodes import EPISODES

BLOCK_ROWS = 4
"""Rows that native code computes together, if there are few outputs."""
FEWEST_ROWS = 16
"""Number of rows below which native code and torch use other code paths: the largest, that of AVX-512."""
ENV_AXIS = 1
"""The tensors of a rollout, except `log_std`, which belongs to the policy."""


def shares(whole: Shard, actors: int) -> list[Shard]:
    """The shards of actors, which differ by at most one block of envs.

    Matrix products work on blocks of rows, and round partial or small blocks in another order. With whole
    blocks, each env's numbers equal those of one process with all envs.
    """
    if whole.count < FEWEST_ROWS * actors:
        return whole.split(actors)
    blocks = Shard.whole(whole.count // BLOCK_ROWS).split(actors)
    firsts = [whole.first + BLOCK_ROWS * part.first for part in blocks]
    ends = [*firsts[1:], whole.first + whole.count]
    return [Shard(first, end - first, whole.total) for first, end in zip(firsts, ends, strict=True)]


def joined_rollout(parts: Sequence[Rollout], first_envs: Sequence[int]) -> Rollout:
    """The rollout of all envs, in memory that torch allocates. `parts` are those of the shards, in order.

    `first_envs` holds the number of each shard's first env.
    """
    tensors = {
        name: _joined([getattr(part, name) for part in parts])
        for name in parts[0].tensors()
        if name not in ("log_std", EPISODES)
    }
    episodes = [
        episode._replace(env=episode.env + first)
        for part, first in zip(parts, first_envs, strict=True)
        for episode in part.episodes
    ]
    log_std = parts[0].log_std
    return replace(
        parts[0],
        **tensors,
        log_std=None if log_std is None else log_std.clone(),
        # In the order in which one process would see them end.
        episodes=sorted(episodes, key=lambda episode: (episode.step, episode.env)),
    )


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, dim=ENV_AXIS)


def joined_state(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The state of one collector of all envs. `parts` are those of the shards, in order."""
    return _merged(parts, lambda arrays: np.concatenate(arrays))


def _merged(parts: Sequence[Any], merge: Callable[[list[np.ndarray]], np.ndarray]) -> Any:
    first = parts[0]
    if isinstance(first, dict):
        return {name: _merged([part[name] for part in parts], merge) for name in first}
    # Tensors are states of generators, which are equal on all shards.
    return merge(list(parts)) if isinstance(first, np.ndarray) else first


def part_of_state(whole: dict[str, Any], shard: Shard, *, restorable: bool) -> dict[str, Any]:
    """A shard's part of a collector's state, without its episodes if they cannot be restored."""
    if not restorable:
        return {"generator": whole["generator"], "num_envs": shard.total}
    return _merged([whole], lambda arrays: arrays[0][shard.envs])
