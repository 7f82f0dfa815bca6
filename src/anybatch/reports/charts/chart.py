"""A chart as plain data: what both renderers draw, and what its CSV file holds."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from anybatch.reports.charts.axes import Axis, axis_over

Scale = Literal["linear", "log"]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart and, where it has one, the range around it."""

    label: str
    color: str
    """A name of the palette; the same thing has the same color in all charts of a page."""
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Bounds of the range at each x; both are empty where there is none."""
    dashed: bool = False
    dots: bool = False
    """Whether each point is marked, and its range drawn as a bar: for a few measured points."""
    in_legend: bool = True


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one x axis."""

    name: str
    """Of its files, such as `return`."""
    title: str
    y_label: str
    series: tuple[Series, ...]
    x_label: str = "env steps"
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    x_from: float | None = None
    """Where the x axis begins, if not at the first value."""
    y_from: float | None = None
    """A value that the y axis includes, such as 0 for shares."""
    note: str = ""
    """What the ranges are, and all else that a reader must know."""
    level: float | None = None
    """A horizontal line to compare with, such as the score of the reference."""
    level_label: str = ""

    def x_axis(self) -> Axis:
        values = [x for series in self.series for x in series.x]
        start = [] if self.x_from is None else [self.x_from]
        return axis_over([*values, *start], self.x_scale, rounded=False)

    def y_axis(self) -> Axis:
        values = [value for series in self.series for value in (*series.y, *series.low, *series.high)]
        extra = [value for value in (self.y_from, self.level) if value is not None]
        return axis_over([*values, *extra], self.y_scale, rounded=True)


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """A number for each pair of a column and a row, with marked cells."""

    name: str
    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    """From top to bottom."""
    values: tuple[tuple[float | None, ...], ...]
    """Row by row; None where nothing was measured."""
    marks: tuple[tuple[int, int, str], ...] = ()
    """Row, column and kind, `best` or `predicted`."""
    note: str = ""


Drawing = Chart | HeatMap


def csv_text(drawing: Drawing) -> str:
    """The numbers that a drawing shows, with a header line."""
    header = (
        ["series", drawing.x_label, drawing.y_label, "low", "high"]
        if isinstance(drawing, Chart)
        else [drawing.y_label, drawing.x_label, drawing.title]
    )
    rows = _chart_rows(drawing) if isinstance(drawing, Chart) else _map_rows(drawing)
    return csv_lines(header, rows)


def csv_lines(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _chart_rows(chart: Chart) -> Iterator[list[object]]:
    for series in chart.series:
        none = ("",) * len(series.x)
        for point in zip(series.x, series.y, series.low or none, series.high or none, strict=True):
            yield [series.label, *(f"{value:.6g}" if value != "" else "" for value in point)]


def _map_rows(heat_map: HeatMap) -> Iterator[list[object]]:
    for row, values in zip(heat_map.rows, heat_map.values, strict=True):
        for column, value in zip(heat_map.columns, values, strict=True):
            yield [row, column, "" if value is None else f"{value:.6g}"]
