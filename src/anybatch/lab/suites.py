"""Evaluations of many runs as one result on a suite of Atari games."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from anybatch.envs import published
from anybatch.errors import UserError
from anybatch.evaluating import PlayedRun
from anybatch.text import number_text


@dataclass(frozen=True)
class GameResult:
    """The runs on one game. Each counts the same, whatever its number of episodes."""

    game: str
    runs: tuple[PlayedRun, ...]

    @property
    def score(self) -> float:
        return fmean(run.evaluation.mean_return for run in self.runs)

    @property
    def percent(self) -> float:
        """Human-normalized: 0 is random play, 100 a human."""
        normalized = published.human_normalized(self.runs[0].env_id, self.score)
        assert normalized is not None  # all games of a suite have published scores
        return 100 * normalized

    @property
    def capped_share(self) -> float:
        return fmean(run.evaluation.capped_share for run in self.runs)

    def to_json(self) -> dict[str, object]:
        return {
            "game": self.game,
            "score": self.score,
            "human_normalized_percent": self.percent,
            "capped_share": self.capped_share,
            "runs": [run.to_json() for run in self.runs],
        }


@dataclass(frozen=True)
class SuiteResult:
    """The games of a suite that were played, at least one, and those that were not."""

    suite: str
    games: tuple[GameResult, ...]
    left_out: tuple[str, ...]
    """Environments of runs that are not games of the suite."""

    @property
    def missing(self) -> tuple[str, ...]:
        played = {result.game for result in self.games}
        return tuple(game for game in published.SUITES[self.suite] if game not in played)

    @property
    def protocols(self) -> tuple[str, ...]:
        names = {run.evaluation.protocol for result in self.games for run in result.runs}
        return tuple(sorted(name for name in names if name is not None))

    @property
    def median_percent(self) -> float:
        return median(result.percent for result in self.games)

    @property
    def mean_percent(self) -> float:
        return fmean(result.percent for result in self.games)

    @property
    def predicted_median_percent(self) -> float | None:
        """Predicted median of all 57 games; None if a game is missing, or the suite has all of them."""
        return published.predicted_median(self.suite, {result.game: result.score for result in self.games})

    def to_json(self) -> dict[str, object]:
        return {
            "suite": self.suite,
            "median_percent": self.median_percent,
            "mean_percent": self.mean_percent,
            "predicted_median_percent": self.predicted_median_percent,
            "missing": list(self.missing),
            "left_out": list(self.left_out),
            "games": [result.to_json() for result in self.games],
        }

    def sentences(self) -> list[str]:
        """The scores over all games, and which games are missing."""
        played, count = len(self.games), len(published.SUITES[self.suite])
        said = [
            f"Human-normalized over {played} of the {count} games: median "
            f"{number_text(self.median_percent, 4)}%, mean {number_text(self.mean_percent, 4)}% "
            f"(protocol {' and '.join(self.protocols)})."
        ]
        if self.predicted_median_percent is not None:
            said.append(
                f"Predicted median of all 57 games: {number_text(self.predicted_median_percent, 4)}%."
            )
        absent = [f"No run of {', '.join(self.missing)}"] if self.missing else []
        if self.left_out:
            absent.append(f"{', '.join(self.left_out)}: not in {self.suite}, left out")
        return [*said, f"{'; '.join(absent)}."] if absent else said


def validate_suite(suite: str) -> None:
    if suite not in published.SUITES:
        raise UserError(f"there is no suite {suite}; the suites are {', '.join(published.SUITES)}")


def contains(suite: str, env_id: str) -> bool:
    """Whether an environment is one of the suite's games, by any of its ids."""
    return published.atari_game(env_id) in published.SUITES[suite]


def summarize(suite: str, played: Sequence[PlayedRun], left_out: Sequence[str]) -> SuiteResult:
    """Runs grouped by game, in the suite's order. At least one run must be on one of its games."""
    by_game = [
        GameResult(game, tuple(run for run in played if published.atari_game(run.env_id) == game))
        for game in published.SUITES[suite]
    ]
    games = tuple(result for result in by_game if result.runs)
    return SuiteResult(suite, games, tuple(sorted(set(left_out))))
