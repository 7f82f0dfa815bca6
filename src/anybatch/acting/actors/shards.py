"""The parts of several actors as one, and one state as the parts of several actors.

Environments are numbered over the whole run, so that what is saved belongs to no number of actors.
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
"""Rows that native code computes together, for few outputs."""
FEWEST_ROWS = 16
"""Rows below which native code and torch take other paths; it is the most on processors with AVX-512."""
ENV_AXIS = 1
"""Of a rollout's tensors, all but `log_std`, which is the policy's."""


def shares(whole: Shard, actors: int) -> list[Shard]:
    """The shards of actors, of which no two differ by more than a block of envs.

    Matrix products work on rows in blocks, and round what is left over, or too little, in another order.
    Whole blocks let each env's numbers be those that one process with all envs computes.
    """
    if whole.count < FEWEST_ROWS * actors:
        return whole.split(actors)
    blocks = Shard.whole(whole.count // BLOCK_ROWS).split(actors)
    firsts = [whole.first + BLOCK_ROWS * part.first for part in blocks]
    ends = [*firsts[1:], whole.first + whole.count]
    return [Shard(first, end - first, whole.total) for first, end in zip(firsts, ends, strict=True)]


def joined_rollout(parts: Sequence[Rollout], first_envs: Sequence[int]) -> Rollout:
    """The rollout of all envs, in memory that torch allocates; the parts are those of shards in their order.

    `first_envs` is the number of each shard's first env among them.
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
        # The order in which one process would see them end.
        episodes=sorted(episodes, key=lambda episode: (episode.step, episode.env)),
    )


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, dim=ENV_AXIS)


def joined_state(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The state of one collector of all envs; the parts are those of shards in their order."""
    return _merged(parts, lambda arrays: np.concatenate(arrays))


def _merged(parts: Sequence[Any], merge: Callable[[list[np.ndarray]], np.ndarray]) -> Any:
    first = parts[0]
    if isinstance(first, dict):
        return {name: _merged([part[name] for part in parts], merge) for name in first}
    # Tensors are the states of generators, which every shard has alike.
    return merge(list(parts)) if isinstance(first, np.ndarray) else first


def part_of_state(whole: dict[str, Any], shard: Shard, *, restorable: bool) -> dict[str, Any]:
    """A shard's part of a collector's state; without its episodes where they cannot be restored."""
    if not restorable:
        return {"generator": whole["generator"], "num_envs": shard.total}
    return _merged([whole], lambda arrays: arrays[0][shard.envs])
