"""What a study found, as drawings. Which ones there are follows from what its grid varies."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anybatch.reports.charts import palette
from anybatch.reports.charts.chart import Chart, Drawing, Panels, Series
from anybatch.reports.study_parts import LEVEL, Part, StudyView, mean_of
from anybatch.reports.study_sweeps import sweep_drawings

DODGE = 0.07
"""How far lines over the same names are moved apart, so that their intervals do not cover each other."""
SCORE_NOTE = f"Bars: {LEVEL:.0%} bootstrap intervals over seeds, within each environment."


@dataclass(frozen=True)
class Dimension:
    """Something that a grid varies, in the order of its values."""

    name: str
    """Of the files."""
    label: str
    value: Callable[[Part], Any]
    shown: Callable[[Any], str]

    def values(self, parts: Iterable[Part]) -> list[Any]:
        return sorted({value for part in parts if (value := self.value(part)) is not None})


def drawings_of(view: StudyView) -> list[Drawing]:
    """Scores over what is varied, sweeps, then learning curves."""
    drawn: list[Drawing] = []
    for dimension in dimensions(view):
        panels = score_panels(view, dimension)
        drawn += [panels] if panels.charts else []
    return [*drawn, *sweep_drawings(view)]


def dimensions(view: StudyView) -> list[Dimension]:
    """The ratio of the batch and each swept setting, where there is more than one value of it."""
    ratio = Dimension(
        "ratio",
        "batch ÷ batch tuned at",
        lambda part: (part.ratio_value, part.ratio),
        lambda value: value[1],
    )
    found = [ratio]
    for path in dict.fromkeys(path for part in view.parts for path in part.point):
        name = path.rpartition(".")[2].replace("_", " ")
        found.append(
            Dimension(
                path.replace(".", "-").replace("_", "-"),
                name,
                lambda part, path=path: part.point.get(path),
                str,
            )
        )
    return [dimension for dimension in found if len(dimension.values(view.parts)) > 1]


def score_panels(view: StudyView, dimension: Dimension) -> Panels:
    """Scores over a dimension, a line for each arm: over all environments, then within each of them."""
    plain = [part for part in view.parts if part.is_untouched and dimension.value(part) is not None]
    if any(
        not part.factors for part in plain
    ):  # arms that are tuned at each batch are no line of one setting
        plain = [part for part in plain if not part.factors]
    values = dimension.values(plain)
    lines: dict[Hashable, list[Part]] = {}
    for part in plain:
        others = (part.base, part.arm, *((part.ratio,) if dimension.name != "ratio" else ()))
        lines.setdefault(others, []).append(part)
    charts: list[Chart] = []
    everywhere = [None] if len(view.strata) > 1 else []
    for stratum in (*everywhere, *view.strata):
        series = score_series(view, dimension, list(lines.values()), values, stratum)
        if series:
            charts.append(score_chart(view, dimension, values, series, stratum))
    return Panels(
        name=f"score-{dimension.name}",
        title=f"Score over {dimension.label}",
        charts=with_common_scale(charts),
        note=SCORE_NOTE,
    )


def score_chart(
    view: StudyView,
    dimension: Dimension,
    values: Sequence[Any],
    series: tuple[Series, ...],
    stratum: str | None,
) -> Chart:
    level = score_of(view, view.reference, stratum) if view.reference else None
    return Chart(
        name=f"score-{dimension.name}-{stratum or 'all'}",
        title=stratum or f"mean over {len(view.strata)} environments",
        y_label=f"normalized {'area under the curve' if view.plan.metric == 'area' else 'final return'}",
        x_label=dimension.label,
        x_names=tuple(dimension.shown(value) for value in values),
        series=series,
        y_includes=(0.0,),
        level=level[0] if level else None,
        level_label="",
    )


def score_series(
    view: StudyView,
    dimension: Dimension,
    lines: Sequence[Sequence[Part]],
    values: Sequence[Any],
    stratum: str | None,
) -> tuple[Series, ...]:
    """A line for each arm; of those with no score here, none."""
    found: list[Series] = []
    for number, parts in enumerate(lines):
        color, dashed = palette.distinct(number)
        shift = DODGE * (number - (len(lines) - 1) / 2)
        points: list[tuple[float, float, float, float]] = []
        for part in sorted(parts, key=lambda part: values.index(dimension.value(part))):
            score = score_of(view, part, stratum)
            if score is not None:
                points.append((values.index(dimension.value(part)) + shift, *score))
        if points:
            x, y, low, high = zip(*points, strict=True)
            label = view.title(parts[0])
            found.append(
                Series(label=label, color=color, dashed=dashed, dots=True, x=x, y=y, low=low, high=high)
            )
    return tuple(found)


def score_of(view: StudyView, part: Part | None, stratum: str | None) -> tuple[float, float, float] | None:
    """Mean normalized score and its interval: in one environment, or where all have one, over all of them."""
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
    values = tuple(value for chart in charts for value in chart.y_values())
    return tuple(replace(chart, y_includes=(min(values), max(values))) for chart in charts)
