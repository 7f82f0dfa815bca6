"""Drawings as figures of a page: lines stretch with the page, text keeps its size.

The lines are an SVG without a fixed aspect; ticks are text placed by percentages around it.
"""

import math
from itertools import chain

from anybatch.lab.charts.axes import Axis
from anybatch.lab.charts.chart import Chart, Drawing, Intervals, Panels, Series
from anybatch.lab.pages.markup import Markup, data_element, element, joined


def drawing(drawn: Drawing, *, alone: bool = True) -> Markup:
    """A figure with its caption; a standalone figure also has its legend and note."""
    match drawn:
        case Chart():
            body = joined(legend(drawn.series) if alone else None, frame(drawn))
        case Panels():
            body = panels(drawn)
        case Intervals():
            body = intervals(drawn)
    caption = (
        element("strong", drawn.title),
        element("span", drawn.y_label) if isinstance(drawn, Chart) else None,
    )
    is_wide = isinstance(drawn, Chart) and drawn.is_wide
    return element(
        "figure",
        element("figcaption", *caption),
        body,
        element("p", drawn.note, class_="note") if drawn.note and alone else None,
        class_="chart wide" if is_wide else "chart",
        id=f"figure-{drawn.name}",
    )


def legend(series: tuple[Series, ...], *, shared: bool = False) -> Markup | None:
    """The colors of the lines; None if there is only one line. A shared legend stays in view."""
    known = {one.label: one for one in series if one.in_legend}
    if len(known) < 2:
        return None
    keys = (element("li", swatch(one.color, dashed=one.dashed), label) for label, one in known.items())
    return element("ul", *keys, class_="legend shared" if shared else "legend")


def swatch(color: str, *, dashed: bool = False) -> Markup:
    kind = "swatch dashed" if dashed else "swatch"
    return element("i", class_=kind, style=f"color:var(--{color})", aria_hidden="true")


def panels(drawn: Panels) -> Markup:
    """Charts side by side, with their common parts shown once."""
    first = drawn.charts[0]
    shown = (
        element("div", element("p", chart.title, class_="panel-title"), frame(chart), class_="panel")
        for chart in drawn.charts
    )
    return joined(
        element("p", first.y_label, class_="note") if first.y_label else None,
        legend(tuple(series for chart in drawn.charts for series in chart.series)),
        element("div", *shown, class_="charts"),
    )


def intervals(drawn: Intervals) -> Markup:
    """A row for each number: its label, its place on the common axis, and the number itself."""
    axis = drawn.axis()
    cells: list[Markup] = []
    for row in drawn.rows:
        shapes: list[Markup] = []
        if drawn.margin is not None:
            low, high = (units(axis.place(bound)) for bound in drawn.margin)
            shapes.append(element("path", class_="margin", d=f"M{low} 0H{high}V{SIDE}H{low}Z"))
        shapes.append(element("path", class_="zero", d=f"M{units(axis.place(0))} 0V{SIDE}"))
        low, value, high = (units(axis.place(bound)) for bound in (row.low, row.value, row.high))
        color = f"stroke:var(--{row.color})"
        shapes.append(element("path", class_="line interval", style=color, d=f"M{low} 500H{high}"))
        shapes.append(element("path", class_="dots", style=color, d=f"M{value} 500h0"))
        value_text, low_text, high_text = map(drawn.form.format, (row.value, row.low, row.high))
        bounds = f" ({low_text} to {high_text})" if drawn.bounds_written else ""
        number = f"{value_text}{bounds} {row.ending}".strip().replace("-", "−")
        cells += [
            element("div", row.label, class_="label"),
            element("div", stretched(shapes, f"{row.label}: {number}"), class_="track"),
            element("div", number, class_="number"),
        ]
    ticks = element("div", *x_ticks(axis), class_="x", aria_hidden="true")
    return element("div", *cells, ticks, element("div", drawn.x_label, class_="x-label"), class_="intervals")


SIDE = 1000
"""Side of the SVG in its own units; the page stretches it to the available room."""
EDGE = 0.06
"""Ticks closer than this to an end of the x axis are aligned with the end, not centered."""


def frame(chart: Chart) -> Markup:
    """The plot with its ticks below and to the left of it."""
    x_axis, y_axis = chart.x_axis(), chart.y_axis()
    widest = max(y_axis.labels, key=len, default="")
    y_ticks = (
        element("span", label, style=f"bottom:{100 * y_axis.place(tick):.2f}%")
        for tick, label in zip(y_axis.ticks, y_axis.labels, strict=True)
    )
    return element(
        "div",
        element("div", element("span", widest, class_="widest"), *y_ticks, class_="y", aria_hidden="true"),
        element("div", plot(chart, x_axis, y_axis), level_label(chart, y_axis), class_="plot"),
        element("div", *x_ticks(x_axis), class_="x", aria_hidden="true"),
        element("div", chart.x_label, class_="x-label"),
        hover_data(chart, x_axis),
        class_="frame",
    )


