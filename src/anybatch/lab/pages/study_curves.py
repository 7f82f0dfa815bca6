"""Learning curves of a study's cells, and the metrics of its verdicts over the runs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anybatch.lab.charts import palette
from anybatch.lab.charts.chart import Chart, Panels, Series
from anybatch.lab.pages.run_charts import RUN_CHARTS
from anybatch.lab.pages.study_charts import with_common_scale
from anybatch.lab.pages.study_parts import Part, StudyView, ordered
from anybatch.lab.studies.cells import Result

RETURN_LABEL = "mean return of training episodes"
MOST_LINES = 7
"""Most arms that share a panel."""
CURVE_NOTE = "Mean over seeds; shaded: their range."
LOG_METRICS = ("batch/noise_scale", "batch/iteration", "batch/minibatch")


def curve_panels(view: StudyView) -> list[Panels]:
    """The returns of each environment: a panel for each arm with a line for each of its batches or values.

    A few arms with one line each share a panel.
    """
    panels: dict[str, list[Part]] = {}
    for part in view.parts:
        panels.setdefault(panel_title(view, part), []).append(part)
    if all(len(parts) == 1 for parts in panels.values()) and len(view.parts) <= MOST_LINES:
        return all_in_one(view)
    drawn: list[Panels] = []
    for number, stratum in enumerate(view.strata, 1):
        name = f"curves-{number}"
        charts = [
            arm_chart(view, title, parts, stratum, f"{name}-{place}")
            for place, (title, parts) in enumerate(panels.items(), 1)
        ]
        shown = with_common_scale([chart for chart in charts if chart.series])
        if shown:
            title = f"Learning curves, {stratum}"
            drawn.append(Panels(name=name, title=title, charts=shown, note=CURVE_NOTE))
    return drawn


def panel_title(view: StudyView, part: Part) -> str:
    """The title of a panel: its arm and, if its lines are the values of a swept setting, its ratio."""
    is_swept = bool(part.point or part.factors)
    return (
        f"{view.title(part)}, ratio {part.ratio}" if is_swept and view.plan.has_ratios else view.title(part)
    )


def line_label(view: StudyView, part: Part) -> str:
    """What distinguishes a line from the others of its panel."""
    swept_words = view.words(part.point, part.factors)
    if swept_words:
        return ", ".join(swept_words)
    return f"ratio {part.ratio}" if view.plan.has_ratios else view.title(part)


def arm_chart(view: StudyView, title: str, parts: Sequence[Part], stratum: str, name: str) -> Chart:
    """The curves of one arm, with the curve of the reference."""
    lines = [
        return_line(view, part, stratum, label=line_label(view, part), color=line_color(view, part))
        for part in parts
    ]
    reference = view.reference
    if any(lines) and reference is not None and reference not in parts:
        label = f"reference: {view.label(reference)}"
        lines.append(return_line(view, reference, stratum, label=label, color="gray", dashed=True))
    return curve_chart(name, title, lines)


def curve_chart(name: str, title: str, lines: Iterable[Series | None], y_label: str = RETURN_LABEL) -> Chart:
    """A chart of lines over a whole run, as far as they have values."""
    series = tuple(line for line in lines if line is not None)
    return Chart(name=name, title=title, y_label=y_label, series=series, x_includes=(0,))


def line_color(view: StudyView, part: Part) -> str:
    """The color of a part, by its place among all batches, or among all values of the same settings."""
    alike = [
        varied(other)
        for other in view.parts
        if (other.point.keys(), other.factors.keys()) == (part.point.keys(), part.factors.keys())
    ]
    known = [ordered(values) for values in zip(*alike, strict=True)]

    def place(values: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(among.index(value) for among, value in zip(known, values, strict=True))

    places = sorted(set(map(place, alike)))
    return palette.ordered(places.index(place(varied(part))), len(places))


def varied(part: Part) -> tuple[Any, ...]:
    """The values of the settings that a part sweeps; its ratio if it sweeps none."""
    return (*part.point.values(), *part.factors.values()) or (part.fraction,)


def all_in_one(view: StudyView) -> list[Panels]:
    """A panel for each environment, with a line for each arm."""
    charts: list[Chart] = []
    for number, stratum in enumerate(view.strata, 1):
        lines: list[Series | None] = []
        for place, part in enumerate(view.parts):
            color, dashed = palette.distinct(place)
            lines.append(return_line(view, part, stratum, label=view.label(part), color=color, dashed=dashed))
        charts += [curve_chart(f"curves-{number}", stratum, lines)] if any(lines) else []
    panels = Panels(name="curves", title="Learning curves", charts=tuple(charts), note=CURVE_NOTE)
    return [panels] if charts else []


def metric_panels(view: StudyView) -> list[Panels]:
    """The metrics of verdicts over the runs at the reference's batch, one panel each."""
    named = [name for rule in view.plan.verdicts for name in (rule.get("metric"), *rule.get("others", ()))]
    metrics = list(dict.fromkeys(name for name in named if name))
    ratio = view.plan.reference["ratio"]
    parts = [part for part in view.parts if part.ratio == ratio and part.is_untouched and not part.point]
    drawn: list[Panels] = []
    for number, stratum in enumerate(view.strata, 1):
        charts = [metric_chart(view, parts, metric, stratum) for metric in metrics]
        charts = [chart for chart in charts if chart.series]
        if charts:
            title = f"Metrics along the runs, {stratum}"
            drawn.append(Panels(name=f"metrics-{number}", title=title, charts=tuple(charts), note=CURVE_NOTE))
    return drawn


