"""Returns and lengths of finished episodes, summed from steps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anybatch.envs.protocol import EnvStep

EPISODES = "episodes"
"""The name of finished episodes among the tensors of a rollout: one row each, with its fields in order."""


class Episode(NamedTuple):
    """A finished episode: its undiscounted, unclipped return, its number of decisions, and its env."""

    episode_return: float
    length: int
    env: int
    truncated: bool = False
    """Whether it was cut by a step limit."""
    step: int = 0
    """The step of the tracker at which it ended, counted since episodes were last taken."""


def to_table(episodes: Sequence[Episode]) -> np.ndarray:
    """[E, 5]: the fields of each episode."""
    rows = [list(episode) for episode in episodes]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(Episode._fields))


def from_table(table: np.ndarray) -> list[Episode]:
    """The episodes of `to_table`."""
    return [
        Episode(total, int(length), int(env), bool(truncated), int(step))
        for total, length, env, truncated, step in table.tolist()
    ]


class EpisodeTracker:
    """Sums the scores of N envs into episodes. Make a new one if envs start fresh instead of resuming."""

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs, dtype=np.float64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self.steps = 0
        """Steps since finished episodes were last taken."""
        self._finished: list[Episode] = []

    def update(self, step: EnvStep) -> None:
        """Add one step of all envs."""
        self.steps += 1
        self._returns += step.score
        self._lengths += step.valid
        if step.episode_end.any():
            self._finish(step.episode_end, step.truncated)

    def update_all(
        self, score: np.ndarray, valid: np.ndarray, ended: np.ndarray, truncated: np.ndarray
    ) -> None:
        """Add many steps, [T, N] each, as if they came one by one."""
        start = 0
        for end in (*(np.flatnonzero(ended.any(axis=1)) + 1).tolist(), len(score)):
            self.steps += end - start
            self._returns += score[start:end].sum(axis=0, dtype=np.float64)
            self._lengths += valid[start:end].sum(axis=0)
            if end > start and ended[end - 1].any():
                self._finish(ended[end - 1], truncated[end - 1])
            start = end

    def _finish(self, ended: np.ndarray, truncated: np.ndarray) -> None:
        for env in np.flatnonzero(ended & (self._lengths > 0)):
            self._finished.append(
                Episode(
                    float(self._returns[env]),
                    int(self._lengths[env]),
                    int(env),
                    bool(truncated[env]),
                    self.steps,
                )
            )
        self._returns[ended] = 0
        self._lengths[ended] = 0

    def cut(self, length: int) -> None:
        """Finish, as truncated, every episode in progress that has lasted `length` decisions."""
        too_long = self._lengths >= length
        if too_long.any():
            self._finish(too_long, too_long)

    @property
    def longest(self) -> int:
        """Decisions of the longest episode in progress."""
        return int(self._lengths.max())

    def take(self) -> list[Episode]:
        """The episodes finished since the last call."""
        finished, self._finished, self.steps = self._finished, [], 0
        return finished

    def state_dict(self) -> dict[str, Any]:
        """The episodes in progress; the finished ones have been taken before a state is saved."""
        return {"returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._returns = np.array(state["returns"], dtype=np.float64)
        self._lengths = np.array(state["lengths"], dtype=np.int64)
