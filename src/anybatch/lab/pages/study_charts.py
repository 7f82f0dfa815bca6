"""Scores of a study over what its grid varies, as drawings."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anybatch.lab import statistics
from anybatch.lab.charts import palette
from anybatch.lab.charts.chart import Chart, Drawing, IntervalRow, Intervals, Panels, Series
from anybatch.lab.pages.study_parts import LEVEL, Part, StudyView, mean_of, ordered
from anybatch.lab.studies.configs import setting_at
from anybatch.lab.studies.plan import setting_name

LEARNING_RATE = "optimizer.learning_rate"
AXIS_LABELS = {"staleness.iterations": "staleness (iterations)"}
"""Settings whose own name says too little on an axis."""
DODGE = 0.08
"""Offset between lines over the same names, so that their intervals do not overlap."""
SCORE_NOTE = f"Bars: {LEVEL:.0%} bootstrap intervals over seeds, within each environment."
FEWEST_ARMS = 3
"""Fewest arms at one batch that get their own drawing; two are shown by their verdict."""
MOST_PROFILES = 6
"""Most arms whose profiles can be told apart in one chart."""
PROFILE_POINTS = 101

Point = tuple[float, float, float, float]
"""A place on the x axis, a score, and the bounds of its interval."""


@dataclass(frozen=True)
class Dimension:
    """A dimension of the grid: the ratio of the batch, or a swept setting."""

    name: str
    """Name used for the files, and for the setting."""
    label: str
    value: Callable[[Part], Any]
    shown: Callable[[Any], str]
    places: Callable[[Sequence[Any]], tuple[float, ...]] = lambda values: tuple(
        map(float, range(len(values)))
    )
    """Where values are on an axis: one after another, unless their distances mean something."""

    def values(self, parts: Iterable[Part]) -> list[Any]:
        return ordered(value for part in parts if (value := self.value(part)) is not None)


RATIO = Dimension(
    "ratio",
    "batch ÷ tuned batch",
    value=lambda part: part.fraction,
    shown=str,
    places=lambda ratios: tuple(map(math.log2, ratios)),
)


def swept(view: StudyView, path: str) -> Dimension:
    label = AXIS_LABELS.get(path) or setting_name(path)
    return Dimension(path, label, lambda part: part.point.get(path), lambda value: view.short(path, value))


def score_drawings(view: StudyView) -> list[Drawing]:
    """Lines over each dimension with several values, and the arms compared."""
    paths = dict.fromkeys(path for part in view.parts for path in part.point)
    varied = [RATIO, *(swept(view, path) for path in paths)]
    panels = [score_panels(view, one) for one in varied if len(one.values(view.parts)) > 1]
    return [*(one for one in panels if one.charts), *arm_intervals(view), *profiles(view)]


def score_panels(view: StudyView, dimension: Dimension) -> Panels:
    """Scores over a dimension, a line for each arm that varies: over all environments, and within each."""
    lines: dict[str, list[Part]] = {}
    # Arms tuned at each batch do not form a line of one setting.
    plain = [part for part in view.parts if not part.factors]
    for part in plain or [part for part in view.parts if part.is_untouched]:
        if dimension.value(part) is not None:
            lines.setdefault(line_of(view, part, dimension), []).append(part)
    varying = {label: parts for label, parts in lines.items() if len(dimension.values(parts)) > 1}
    values = dimension.values(part for parts in varying.values() for part in parts)
    places = dimension.places(values)
    charts: list[Chart] = []
    for stratum in (*([None] if len(view.strata) > 1 else []), *view.strata):
        series: list[Series] = []
        for number, (label, parts) in enumerate(varying.items()):
            shift = DODGE * (number - (len(varying) - 1) / 2)
            points = [
                (place + shift, *score)
                for value, place in zip(values, places, strict=True)
                for part in parts
                if dimension.value(part) == value and (score := score_of(view, part, stratum)) is not None
            ]
            series += [dotted(label, *palette.distinct(number), points)] if points else []
        level = score_of(view, view.reference, stratum)
        chart = Chart(
            name=f"score-{file_part(dimension.name)}-{stratum or 'all'}",
            title=stratum or f"mean over {len(view.strata)} environments",
            y_label=f"normalized {view.metric_name}",
            x_label=dimension.label,
            x_names=tuple(map(dimension.shown, values)),
            x_places=places,
            series=tuple(series),
            y_includes=(0.0,),
            level=level[0] if level else None,
        )
        charts += [chart] if series else []
    return Panels(
        name=f"score-{file_part(dimension.name)}",
        title="Score over the batch" if dimension is RATIO else f"Score over {dimension.label}",
        charts=with_common_scale(charts),
        note=f"{SCORE_NOTE} Dotted: the reference." if view.reference else SCORE_NOTE,
    )


def line_of(view: StudyView, part: Part, dimension: Dimension) -> str:
    """The label of the line that a part is a point of: everything that identifies it except the dimension."""
    others = {path: value for path, value in part.point.items() if path != dimension.name}
    ratio = [f"ratio {part.ratio}"] if dimension is not RATIO and view.plan.has_ratios else []
    return ", ".join([view.title(part), *ratio, *view.words(others)])


def dotted(label: str, color: str, dashed: bool, points: Sequence[Point]) -> Series:
    """A line through measured points, with their intervals as bars."""
    x, y, low, high = zip(*points, strict=True)
    return Series(label=label, color=color, dashed=dashed, dots=True, x=x, y=y, low=low, high=high)


def score_of(view: StudyView, part: Part | None, stratum: str | None) -> tuple[float, float, float] | None:
    """Mean normalized score and its interval: in one environment, or over all if all have one."""
    scores = view.normalized(part) if part is not None else {}
    if stratum is not None:
        scores = {name: values for name, values in scores.items() if name == stratum}
    if not scores or (stratum is None and len(scores) < len(view.strata)):
        return None
    return mean_of(scores).with_bounds


def with_common_scale(charts: Sequence[Chart]) -> tuple[Chart, ...]:
    """The charts with one y axis, so that heights can be compared."""
    values = [value for chart in charts for value in chart.y_values()] or [0.0]
    return tuple(replace(chart, y_includes=(min(values), max(values))) for chart in charts)


def arm_intervals(view: StudyView) -> list[Drawing]:
    """The scores of arms at one batch in rows, over the environments that all arms of their base have."""
    unswept = [part for part in view.parts if not part.point and not part.factors]
    found: list[Drawing] = []
    for ratio in RATIO.values(unswept):
        scores = in_common(view, [part for part in unswept if part.fraction == ratio])
        if len(scores) >= FEWEST_ARMS:
            found.append(arms_at(view, str(ratio), scores))
    return found


def in_common(view: StudyView, parts: Sequence[Part]) -> dict[Part, dict[str, list[float]]]:
    """The scores of parts that have any, in the strata that all of them with the same base have."""
    known = {part: scores for part in parts if (scores := view.normalized(part))}
    common = {
        base: set.intersection(*(set(scores) for part, scores in known.items() if part.base == base))
        for base in {part.base for part in known}
    }
    shared = {
        part: {name: values for name, values in scores.items() if name in common[part.base]}
        for part, scores in known.items()
    }
    return {part: scores for part, scores in shared.items() if scores}


def arms_at(view: StudyView, ratio: str, scores: Mapping[Part, Mapping[str, Sequence[float]]]) -> Intervals:
    rows: list[IntervalRow] = []
    for part, of_part in scores.items():
        value, low, high = mean_of(of_part).with_bounds
        color = "blue" if part.arm == view.plan.reference["arm"] else "slate"
        rows.append(IntervalRow(label=view.title(part), value=value, low=low, high=high, color=color))
    strata = [name for name in view.strata if any(name in of_part for of_part in scores.values())]
    bases = ", each by its own base" if view.has_bases else ""
    return Intervals(
        name=f"arms-{file_part(ratio)}",
        title=f"Arms at ratio {ratio}" if view.plan.has_ratios else "Arms",
        x_label=f"normalized {view.metric_name}",
        rows=tuple(rows),
        form="{:.3f}",
        note=f"{LEVEL:.0%} bootstrap intervals over seeds. Mean over {', '.join(strata)}{bases}.",
    )


def profiles(view: StudyView) -> list[Drawing]:
    """The share of runs above each score, a line for each arm (arXiv:2108.13264), at each batch."""
    unswept = [part for part in view.parts if not part.point and not part.factors]
    whole = [part for part in unswept if view.normalized(part).keys() == set(view.strata)]
    by_ratio = [[part for part in whole if part.fraction == ratio] for ratio in RATIO.values(whole)]
    drawn = [parts for parts in by_ratio if 1 < len(parts) <= MOST_PROFILES]
    titles = list(dict.fromkeys(view.title(part) for parts in drawn for part in parts))
    charts = [profile_chart(view, parts, titles) for parts in drawn]
    note = "The higher, the better; where lines cross, one arm has more of the good runs and of the bad ones."
    panels = Panels(name="profiles", title="Share of runs above each score", charts=tuple(charts), note=note)
    return [panels] if charts else []


def profile_chart(view: StudyView, parts: Sequence[Part], titles: Sequence[str]) -> Chart:
    """The profiles at one batch; `titles` are those of all charts, which share their colors."""
    values = [value for part in parts for runs in view.normalized(part).values() for value in runs]
    start = min(values) - (max(values) - min(values)) / PROFILE_POINTS  # where all runs are above
    thresholds = tuple(float(x) for x in np.linspace(start, max(values), PROFILE_POINTS))
    series: list[Series] = []
    for part in parts:
        color, dashed = palette.distinct(titles.index(view.title(part)))
        share = tuple(statistics.performance_profile(view.normalized(part), thresholds))
        series.append(Series(label=view.title(part), color=color, dashed=dashed, x=thresholds, y=share))
    return Chart(
        name=f"profile-{file_part(parts[0].ratio)}",
        title=f"ratio {parts[0].ratio}" if view.plan.has_ratios else "all arms",
        y_label="share of runs",
        x_label=f"normalized {view.metric_name}",
        series=tuple(series),
        y_includes=(0.0, 1.0),
    )


def file_part(name: str) -> str:
    """A name as part of a file name."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def sweep_drawings(view: StudyView) -> list[Drawing]:
    """For each multiplied setting, lines over its values in the run and at the tuned batch."""
    drawn: list[Drawing] = []
    for setting in dict.fromkeys(path for part in view.parts for path in part.factors):
        parts = [part for part in view.parts if setting in part.factors and view.normalized(part)]
        if len({part.factors[setting] for part in parts}) > 1:
            drawn.append(sweep_panels(view, setting, parts))
    return drawn


