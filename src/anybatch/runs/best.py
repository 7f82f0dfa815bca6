"""The policy with the best evaluation of a run, in a separate checkpoint."""

import math
from pathlib import Path

from anybatch.storage import json_text, safe_files
from anybatch.storage.checkpoint import PLACE, STATE, Checkpoints, Loaded, env_steps_of
from anybatch.storage.state_tree import StateTree

BEST = "best"
SCORE = "evaluation_return"


class BestCheckpoint:
    """The checkpoint with the best evaluation of a run, including those before a resume.

    It holds what all ranks share, which is enough to evaluate, but not the collected data and the
    environments that a resume would need.
    """

    def __init__(self, folder: Path) -> None:
        self._checkpoints = Checkpoints(folder, keep=1, place=f"{PLACE}/{BEST}")
        self._scores = {path: _score(path) for path in self._checkpoints.newest_first()}

    @property
    def score(self) -> float:
        """Its mean return; minus infinity if there is none."""
        return max(self._scores.values(), default=-math.inf)

    @property
    def env_steps(self) -> int | None:
        """The env steps of that policy; None if there is none."""
        path = max(self._scores, key=lambda path: self._scores[path], default=None)
        return None if path is None else env_steps_of(path)

    def to_json(self) -> dict[str, float | int | None]:
        return {"mean_return": self.score if self._scores else None, "env_steps": self.env_steps}

    def offer(self, score: float, env_steps: int, shared: StateTree) -> None:
        """Keep a policy if it is better than the best so far, which is then removed."""
        if not math.isfinite(score) or score <= self.score:
            return
        path = self._checkpoints.write(env_steps, {"shared": shared, SCORE: score})
        self._checkpoints.remove_all_but(path)
        self._scores = {path: score}

    def load(self) -> Loaded | None:
        """The best complete checkpoint; None if there never was one. A kill can leave two."""
        best_first = sorted(self._scores, key=lambda path: self._scores[path], reverse=True)
        return self._checkpoints.load_first(best_first)


def _score(path: Path) -> float:
    """The evaluation of a checkpoint; minus infinity if it cannot be read, so that any other is better."""
    try:
        score = json_text.parse(safe_files.read(path / STATE))["state"][SCORE]
    except (OSError, ValueError, KeyError, TypeError):
        return -math.inf
    return score if isinstance(score, float) and math.isfinite(score) else -math.inf
