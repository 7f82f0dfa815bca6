"""The parts of a study's grid, whose cells differ only in environment and seed, with scores and names."""

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.lab import statistics
from anybatch.lab.studies import recorded, runner
from anybatch.lab.studies.cells import CELLS, PLAN_FILE, RANDOM_ARM, Cell, Result
from anybatch.lab.studies.plan import StudyPlan, by_setting, setting_name
from anybatch.lab.verdicts import Scores, Verdict, gates, judge
from anybatch.lab.verdicts.compare import METRIC_NAMES

WITHOUT_RULES = "none"
"""The arm of studies that changes no number with the batch."""
LEVEL = 0.95
"""Confidence of the intervals in figures and tables."""
MOST_LEFT_OUT = 5
"""Parts of the grid that a sentence names."""


@dataclass(frozen=True, eq=False)
class Part:
    """Cells of one base, arm, ratio and swept settings."""

    base: str
    arm: str
    ratio: str
    point: Mapping[str, Any]
    factors: Mapping[str, float]
    cells: tuple[Cell, ...]

    @property
    def fraction(self) -> Fraction:
        return Fraction(self.ratio)

    @property
    def is_untouched(self) -> bool:
        """Whether no setting is multiplied: the middle of a sweep."""
        return all(factor == 1 for factor in self.factors.values())


@dataclass(frozen=True)
class Aggregate:
    """A statistic of normalized scores over seeds and environments."""

    value: float
    interval: tuple[float, float] | None
    """None if an environment has only one seed."""

    @property
    def with_bounds(self) -> tuple[float, float, float]:
        """The value and the bounds of its interval, which are the value itself without one."""
        return (self.value, *(self.interval or (self.value, self.value)))


class StudyView:
    """A study as far as it has been run."""

    def __init__(
        self, plan: StudyPlan, results: Sequence[Result], sweeps: Sequence["StudyView"] = ()
    ) -> None:
        """`sweeps` are those that the settings of the base were chosen by, as far as they are known."""
        self.plan = plan
        self.scores = Scores(plan, results)
        self.results = self.scores.results
        self.parts = parts_of(plan)
        self.sweeps = sweeps

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return judge(self.scores)

    @cached_property
    def notes(self) -> list[str]:
        """What weakens the study without making it void: a sentence for each."""
        if self.plan.tune:
            return gates.sweep_notes(self.scores, [self.scores])
        return gates.notes(self.scores) + gates.sweep_notes(
            self.scores, [sweep.scores for sweep in self.sweeps]
        )

    @property
    def metric_name(self) -> str:
        """The metric that figures show."""
        return METRIC_NAMES[self.plan.metrics[0]]

    @cached_property
    def strata(self) -> list[str]:
        """The strata within which scores are compared: the environments, by base if there are several."""
        return list(dict.fromkeys(self.scores.stratum(cell) for part in self.parts for cell in part.cells))

    @property
    def envs(self) -> list[str]:
        return list(dict.fromkeys(cell.env for part in self.parts for cell in part.cells))

    @property
    def seeds(self) -> int:
        """The number of different seeds."""
        return len({cell.seed for part in self.parts for cell in part.cells})

    @property
    def reference(self) -> Part | None:
        arm, ratio, point = (self.plan.reference.get(name) for name in ("arm", "ratio", "point"))
        plain = (part for part in self.parts if part.point == (point or {}) and part.is_untouched)
        return next((part for part in plain if (part.arm, part.ratio) == (arm, ratio)), None)

    def normalized(self, part: Part, metric: str = "") -> dict[str, list[float]]:
        """Scores by environment, those of the cells that have one, by a metric or the first of the plan."""
        found: dict[str, list[float]] = {}
        for cell in part.cells:
            score = self.scores.score(cell.name, metric)
            if score is not None:
                found.setdefault(self.scores.stratum(cell), []).append(score)
        return found

    def finished(self, part: Part, stratum: str) -> list[Result]:
        """The results of one environment, without failed cells."""
        cells = [cell for cell in part.cells if self.scores.stratum(cell) == stratum]
        found = [self.results[cell.name] for cell in cells if cell.name in self.results]
        return [result for result in found if result.failed is None]

    def title(self, part: Part) -> str:
        """The arm, and the base if there are several."""
        title = self.plan.arms.get(part.arm, part.arm)
        return f"{title} ({part.base})" if self.has_bases else title

    @property
    def has_bases(self) -> bool:
        """Whether there are cells of more than one base."""
        return len({part.base for part in self.parts}) > 1

    def label(self, part: Part, *, with_ratio: bool = True) -> str:
        """The arm, its ratio if there are several, and the values of swept settings."""
        ratio = [f"ratio {part.ratio}"] if with_ratio and self.plan.has_ratios else []
        return ", ".join([self.title(part), *ratio, *self.words(part.point, part.factors)])

    def words(self, point: Mapping[str, Any], factors: Mapping[str, float] | None = None) -> list[str]:
        """Swept settings in words: iterations 8, learning rate × 2."""
        values = [f"{setting_name(path)} {self.short(path, value)}" for path, value in point.items()]
        return values + [f"{setting_name(path)} × {factor:g}" for path, factor in (factors or {}).items()]

    def short(self, path: str, value: Any) -> str:
        """A swept value in four digits, or in all of them if another value of the setting has the same."""
        alike = any(other != value and short(other) == short(value) for other in self._values.get(path, ()))
        return str(value) if alike else short(value)

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        return by_setting(part.point for part in self.parts)