def sweep_panels(view: StudyView, setting: str, parts: Sequence[Part]) -> Panels:
    """One line for each arm and batch. If a rule holds, lines over the tuned values coincide."""
    name = setting_name(setting)
    lines: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.fraction, part.factors[setting])):
        lines.setdefault(f"{view.title(part)}, ratio {part.ratio}", []).append(part)
    in_run = {part: used(view, part, setting) for part in parts}
    at_tuned = {part: tuned(part, setting) for part in parts}
    axes = [(f"{name} of the run", in_run), (f"{name} at the tuned batch", at_tuned)]
    # At one batch, the two would be the same line on another scale.
    rescaled = len({part.ratio for part in parts}) > 1 and in_run != at_tuned
    charts: list[Chart] = []
    for place, (label, places) in enumerate(axes if rescaled else axes[1:]):
        series: list[Series] = []
        for number, (line, of_line) in enumerate(lines.items()):
            points = [(places[part], *mean_of(view.normalized(part)).with_bounds) for part in of_line]
            series.append(dotted(line, palette.ordered(number, len(lines)), False, points))
        charts.append(
            Chart(
                name=f"sweep-{place}",
                title=label,
                y_label="normalized score",
                x_label=label,
                x_scale="log",
                series=tuple(series),
                y_includes=(0.0,),
            )
        )
    note = f"Bars: {LEVEL:.0%} bootstrap intervals over seeds."
    return Panels(
        name=f"sweep-{file_part(name)}",
        title=f"Score over the {name}",
        charts=tuple(charts),
        note=f"{note} On the right, the rules are divided out." if rescaled else note,
    )


def used(view: StudyView, part: Part, setting: str) -> float:
    """The value of a setting in the run; the dial changes the learning rate."""
    for cell in part.cells:
        result = view.results.get(cell.name)
        if setting == LEARNING_RATE and result is not None and result.failed is None:
            return float(result.plan["hyperparameters"]["learning_rate"])
    return tuned(part, setting)


def tuned(part: Part, setting: str) -> float:
    """The value of a setting at the tuned batch, as in the config."""
    return float(setting_at(part.cells[0].config, setting))