def metric_chart(view: StudyView, parts: Sequence[Part], metric: str, stratum: str) -> Chart:
    lines: list[Series | None] = []
    for place, part in enumerate(parts):
        results = [result for result in view.finished(part, stratum) if result.course(metric)]
        color, dashed = palette.distinct(place)
        courses = [result.course(metric) for result in results]
        lines.append(mean_line(results, courses, view.label(part), color, dashed=dashed))
    title = next((kind.title for kind in RUN_CHARTS if kind.metric == metric), metric)
    chart = curve_chart(metric.rpartition("/")[2], title, lines, y_label="")
    return replace(chart, y_scale="log" if metric in LOG_METRICS else "linear")


def return_line(
    view: StudyView, part: Part, stratum: str, *, label: str, color: str, dashed: bool = False
) -> Series | None:
    results = view.finished(part, stratum)
    returns = [tuple(value for _, value in result.curve) for result in results]
    return mean_line(results, returns, label, color, dashed=dashed)


def mean_line(
    results: Sequence[Result],
    courses: Sequence[Sequence[float | None]],
    label: str,
    color: str,
    *,
    dashed: bool = False,
) -> Series | None:
    """The mean over seeds and their range, at each part of the runs where some seed has a value."""
    if not results:
        return None
    values = np.array([without_gaps(course) for course in courses])
    known = ~np.isnan(values).all(axis=0)
    if not known.any():
        return None
    steps = np.array([env_steps for env_steps, _ in results[0].curve], dtype=float)[known]
    values = values[:, known]
    mean = np.nanmean(values, axis=0)
    values[np.isinf(values)] = np.nan
    lost = np.isnan(values).all(axis=0)  # infinite in all runs: beyond what can be drawn
    steps, values, mean = steps[~lost], values[:, ~lost], mean[~lost]
    if not steps.size:
        return None
    has_range = len(results) > 1
    return Series(
        label=label,
        color=color,
        dashed=dashed,
        x=tuple(steps.tolist()),
        y=tuple(np.where(np.isinf(mean), np.nan, mean).tolist()),
        low=tuple(np.nanmin(values, axis=0).tolist()) if has_range else (),
        high=tuple(np.nanmax(values, axis=0).tolist()) if has_range else (),
    )


def without_gaps(course: Sequence[float | None]) -> np.ndarray:
    """Values with gaps interpolated linearly; NaN before the first and after the last."""
    places = np.arange(len(course))
    known = [place for place, value in enumerate(course) if value is not None]
    if not known:
        return np.full(len(course), np.nan)
    values = [value for value in course if value is not None]
    filled = np.interp(places, known, values, left=np.nan, right=np.nan)
    filled[known] = values  # also where they are infinite
    return filled