def short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def parts_of(plan: StudyPlan) -> list[Part]:
    """The parts of a plan without random play: arms in its order, the largest batch of each first."""
    cells: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in plan.cells:
        if cell.arm != RANDOM_ARM:
            swept = (frozen(cell.point), frozen(cell.factors))
            cells.setdefault((cell.base, cell.arm, cell.ratio, *swept), []).append(cell)
    found = [
        Part(base, arm, ratio, dict(found[0].point), dict(found[0].factors), tuple(found))
        for (base, arm, ratio, _, _), found in cells.items()
    ]
    arms = list(dict.fromkeys((part.base, part.arm) for part in found))
    return sorted(found, key=lambda part: (arms.index((part.base, part.arm)), -part.fraction))


def frozen(value: Any) -> Any:
    """A value of a study file as one that can be a key: lists and tables become tuples."""
    if isinstance(value, Mapping):
        return tuple((name, frozen(inner)) for name, inner in value.items())
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def ordered(values: Iterable[Any]) -> list[Any]:
    """The different values of a setting: numbers by size, any others in the order of the plan."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return sorted(found) if all(isinstance(value, int | float | Fraction) for value in found) else found


def mean_of(scores: Mapping[str, Sequence[float]]) -> Aggregate:
    return _aggregate(statistics.mean, _frozen(scores))


def interquartile_mean_of(scores: Mapping[str, Sequence[float]]) -> Aggregate:
    return _aggregate(statistics.interquartile_mean, _frozen(scores))


Frozen = tuple[tuple[str, tuple[float, ...]], ...]


def _frozen(scores: Mapping[str, Sequence[float]]) -> Frozen:
    return tuple((name, tuple(values)) for name, values in scores.items())


@cache  # an interval takes thousands of resamples, and figures and tables share it
def _aggregate(statistic: Callable[..., statistics.Aggregated], scores: Frozen) -> Aggregate:
    strata = dict(scores)
    return Aggregate(float(statistic(strata)), statistics.stratified_interval(statistic, strata, level=LEVEL))


def is_study(path: Path) -> bool:
    """Whether a folder is a study's."""
    return (path / PLAN_FILE).is_file() and (path / CELLS).is_dir()


def read(path: Path) -> StudyView:
    """The study in a folder or a recorded file, with its finished cells, and the sweeps of its base."""
    if path.is_file():
        plan, results = recorded.study_in(recorded.read(path))
    else:
        plan = StudyPlan.read(path)
        if plan is None:
            raise UserError(f"{path} is not a recorded study or the folder of one: there is no {PLAN_FILE}")
        results = runner.results(path, plan)
    return StudyView(plan, results, [] if plan.tune else sweeps_of(path))


def sweeps_of(path: Path) -> list[StudyView]:
    """The sweeps beside a study, which are named after it: NAME-tune, NAME-tune-higher."""
    path = path.absolute()
    name = glob.escape(path.name.removesuffix(recorded.SUFFIX))
    if path.is_file():
        beside = sorted(path.parent.glob(f"{name}-tune*{recorded.SUFFIX}"))
    else:
        beside = [folder for folder in sorted(path.parent.glob(f"{name}-tune*")) if is_study(folder)]
    return [view for one in beside if (view := read(one)).plan.tune]


def left_out(plan: StudyPlan) -> list[str]:
    """A sentence for each reason why parts of the grid are not run."""
    by_reason: dict[str, dict[str, None]] = {}
    for entry in plan.left_out:
        # Where the base cannot reach a ratio, no arm can.
        what = f"ratio {entry.ratio}" if entry.cause == "ratio" else plan.part_words(entry)
        by_reason.setdefault(entry.reason, {})[what] = None
    sentences: list[str] = []
    for reason, parts in by_reason.items():
        names = list(parts)
        more = f"; and {len(names) - MOST_LEFT_OUT} more" if len(names) > MOST_LEFT_OUT else ""
        sentences.append(f"Left out: {'; '.join(names[:MOST_LEFT_OUT])}{more}, since {reason}.")
    return sentences
