"""Scores of cells on a scale shared by environments: 0 is random play, 1 what the base reaches.

Both are fixed by the plan or published. Only in plans of --tune, and in plans from before this was so, 1 is
the best final return of the base's own runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anybatch.envs.published import on_published_scale
from anybatch.lab.studies.cells import RANDOM_ARM, Cell, Result
from anybatch.lab.studies.configs import has_published_range
from anybatch.lab.studies.curves import filled
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.verdicts.rule import Selector

Lack = Literal["not run", "failed", "no scale", "flat base"]
"""Why a verdict may not use a cell. no scale: it has a return, but random play or a run of the base there has
none yet. flat base: the base there is no better than random play, so that the scale has no unit."""

Scale = tuple[str, str]
"""An environment and a base, whose best final return is 1 if no range is fixed."""

OWN_RUNS = "best final return of the base's own runs"
"""The unit of plans that fix none."""

CLEARLY = 2
"""Standard errors of random play that the base must exceed it by, to be the unit of the scale."""


@dataclass(frozen=True)
class Selection:
    """The scores of a selector's cells."""

    scores: dict[str, list[float]]
    """Normalized scores by environment, one for each seed. Cells that diverged count as random play."""
    seeds: dict[str, list[int]]
    """Their seeds, in the same order."""
    lacking: dict[str, dict[str, Lack]]
    """Cells without a score, and why."""
    diverged: dict[str, int]
    """How many have diverged."""

    @property
    def is_untouched(self) -> bool:
        """Whether no cell has been run."""
        return not any(self.scores.values()) and set(self.lacks) == {"not run"}

    @property
    def all_diverged(self) -> bool:
        return all(len(self.scores[env]) == self.diverged[env] for env in self.scores)

    @property
    def lacks(self) -> dict[Lack, list[str]]:
        """The cells without a score in all environments, by reason."""
        found: dict[Lack, list[str]] = {}
        for by_name in self.lacking.values():
            for name, why in by_name.items():
                found.setdefault(why, []).append(name)
        return found

    @property
    def runs(self) -> int:
        """The number of cells, with and without a score."""
        return sum(map(len, (*self.scores.values(), *self.lacking.values())))

    @property
    def fewest_seeds(self) -> int:
        return min(map(len, self.scores.values()), default=0)

    def by_seed(self, environment: str) -> dict[int, float]:
        """The scores in one environment, by seed."""
        return dict(zip(self.seeds[environment], self.scores[environment], strict=True))

    def within(self, environments: Sequence[str]) -> "Selection":
        """The part that is about some of the environments."""
        return Selection(
            scores={env: self.scores[env] for env in environments},
            seeds={env: self.seeds[env] for env in environments},
            lacking={env: self.lacking[env] for env in environments},
            diverged={env: self.diverged[env] for env in environments},
        )


