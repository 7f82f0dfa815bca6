"""Scores of a study over what its grid varies, as drawings."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anybatch.lab import statistics
from anybatch.lab.charts import palette
from anybatch.lab.charts.chart import Chart, Drawing, HeatMap, IntervalRow, Intervals, Panels, Series
from anybatch.lab.pages.study_parts import LEVEL, Part, StudyView, frozen, mean_of, ordered
from anybatch.lab.studies.plan import setting_name

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
    in_order: Callable[[Iterable[Any]], list[Any]] = ordered

    def values(self, parts: Iterable[Part]) -> list[Any]:
        return self.in_order(value for part in parts if (value := self.value(part)) is not None)


RATIO = Dimension(
    "ratio",
    "batch ÷ tuned batch",
    value=lambda part: (part.ratio_value, part.ratio),
    shown=lambda value: value[1],
    places=lambda values: tuple(math.log2(ratio) for ratio, _ in values),
    in_order=lambda values: sorted(set(values)),
)


def swept(view: StudyView, path: str) -> Dimension:
    label = AXIS_LABELS.get(path) or setting_name(path)
    return Dimension(path, label, lambda part: part.point.get(path), lambda value: view.short(path, value))


def score_drawings(view: StudyView) -> list[Drawing]:
    """Lines over each dimension with several values, maps of two swept settings, and the arms compared."""
    paths = dict.fromkeys(path for part in view.parts for path in part.point)
    settings = [swept(view, path) for path in paths]
    varied = [one for one in (RATIO, *settings) if len(one.values(view.parts)) > 1]
    drawn: list[Drawing] = [panels for one in varied if (panels := score_panels(view, one)).charts]
    both = [one for one in settings if one in varied]
    if len(both) == 2:
        drawn += [point_map(view, both[0], both[1], parts) for parts in mapped(view, both)]
    return drawn + arm_intervals(view) + profiles(view)


def mapped(view: StudyView, settings: Sequence[Dimension]) -> list[list[Part]]:
    """The parts with a score and a value of every setting, by base, arm, ratio and other settings.

    Another arm may sweep only one of the settings.
    """
    names = [one.name for one in settings]
    found: dict[Hashable, list[Part]] = {}
    for part in view.parts:
        if view.normalized(part) and all(one.value(part) is not None for one in settings):
            others = {path: value for path, value in part.point.items() if path not in names}
            found.setdefault((part.base, part.arm, part.ratio, frozen(others)), []).append(part)
    return list(found.values())


def score_panels(view: StudyView, dimension: Dimension) -> Panels:
    """Scores over a dimension, a line for each arm that varies: over all environments, and within each."""
    lines: dict[Hashable, list[Part]] = {}
    for part in plain_parts(view):
        if dimension.value(part) is not None:
            lines.setdefault(line_of(view, part, dimension), []).append(part)
    varying = {label: parts for label, parts in lines.items() if len(dimension.values(parts)) > 1}
    values = dimension.values(part for parts in varying.values() for part in parts)
    charts: list[Chart] = []
    everywhere = [None] if len(view.strata) > 1 else []
    for stratum in (*everywhere, *view.strata):
        series = score_series(view, dimension, varying, values, stratum)
        if series:
            charts.append(score_chart(view, dimension, values, series, stratum))
    return Panels(
        name=f"score-{file_part(dimension.name)}",
        title="Score over the batch" if dimension is RATIO else f"Score over {dimension.label}",
        charts=with_common_scale(charts),
        note=SCORE_NOTE + (" Dotted: the reference." if view.reference else ""),
    )


def plain_parts(view: StudyView) -> list[Part]:
    """Parts without a multiplied setting. Arms tuned at each batch do not form a line of one setting."""
    plain = [part for part in view.parts if not part.factors]
    return plain or [part for part in view.parts if part.is_untouched]


def line_of(view: StudyView, part: Part, dimension: Dimension) -> str:
    """The label of the line that a part is a point of: everything that identifies it except the dimension."""
    others = {path: value for path, value in part.point.items() if path != dimension.name}
    ratio = [f"ratio {part.ratio}"] if dimension is not RATIO and view.has_ratios else []
    return ", ".join([view.title(part), *ratio, *view.words(others)])


def score_chart(
    view: StudyView,
    dimension: Dimension,
    values: Sequence[Any],
    series: tuple[Series, ...],
    stratum: str | None,
) -> Chart:
    level = score_of(view, view.reference, stratum)
    return Chart(
        name=f"score-{file_part(dimension.name)}-{stratum or 'all'}",
        title=stratum or f"mean over {len(view.strata)} environments",
        y_label=f"normalized {view.metric_name}",
        x_label=dimension.label,
        x_names=tuple(dimension.shown(value) for value in values),
        x_places=tuple(dimension.places(values)),
        series=series,
        y_includes=(0.0,),
        level=level[0] if level else None,
    )


def score_series(
    view: StudyView,
    dimension: Dimension,
    lines: Mapping[Hashable, Sequence[Part]],
    values: Sequence[Any],
    stratum: str | None,
) -> tuple[Series, ...]:
    """The lines that have a score here."""
    found: list[Series] = []
    places = dimension.places(values)
    for number, (label, parts) in enumerate(lines.items()):
        color, dashed = palette.distinct(number)
        shift = DODGE * (number - (len(lines) - 1) / 2)
        points: list[tuple[float, float, float, float]] = []
        for part in sorted(parts, key=lambda part: values.index(dimension.value(part))):
            score = score_of(view, part, stratum)
            if score is not None:
                points.append((places[values.index(dimension.value(part))] + shift, *score))
        if points:
            x, y, low, high = zip(*points, strict=True)
            found.append(
                Series(label=str(label), color=color, dashed=dashed, dots=True, x=x, y=y, low=low, high=high)
            )
    return tuple(found)


def score_of(view: StudyView, part: Part | None, stratum: str | None) -> tuple[float, float, float] | None:
    """Mean normalized score and its interval: in one environment, or over all if all have one."""
    scores = view.normalized(part) if part is not None else {}
    if stratum is not None:
        scores = {name: values for name, values in scores.items() if name == stratum}
    if not scores or (stratum is None and len(scores) < len(view.strata)):
        return None
    found = mean_of(scores)
    low, high = found.interval or (found.value, found.value)
    return found.value, low, high


def with_common_scale(charts: Sequence[Chart]) -> tuple[Chart, ...]:
    """The charts with one y axis, so that heights can be compared."""
    values = [value for chart in charts for value in chart.y_values()]
    return tuple(replace(chart, y_includes=(min(values), max(values))) for chart in charts)


def point_map(view: StudyView, rows: Dimension, columns: Dimension, parts: Sequence[Part]) -> HeatMap:
    """Scores of parts that differ in two swept settings, with the best one marked."""
    row_values, column_values = rows.values(parts), columns.values(parts)
    table: list[list[float | None]] = [[None] * len(column_values) for _ in row_values]
    best: tuple[float, int, int] | None = None
    for part in parts:
        row, column = row_values.index(rows.value(part)), column_values.index(columns.value(part))
        value = mean_of(view.normalized(part)).value
        table[row][column] = value
        best = max(best or (value, row, column), (value, row, column))
    others = {path: value for path, value in parts[0].point.items() if path not in (rows.name, columns.name)}
    ratio = [f"ratio {parts[0].ratio}"] if view.has_ratios else []
    fixed = [*ratio, *view.words(others)]
    return HeatMap(
        name="-".join(["map", *arm_names(view, parts[0]), *map(file_part, fixed)]),
        title=", ".join([f"Normalized score, {view.title(parts[0])}", *fixed]),
        x_label=columns.label,
        y_label=rows.label,
        columns=tuple(map(columns.shown, column_values)),
        rows=tuple(map(rows.shown, row_values)),
        values=tuple(map(tuple, table)),
        marks=((best[1], best[2], "best"),) if best else (),
        note="Solid frame: the best.",
    )


def arm_intervals(view: StudyView) -> list[Drawing]:
    """The scores of arms at one batch in rows, over the environments that all arms of their base have."""
    unswept = [part for part in view.parts if not part.point and not part.factors]
    found: list[Drawing] = []
    for _, ratio in RATIO.values(unswept):
        scores = in_common(view, [part for part in unswept if part.ratio == ratio])
        if len(scores) >= FEWEST_ARMS:
            found.append(arms_at(view, ratio, scores))
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
        found = mean_of(of_part)
        low, high = found.interval or (found.value, found.value)
        color = "blue" if part.arm == view.plan.reference["arm"] else "slate"
        rows.append(IntervalRow(label=view.title(part), value=found.value, low=low, high=high, color=color))
    strata = [name for name in view.strata if any(name in of_part for of_part in scores.values())]
    return Intervals(
        name=f"arms-{file_part(ratio)}",
        title=f"Arms at ratio {ratio}" if view.has_ratios else "Arms",
        x_label=f"normalized {view.metric_name}",
        rows=tuple(rows),
        form="{:.3f}",
        note=f"{LEVEL:.0%} bootstrap intervals over seeds. Mean over {', '.join(strata)}"
        + (", each by its own base." if view.has_bases else "."),
    )


def profiles(view: StudyView) -> list[Drawing]:
    """The share of runs above each score, a line for each arm (arXiv:2108.13264), at each batch."""
    unswept = [part for part in view.parts if not part.point and not part.factors]
    whole = [part for part in unswept if view.normalized(part).keys() == set(view.strata)]
    by_ratio = {ratio: [part for part in whole if part.ratio == ratio] for _, ratio in RATIO.values(whole)}
    drawn = {ratio: parts for ratio, parts in by_ratio.items() if 1 < len(parts) <= MOST_PROFILES}
    titles = list(dict.fromkeys(view.title(part) for parts in drawn.values() for part in parts))
    charts = [profile_chart(view, ratio, parts, titles) for ratio, parts in drawn.items()]
    note = "The higher, the better; where lines cross, one arm has more of the good runs and of the bad ones."
    panels = Panels(name="profiles", title="Share of runs above each score", charts=tuple(charts), note=note)
    return [panels] if charts else []


def profile_chart(view: StudyView, ratio: str, parts: Sequence[Part], titles: Sequence[str]) -> Chart:
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
        name=f"profile-{file_part(ratio)}",
        title=f"ratio {ratio}" if view.has_ratios else "all arms",
        y_label="share of runs",
        x_label=f"normalized {view.metric_name}",
        series=tuple(series),
        y_includes=(0.0, 1.0),
    )


def arm_names(view: StudyView, part: Part) -> list[str]:
    """The arm of a part, and its base if there are several, as parts of a file name."""
    return [file_part(part.arm), *([file_part(part.base)] if view.has_bases else [])]


def file_part(name: str) -> str:
    """A name as part of a file name."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


