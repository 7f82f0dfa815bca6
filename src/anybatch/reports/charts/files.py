"""Charts as picture files for papers and slides, drawn by matplotlib."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anybatch.errors import UserError
from anybatch.reports.charts.axes import Axis
from anybatch.reports.charts.chart import Chart, Drawing, HeatMap, Series
from anybatch.reports.charts.palette import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
EXTRA = "pip install 'anybatch[plot]' adds it"
DOTS_PER_INCH = 160
WIDTH, HEIGHT, LEGEND_LINE = 6.8, 3.6, 0.24
"""Inches; each line of the legend, which is below the axes, adds its own."""
TEXT, SOFT, GRID = "#1c1e22", "#5d636d", "#e3e4e6"
STYLE: Any = {
    "font.size": 9,
    "svg.hashsalt": "anybatch",  # the same picture is the same file
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "text.color": TEXT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "pdf.fonttype": 42,
}


def refuse_format(out: Path) -> None:
    if out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: the file must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def is_available() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def picture(drawn: Drawing, suffix: str) -> bytes:
    """A drawing as the content of a .png, .svg or .pdf file."""
    try:
        import matplotlib
    except ImportError:
        raise UserError(f"a picture needs the package matplotlib: {EXTRA}") from None
    with matplotlib.rc_context(STYLE):
        figure = chart_figure(drawn) if isinstance(drawn, Chart) else map_figure(drawn)
        content = io.BytesIO()
        undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
        figure.savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=undated)
    return content.getvalue()


def chart_figure(chart: Chart) -> "Figure":
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(series.label for series in chart.series if series.in_legend))
    below = LEGEND_LINE * len(labels) if len(labels) > 1 else 0
    figure = Figure(figsize=(WIDTH, HEIGHT + below), layout="constrained")
    axes = figure.subplots()
    axes.set_title(chart.title, loc="left", fontsize=11, fontweight="bold")
    _set_axis(axes, "x", chart.x_axis(), chart.x_label)
    _set_axis(axes, "y", chart.y_axis(), _broken(chart.y_label))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if chart.level is not None:
        axes.axhline(chart.level, color=SOFT, linewidth=1, linestyle=":")
        axes.text(
            1, chart.level, chart.level_label, transform=axes.get_yaxis_transform(), ha="right", va="bottom"
        )
    for series in chart.series:
        _draw(axes, series)
    if len(labels) > 1:
        figure.legend(loc="outside lower left", frameon=False)
    return figure


def map_figure(drawn: HeatMap) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 1.2 + 0.5 * len(drawn.rows)), layout="constrained")
    axes = figure.subplots()
    values = [[float("nan") if value is None else value for value in row] for row in drawn.values]
    axes.imshow(values, cmap="Blues", aspect="auto")
    known = [value for row in drawn.values for value in row if value is not None]
    middle = (min(known, default=0.0) + max(known, default=0.0)) / 2
    for row, of_row in enumerate(drawn.values):
        for column, value in enumerate(of_row):
            shown, color = (
                ("–", SOFT) if value is None else (f"{value:.3g}", "white" if value > middle else TEXT)
            )
            axes.text(column, row, shown, ha="center", va="center", color=color)
    for row, column, kind in drawn.marks:
        edge, line = (TEXT, "-") if kind == "best" else (PALETTE["orange"][0], "--")
        axes.add_patch(_outline(column, row, edge, line))
    axes.set_xticks(range(len(drawn.columns)), drawn.columns)
    axes.set_yticks(range(len(drawn.rows)), drawn.rows)
    axes.set_xlabel(drawn.x_label)
    axes.set_ylabel(drawn.y_label)
    axes.set_title(drawn.title, loc="left", fontsize=11, fontweight="bold")
    axes.spines[:].set_visible(False)
    return figure


def _outline(column: int, row: int, edge: str, line: str) -> Any:
    from matplotlib.patches import Rectangle

    corner = (column - 0.46, row - 0.46)
    return Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=edge, linestyle=line, linewidth=2)


def _draw(axes: "Axes", series: Series) -> None:
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
        linestyle="--" if series.dashed else "-",
        marker="o" if series.dots or len(series.x) == 1 else "",
        markersize=4.5,
        label=series.label if series.in_legend else None,
    )


def _set_axis(axes: "Axes", which: str, axis: Axis, label: str) -> None:
    """The same ticks as on the page."""
    side = getattr(axes, f"{which}axis")
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
        side.minorticks_off()
    getattr(axes, f"set_{which}lim")(axis.low, axis.high)
    side.set_ticks(axis.ticks, axis.labels)
    getattr(axes, f"set_{which}label")(label)


def _broken(label: str, most: int = 42) -> str:
    """A label in lines that fit beside the axis."""
    import textwrap

    return "\n".join(textwrap.wrap(label, most))
