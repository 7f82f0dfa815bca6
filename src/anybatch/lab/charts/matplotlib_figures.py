"""Drawings as picture files for papers and slides, with the axes and colors of the pages.

Imported only when needed: it is the only module that needs matplotlib.
"""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anybatch.lab.charts.axes import Axis
from anybatch.lab.charts.chart import Chart, Drawing, Intervals, Panels, Series
from anybatch.lab.charts.palette import PALETTE

WIDTH, HEIGHT = 6.8, 3.6
PANEL_WIDTH, PANEL_HEIGHT, PANELS_IN_A_ROW = 3.3, 2.7, 3
PANEL_LETTERS = 44
"""Letters per line of a panel's title."""
NOTE_LETTERS = 110
"""Letters per line of the note."""
LEGEND_LINE = 0.24
"""Inches; each line of the legend, which is below the axes, adds its own."""
LEGEND_COLUMN, LEGEND_LETTERS = 3.4, 44
"""Inches of a column of the legend, and letters per line in it."""
TEXT, SOFT, GRID = "#1c1e22", "#5d636d", "#e3e4e6"
STYLE: Any = {
    "font.size": 9,
    "svg.hashsalt": "anybatch",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "text.color": TEXT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "pdf.fonttype": 42,
}
DOTS_PER_INCH = 160
UNDATED: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""Metadata without a date, so that equal pictures are equal files."""


def picture(drawn: Drawing, suffix: str) -> bytes:
    """A drawing as the content of a .png, .svg or .pdf file."""
    content = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        metadata = UNDATED.get(suffix)
        figure_of(drawn).savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()


def figure_of(drawn: Drawing) -> Figure:
    match drawn:
        case Chart():
            return panels_figure(drawn.title, [drawn], WIDTH, HEIGHT, note=shown_note(drawn))
        case Panels(charts=[alone]):
            return panels_figure(drawn.title, [alone], WIDTH, HEIGHT, note=shown_note(alone))
        case Panels():
            return panels_figure(drawn.title, drawn.charts, PANEL_WIDTH, PANEL_HEIGHT)
        case Intervals():
            return intervals_figure(drawn)


def shown_note(chart: Chart) -> str:
    """The note about the ranges of a chart, if it shows any."""
    return chart.note if any(series.low for series in chart.series) else ""


def panels_figure(
    title: str, charts: Sequence[Chart], width: float, height: float, *, note: str = ""
) -> Figure:
    """Charts in rows, the note above and one legend below all of them."""
    columns = min(len(charts), PANELS_IN_A_ROW)
    rows = -(-len(charts) // columns)
    labels = dict.fromkeys(series.label for chart in charts for series in chart.series if series.in_legend)
    legend_columns = max(1, int(columns * width / LEGEND_COLUMN))
    legend = {label: "\n".join(textwrap.wrap(label, LEGEND_LETTERS)) for label in labels}
    legend_lines = lines_of_legend(list(legend.values()), legend_columns) if len(legend) > 1 else 0
    figure = Figure(
        figsize=(columns * width, 0.3 + rows * height + LEGEND_LINE * legend_lines), layout="constrained"
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    one_y_label = len({chart.y_label for chart in charts}) == 1
    for place, (axes, chart) in enumerate(zip(grid, charts, strict=False)):
        draw_chart(axes, chart, titled=len(charts) > 1)
        if one_y_label and place % columns:
            axes.set_ylabel("")
    for axes in grid[len(charts) :]:
        axes.set_visible(False)
    if note:
        grid[0].set_title(textwrap.fill(note, NOTE_LETTERS), loc="left", fontsize=8, color=SOFT)
    if legend_lines:
        handles: dict[str, Any] = {}
        for axes in grid:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(legend[label], handle)
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower left", frameon=False, ncols=legend_columns
        )
    return figure


def lines_of_legend(labels: Sequence[str], columns: int) -> int:
    """Lines of text in the longest column. The labels fill one column after the other."""
    in_column = -(-len(labels) // columns)
    lines = [label.count("\n") + 1 for label in labels]
    return max(sum(lines[start : start + in_column]) for start in range(0, len(lines), in_column))


def draw_chart(axes: Axes, chart: Chart, *, titled: bool) -> None:
    if titled:
        axes.set_title("\n".join(textwrap.wrap(chart.title, PANEL_LETTERS)), loc="left", fontsize=9)
    _set_axis(axes, "x", chart.x_axis(), chart.x_label)
    _set_axis(axes, "y", chart.y_axis(), "\n".join(textwrap.wrap(chart.y_label, 32 if titled else 42)))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if chart.level is not None:
        axes.axhline(chart.level, color=SOFT, linewidth=1, linestyle=":")
        place = axes.get_yaxis_transform()
        axes.text(1, chart.level, chart.level_label, transform=place, ha="right", va="bottom", fontsize=8)
    for series in chart.series:
        _draw(axes, series)


def intervals_figure(drawn: Intervals) -> Figure:
    figure = Figure(figsize=(WIDTH + 1.4, 0.9 + 0.32 * len(drawn.rows)), layout="constrained")
    axes = figure.subplots()
    if drawn.margin is not None:
        axes.axvspan(*drawn.margin, color=GRID, linewidth=0)
    axes.axvline(0, color=SOFT, linewidth=0.8)
    for place, row in enumerate(drawn.rows):
        color = PALETTE[row.color][0]
        axes.hlines(place, row.low, row.high, color=color, linewidth=2)
        axes.plot(row.value, place, "o", color=color, markersize=5)
    labels = ["\n".join(textwrap.wrap(row.label, 46)) for row in drawn.rows]
    axes.set_yticks(range(len(drawn.rows)), labels)
    axes.set_ylim(len(drawn.rows) - 0.5, -0.5)
    _set_axis(axes, "x", drawn.axis(), drawn.x_label)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(drawn.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def _draw(axes: Axes, series: Series) -> None:
    color = PALETTE[series.color][0]
    if series.low and not series.dots:
        axes.fill_between(series.x, series.low, series.high, color=color, alpha=0.16, linewidth=0)
    if series.low and series.dots:
        axes.vlines(series.x, series.low, series.high, color=color, linewidth=1.2, alpha=0.7)
    axes.plot(
        series.x,
        series.y,
        color=color,
        linewidth=1.6,
        linestyle=("--" if series.dashed else "-") if series.line else "",
        marker="o" if series.dots or len(series.x) == 1 else "",
        markersize=4.5,
        label=series.label if series.in_legend else None,
        clip_on=False,  # half of a line along the top would be cut off
    )


def _set_axis(axes: Axes, which: str, axis: Axis, label: str) -> None:
    """The same ticks as on the page."""
    side = getattr(axes, f"{which}axis")
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
        side.minorticks_off()
    getattr(axes, f"set_{which}lim")(axis.low, axis.high)
    side.set_ticks(axis.ticks, axis.labels)
    getattr(axes, f"set_{which}label")(label)