LEARNING_RATE = "optimizer.learning_rate"


def sweep_drawings(view: StudyView) -> list[Drawing]:
    """For each swept setting: lines over its values, and over its values at the tuned batch; a map of
    both."""
    drawn: list[Drawing] = []
    for setting in dict.fromkeys(path for part in view.parts for path in part.factors):
        parts = [part for part in view.parts if setting in part.factors and view.normalized(part)]
        if len({part.factors[setting] for part in parts}) < 2:
            continue
        drawn.append(sweep_panels(view, setting, parts))
        for base, arm in dict.fromkeys((part.base, part.arm) for part in parts):
            of_arm = [part for part in parts if (part.base, part.arm) == (base, arm)]
            if len({part.ratio for part in of_arm}) > 1:
                drawn.append(sweep_map(view, setting, of_arm))
    return drawn


def sweep_panels(view: StudyView, setting: str, parts: Sequence[Part]) -> Panels:
    """One line for each arm and batch. If a rule holds, lines over the tuned values coincide."""
    name = setting_name(setting)
    lines: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.ratio_value):
        lines.setdefault(f"{view.title(part)}, ratio {part.ratio}", []).append(part)
    # At one batch, the two would be the same line on another scale.
    rescaled = len({part.ratio for part in parts}) > 1 and any(
        used(view, part, setting) != tuned(part, setting) for part in parts
    )
    labels = ([f"{name} of the run"] if rescaled else []) + [f"{name} at the tuned batch"]
    charts: list[Chart] = []
    for place, label in enumerate(labels):
        of_run = rescaled and place == 0
        series = tuple(
            sweep_line(view, setting, of_line, line, number, len(lines), of_run=of_run)
            for number, (line, of_line) in enumerate(lines.items())
        )
        charts.append(
            Chart(
                name=f"sweep-{place}",
                title=label,
                y_label="normalized score",
                x_label=label,
                x_scale="log",
                series=series,
                y_includes=(0.0,),
            )
        )
    return Panels(
        name=f"sweep-{file_part(name)}",
        title=f"Score over the {name}",
        charts=tuple(charts),
        note=f"Bars: {LEVEL:.0%} bootstrap intervals over seeds. On the right, the rules are divided out."
        if rescaled
        else f"Bars: {LEVEL:.0%} bootstrap intervals over seeds.",
    )