def x_ticks(axis: Axis) -> list[Markup]:
    ticks: list[Markup] = []
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        place = axis.place(tick)
        side = "first" if place < EDGE else "last" if place > 1 - EDGE else None
        ticks.append(element("span", label, class_=side, style=f"left:{100 * place:.2f}%"))
    return ticks


def plot(chart: Chart, x_axis: Axis, y_axis: Axis) -> Markup:
    grid = "".join(f"M0 {units(1 - y_axis.place(tick))}H{SIDE}" for tick in y_axis.ticks)
    shapes = [element("path", class_="grid", d=grid)]
    if chart.level is not None:
        height = units(1 - y_axis.place(chart.level))
        shapes.append(element("path", class_="level", d=f"M0 {height}H{SIDE}"))
    shapes += [band(series, x_axis, y_axis) for series in chart.series if series.low and not series.dots]
    for series in chart.series:
        shapes += lines(series, x_axis, y_axis)
    described = f"{chart.title}: {chart.y_label} over {chart.x_label}"
    return stretched(shapes, described)


def stretched(shapes: list[Markup], described: str) -> Markup:
    """An SVG of SIDE × SIDE units that fills the element it is in."""
    return element(
        "svg",
        *shapes,
        viewBox=f"0 0 {SIDE} {SIDE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=described,
    )


def level_label(chart: Chart, y_axis: Axis) -> Markup | None:
    if chart.level is None or not chart.level_label:
        return None
    bottom = 100 * y_axis.place(chart.level)
    return element("span", chart.level_label, class_="level-label", style=f"bottom:{bottom:.2f}%")


def band(series: Series, x_axis: Axis, y_axis: Axis) -> Markup:
    """The range around a line."""
    high, low = (_pieces(series.x, y, x_axis, y_axis) for y in (series.high, series.low))
    outline = "".join(f"M{'L'.join(there + back[::-1])}Z" for there, back in zip(high, low, strict=True))
    return element("path", class_="band", style=f"fill:var(--{series.color})", d=outline)


def lines(series: Series, x_axis: Axis, y_axis: Axis) -> list[Markup]:
    """The line and, if requested, its points with their ranges. A point alone is a dot."""
    pieces = _pieces(series.x, series.y, x_axis, y_axis)
    color = f"stroke:var(--{series.color})"
    shapes: list[Markup] = []
    joined_points = "".join(f"M{'L'.join(piece)}" for piece in pieces if len(piece) > 1)
    if joined_points and series.line:
        kind = "line dashed" if series.dashed else "line"
        shapes.append(element("path", class_=kind, style=color, d=joined_points))
    dots = [point for piece in pieces for point in piece if series.dots or len(piece) == 1]
    if dots:
        # A line of length 0 with round ends is a round dot, however the SVG is stretched.
        shapes.append(element("path", class_="dots", style=color, d="".join(f"M{dot}h0" for dot in dots)))
    if series.dots and series.low:
        low, high = (chain(*_pieces(series.x, y, x_axis, y_axis)) for y in (series.low, series.high))
        bars = "".join(f"M{bottom}L{top}" for bottom, top in zip(low, high, strict=True))
        shapes.append(element("path", class_="bars", style=color, d=bars))
    return shapes


def hover_data(chart: Chart, x_axis: Axis) -> Markup:
    """The numbers that the page shows at the pointer."""
    series = [
        [
            one.label,
            one.color,
            [float(f"{x:.6g}") for x, y in zip(one.x, one.y, strict=True) if not math.isnan(y)],
            [float(f"{y:.5g}") for y in one.y if not math.isnan(y)],
        ]
        for one in chart.series
    ]
    data = {
        "x": [x_axis.low, x_axis.high, x_axis.log],
        "label": chart.x_label,
        "names": chart.x_names,
        "places": chart.x_places,
        "series": series,
    }
    return data_element(data)


def _pieces(x: tuple[float, ...], y: tuple[float, ...], x_axis: Axis, y_axis: Axis) -> list[list[str]]:
    """Places of the points that the axes can show, as `x y`; a NaN of y ends a piece of the line."""
    pieces: list[list[str]] = [[]]
    for one, other in zip(x, y, strict=True):
        if math.isnan(other):
            pieces.append([])
        elif not x_axis.log or one > 0:
            pieces[-1].append(f"{units(x_axis.place(one))} {units(1 - y_axis.place(max(other, y_axis.low)))}")
    return [piece for piece in pieces if piece]


def units(place: float) -> str:
    """A place from 0 to 1 in the units of the SVG."""
    return f"{SIDE * place:.1f}".removesuffix(".0")
