"""Checkpoints do not depend on the number of ranks: the parts of ranks are joined by env, and split again.

Numpy arrays in a snapshot's `local` have the env axis first; segments have time first, then envs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.envs.episodes import EPISODES, Episode
from anybatch.storage.checkpoint import Snapshot

_ENV, _STEP = map(Episode._fields.index, ("env", "step"))
"""Columns of a segment's finished episodes."""


def gathered(snapshot: Snapshot, missing: Iterable[str]) -> Snapshot:
    """The snapshot of the whole run, on rank 0, with the parts of all ranks. Every rank must call it.

    `missing` are the segments to be written: the others are already in their files.
    """
    if collectives.world_size() == 1:
        return snapshot
    shard = collectives.local_shard(snapshot.num_envs)
    whole = iter(collectives.gather_env_arrays(_arrays(snapshot.local), shard.total))
    local = _over_arrays(snapshot.local, lambda _: next(whole))
    segments = dict(snapshot.segments)
    for name in missing:
        segments[name] = {key: _whole_segment(key, tensor, shard) for key, tensor in segments[name].items()}
    return replace(snapshot, local=local, segments=segments)


def _whole_segment(key: str, tensor: Tensor, shard: Shard) -> Tensor:
    """A segment's tensor for all environments of the run."""
    if key == EPISODES:
        episodes = collectives.rows_of_all_ranks(renumbered(tensor, shard.first))
        return episodes[episodes[:, _STEP].argsort(stable=True)]
    return collectives.gather_envs(tensor, shard.total, 1) if tensor.ndim > 1 else tensor


def renumbered(episodes: Tensor, first: int) -> Tensor:
    """Rows of finished episodes, with environments numbered from `first`."""
    moved = episodes.clone()
    moved[:, _ENV] += first
    return moved


def of_shard(snapshot: Snapshot, shard: Shard) -> Snapshot:
    """The part of a whole run's snapshot that belongs to `shard`; empty if the run had other envs."""
    fits = snapshot.num_envs == shard.total
    envs = shard.envs if fits else slice(0, 0)
    segments = ShardSegments(snapshot.segments, envs)
    if shard.is_whole:
        return replace(snapshot, segments=segments) if fits else snapshot
    return replace(snapshot, local=_over_arrays(snapshot.local, lambda array: array[envs]), segments=segments)


class ShardSegments(Mapping[str, dict[str, Tensor]]):
    """Segments that are cut to some environments when they are read."""

    def __init__(self, segments: Mapping[str, dict[str, Tensor]], envs: slice) -> None:
        self._segments, self._envs = segments, envs

    def __getitem__(self, name: str) -> dict[str, Tensor]:
        return {key: self._part(key, tensor) for key, tensor in self._segments[name].items()}

    def _part(self, key: str, tensor: Tensor) -> Tensor:
        if key == EPISODES:
            env = tensor[:, _ENV]
            return renumbered(tensor[(env >= self._envs.start) & (env < self._envs.stop)], -self._envs.start)
        return tensor[:, self._envs].contiguous() if tensor.ndim > 1 else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)


def _arrays(tree: Any) -> list[np.ndarray]:
    """The arrays that `_over_arrays` changes, in its order."""
    if isinstance(tree, Mapping):
        return [array for part in tree.values() for array in _arrays(part)]
    return [tree] if isinstance(tree, np.ndarray) else []


def _over_arrays(tree: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(tree, Mapping):
        return {name: _over_arrays(part, change) for name, part in tree.items()}
    return change(tree) if isinstance(tree, np.ndarray) else tree