class Scores:
    """The results of a study, normalized. All of its numbers are computed from here."""

    def __init__(self, plan: StudyPlan, results: Iterable[Result]) -> None:
        self.plan = plan
        self.results = {result.cell.name: result for result in results}
        self._several_bases = len({cell.base for cell in plan.cells}) > 1
        scales = dict.fromkeys(scale_of(cell) for cell in plan.cells)
        self._ranges = {scale: self._range(scale) for scale in scales}
        self._scale_lacks: dict[Scale, Lack | None] = {scale: self._scale_lack(scale) for scale in scales}

    def normalized(self, cell: Cell, value: float) -> float | None:
        """A return of a cell on the shared scale; None while it is not known."""
        known = self._ranges[scale_of(cell)]
        if known is not None:
            low, high = known
            return (value - low) / (high - low)
        return on_published_scale(cell.env, value)

    def unit_words(self) -> str:
        """What the scores 0 and 1 mean, for a sentence."""
        envs = list(dict.fromkeys(cell.env for cell in self.plan.cells))
        fixed = [env for env in envs if env in self.plan.ranges]
        published = [env for env in envs if env not in fixed and has_published_range(env)]
        meanings: dict[str, list[str]] = {}
        for env in fixed:
            low, high = self.plan.ranges[env]
            meanings.setdefault(f"0 and 1 are the fixed returns {low:g} and {high:g}", []).append(env)
        if published:
            meanings["0 and 1 are those of the published range"] = published
        if others := [env for env in envs if env not in (*fixed, *published)]:
            meanings[f"0 is random play and 1 the {OWN_RUNS}"] = others
        one = len(meanings) == 1
        return "; ".join(words if one else f"in {', '.join(of)}, {words}" for words, of in meanings.items())

    def stratum(self, cell: Cell) -> str:
        """The stratum of a cell: its environment, and its base if there are several."""
        return f"{cell.env} ({cell.base})" if self._several_bases else cell.env

    def cells(self, selector: Selector, *, swept: str = "") -> dict[str, list[Cell]]:
        """A selector's cells by environment, those that sweep a setting if one is given."""
        found: dict[str, list[Cell]] = {}
        for cell in self.plan.cells:
            if selector.matches(cell) and (not swept or swept in cell.factors):
                found.setdefault(self.stratum(cell), []).append(cell)
        return found

    def select(
        self, selector: Selector, *, metric: str = "", swept: str = "", needs_unit: bool = True
    ) -> Selection:
        """The scores of a selector's `cells` by a metric. Environments without any are absent.

        A claim of equality needs a unit. Being better does not, even than a base that learned nothing.
        """
        found = Selection({}, {}, {}, {})
        for stratum, cells in self.cells(selector, swept=swept).items():
            found.scores[stratum], found.seeds[stratum], found.lacking[stratum] = [], [], {}
            found.diverged[stratum] = 0
            for cell in cells:
                score, lack = self.score(cell.name, metric), self._lack(cell)
                if lack == "flat base" and not needs_unit:
                    lack = None
                if score is None or lack is not None:
                    found.lacking[stratum][cell.name] = lack or "no scale"
                    continue
                found.diverged[stratum] += self.results[cell.name].diverged
                found.scores[stratum].append(score)
                found.seeds[stratum].append(cell.seed)
        return found

    def score(self, name: str, metric: str = "") -> float | None:
        """The normalized score of a cell by a metric, or by the first of the plan; None without a result."""
        result = self.results.get(name)
        if result is None:
            return None
        if result.failed is not None:
            return 0.0 if result.diverged else None
        return self.normalized(result.cell, result.score(metric or self.plan.metrics[0]))

    def curves(self, selector: Selector) -> dict[str, np.ndarray]:
        """The normalized learning curves of a selector's cells by environment, [runs, points]."""
        return {
            stratum: np.array([self._curve(cell) for cell in cells])
            for stratum, cells in self.cells(selector).items()
        }

    def _curve(self, cell: Cell) -> np.ndarray:
        """The curve of a cell that has a result; that of a cell which diverged is random play."""
        result = self.results[cell.name]
        if result.diverged:
            return np.zeros(self.plan.bins)
        returns = filled(value for _, value in result.curve)
        return np.array([self.normalized(cell, value) for value in returns])

    def random_play(self, env: str) -> Result | None:
        """The result of random play in an environment; None if there is none."""
        found = (one for one in self.results.values() if one.cell.env == env and one.cell.arm == RANDOM_ARM)
        return next((one for one in found if not one.failed), None)

    def reference_cells(self) -> dict[str, list[Cell]]:
        """The reference's cells by stratum. In a sweep without a named point, those of its first point."""
        found: dict[str, list[Cell]] = {}
        for cell in self.plan.cells:
            if cell.is_reference(self.plan.reference):
                there = found.setdefault(self.stratum(cell), [])
                if not there or there[0].point == cell.point:
                    there.append(cell)
        return found

    def _lack(self, cell: Cell) -> Lack | None:
        """Why a verdict must not use the score of a cell; None if it may."""
        return self._run_lack(cell) or self._scale_lacks[scale_of(cell)]

    def _run_lack(self, cell: Cell) -> Lack | None:
        """Why a cell has no return; None if it has one, or diverged."""
        result = self.results.get(cell.name)
        if result is None:
            return "not run"
        if result.failed is not None and not result.diverged:
            return "failed"
        return None

    def _scale_lack(self, scale: Scale) -> Lack | None:
        """Why a scale may still move or has no unit; None if neither.

        Points of a sweep that have not been started do not keep the others waiting.
        """
        env, _ = scale
        if env in self.plan.ranges or has_published_range(env):
            return None
        cells = self._base_cells(scale)
        started = [cell.point for cell in cells if cell.name in self.results]
        base = [cell for cell in cells if cell.point in started]
        random = self.random_play(env)
        if random is None or not base or any(self._run_lack(cell) for cell in base):
            return "no scale"
        low, error = random.final_return or 0.0, (random.evaluation or {}).get("standard_error") or 0.0
        if max(self._base_returns(scale), default=low) <= low + CLEARLY * error:
            return "flat base"
        return None

    def _range(self, scale: Scale) -> tuple[float, float] | None:
        """The returns that map to 0 and 1; None for a published scale, or while one of them is not known."""
        env, _ = scale
        if env in self.plan.ranges:
            return self.plan.ranges[env]
        if has_published_range(env):
            return None
        random, base = self.random_play(env), self._base_returns(scale)
        if random is None or not base:
            return None
        low, high = random.final_return, max(base)
        assert low is not None
        # A base that learned nothing has no scale: its returns are only shifted so that random play is 0.
        return (low, high) if high > low else (low, low + 1)

    def _base_returns(self, scale: Scale) -> list[float]:
        """The final returns of a base in an environment, without runs that failed or diverged."""
        results = [self.results[cell.name] for cell in self._base_cells(scale) if cell.name in self.results]
        return [one.final_return for one in results if not one.failed and one.final_return is not None]

    def _base_cells(self, scale: Scale) -> list[Cell]:
        """The cells that define a scale: those of its own base, or of all bases there if it has none."""
        env, base = scale
        found = [
            cell for cell in self.plan.cells if cell.env == env and cell.is_reference(self.plan.reference)
        ]
        return [cell for cell in found if cell.base == base] or found


def scale_of(cell: Cell) -> Scale:
    """Cells with the same environment and base share a scale: another network may have another optimum."""
    return cell.env, cell.base