def sweep_line(
    view: StudyView, setting: str, parts: Sequence[Part], label: str, number: int, count: int, *, of_run: bool
) -> Series:
    points: list[tuple[float, float, float, float]] = []
    for part in sorted(parts, key=lambda part: part.factors[setting]):
        x = used(view, part, setting) if of_run else tuned(part, setting)
        found = mean_of(view.normalized(part))
        points.append((x, found.value, *(found.interval or (found.value, found.value))))
    x, y, low, high = zip(*points, strict=True)
    color = palette.ordered(number, count)
    return Series(label=label, color=color, dots=True, x=x, y=y, low=low, high=high)


def sweep_map(view: StudyView, setting: str, parts: Sequence[Part]) -> HeatMap:
    """Batches × values, with the measured optimum of each batch and the value expected by the rules."""
    name = setting_name(setting)
    values = sorted({rounded(used(view, part, setting)) for part in parts})
    ratios = sorted({(part.ratio_value, part.ratio) for part in parts}, reverse=True)
    scores: dict[tuple[str, float], float] = {}
    marks: list[tuple[int, int, str]] = []
    for part in parts:
        value = rounded(used(view, part, setting))
        scores[part.ratio, value] = mean_of(view.normalized(part)).value
        if part.is_untouched:
            row = [ratio for _, ratio in ratios].index(part.ratio)
            marks.append((row, values.index(value), "predicted"))
    table = [[scores.get((ratio, value)) for value in values] for _, ratio in ratios]
    for row, of_row in enumerate(table):
        known = {column: value for column, value in enumerate(of_row) if value is not None}
        marks.append((row, max(known, key=lambda column: known[column]), "best"))
    return HeatMap(
        name="-".join(["map", file_part(name), *arm_names(view, parts[0])]),
        title=f"Normalized score, {view.title(parts[0])}",
        x_label=f"{name} of the run",
        y_label="ratio",
        columns=tuple(f"{value:.3g}" for value in values),
        rows=tuple(ratio for _, ratio in ratios),
        values=tuple(tuple(row) for row in table),
        marks=tuple(marks),
        note="Solid frame: the best of a row. Dashed frame: where the rules expect it.",
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
    value = part.cells[0].config
    for name in setting.split("."):
        value = value[name]
    return float(value)  # type: ignore[arg-type]


def rounded(value: float) -> float:
    """Merge values that differ only by rounding into one column."""
    return float(f"{value:.4g}")
