"""Drawings as plain data: what pages and picture files show, and what their CSV files hold."""

import csv
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from anybatch.lab.charts.axes import Axis, axis_of_names, axis_over

Scale = Literal["linear", "log"]
MOST_X_TICKS = 4
"""Most ticks of a logarithmic x axis, whose labels are long and side by side."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart and, if it has one, the range around it."""

    label: str
    color: str
    """A name of the palette; the same thing has the same color in all charts of a page."""
    x: tuple[float, ...]
    y: tuple[float, ...]
    """NaN where nothing was measured: the line has a gap there."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Bounds of the range at each x; both are empty if there is none."""
    dashed: bool = False
    dots: bool = False
    """Whether each point is marked, and its range drawn as a bar: for a few measured points."""
    line: bool = True
    """Whether the points are joined; otherwise `dots` marks them."""
    in_legend: bool = True


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one x axis."""

    name: str
    """Name of its files, such as `return`."""
    title: str
    y_label: str
    series: tuple[Series, ...]
    x_label: str = "env steps"
    x_scale: Scale = "linear"
    x_names: tuple[str, ...] = ()
    """Names of x values, if these have no meaning as numbers."""
    x_places: tuple[float, ...] = ()
    """The x value of each name."""
    y_scale: Scale = "linear"
    x_includes: tuple[float, ...] = ()
    """Values that the x axis must include, such as 0 and the end of a run."""
    y_includes: tuple[float, ...] = ()
    """Values that the y axis must include, such as 0 for shares."""
    note: str = ""
    """What the ranges are, and anything else that a reader must know."""
    level: float | None = None
    """A horizontal line to compare with, such as the score of the reference."""
    level_label: str = ""
    is_wide: bool = False
    """Whether it has the whole width of a page, beside others that share a row."""

    def x_axis(self) -> Axis:
        if self.x_names:
            return axis_of_names(self.x_names, self.x_places)
        values = [x for series in self.series for x in series.x]
        values = [*values, *self.x_includes]
        return axis_over(values, self.x_scale, rounded=False, most_log_ticks=MOST_X_TICKS)

    def x_name(self, x: float) -> str:
        """The name nearest to `x`, or `x` itself where values have none."""
        if not self.x_names:
            return _written(x)
        return min(zip(self.x_places, self.x_names, strict=True), key=lambda named: abs(named[0] - x))[1]

    def y_axis(self) -> Axis:
        return axis_over(self.y_values(), self.y_scale, rounded=True)

    def y_values(self) -> list[float]:
        """All values that the y axis must include."""
        values = [value for series in self.series for value in (*series.y, *series.low, *series.high)]
        return [*values, *self.y_includes, *([] if self.level is None else [self.level])]


@dataclass(frozen=True, kw_only=True)
class Panels:
    """Charts side by side with one legend."""

    name: str
    title: str
    charts: tuple[Chart, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class IntervalRow:
    """A number with its interval."""

    label: str
    value: float
    low: float
    high: float
    color: str
    ending: str = ""
    """A word after the number."""


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Numbers in rows on one axis, with their intervals and the margin that judges them."""

    name: str
    title: str
    x_label: str
    rows: tuple[IntervalRow, ...]
    margin: tuple[float, float] | None = None
    """Bounds of the shaded margin; None if there is none."""
    form: str = "{:+.3f}"
    """How the numbers are written; differences show their sign."""
    bounds_written: bool = True
    """Whether the bounds follow the number; not if a row is a bar from 0 to its number."""
    note: str = ""

    def axis(self) -> Axis:
        values = [value for row in self.rows for value in (row.value, row.low, row.high)]
        return axis_over([*values, *(self.margin or ()), 0.0], "linear", rounded=True)


Drawing = Chart | Panels | Intervals


def csv_text(drawing: Drawing) -> str:
    """The numbers that a drawing shows, with a header line."""
    match drawing:
        case Chart():
            return csv_lines(_chart_header(drawing), _chart_rows(drawing))
        case Panels():
            header = ["panel", *_chart_header(drawing.charts[0])]
            rows = ([chart.title, *row] for chart in drawing.charts for row in _chart_rows(chart))
            return csv_lines(header, rows)
        case Intervals():
            rows = ([row.label, *map(_written, (row.value, row.low, row.high))] for row in drawing.rows)
            return csv_lines(["comparison", drawing.x_label, "low", "high"], rows)


def csv_lines(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _chart_header(chart: Chart) -> list[str]:
    return ["series", chart.x_label, chart.y_label, "low", "high"]


def _chart_rows(chart: Chart) -> Iterator[list[str]]:
    for series in chart.series:
        none = (None,) * len(series.x)
        for x, *values in zip(series.x, series.y, series.low or none, series.high or none, strict=True):
            place = chart.x_name(x)
            yield [series.label, place, *map(_written, values)]


def _written(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.6g}"
