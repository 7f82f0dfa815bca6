"""Line charts as responsive markup: lines stretch with the page, text keeps its size.

The lines are an SVG without a fixed aspect; ticks are text placed by percentages around it.
"""

from anybatch.lab.charts.axes import Axis
from anybatch.lab.charts.chart import Chart, Series
from anybatch.lab.pages.markup import Markup, data_element, element

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
    there = _points(series.x, series.high, x_axis, y_axis)
    back = _points(series.x, series.low, x_axis, y_axis)[::-1]
    outline = "M" + "L".join(there + back) + "Z" if there else ""
    return element("path", class_="band", style=f"fill:var(--{series.color})", d=outline)


def lines(series: Series, x_axis: Axis, y_axis: Axis) -> list[Markup]:
    """The line and, if requested, its points with their ranges."""
    points = _points(series.x, series.y, x_axis, y_axis)
    if not points:
        return []
    color = f"stroke:var(--{series.color})"
    shapes: list[Markup] = []
    if len(points) > 1 and series.line:
        kind = "line dashed" if series.dashed else "line"
        shapes.append(element("path", class_=kind, style=color, d="M" + "L".join(points)))
    if series.dots or len(points) == 1:
        # A line of length 0 with round ends is a round dot, however the SVG is stretched.
        shapes.append(
            element("path", class_="dots", style=color, d="".join(f"M{point}h0" for point in points))
        )
    if series.dots and series.low:
        ends = zip(
            _points(series.x, series.low, x_axis, y_axis),
            _points(series.x, series.high, x_axis, y_axis),
            strict=True,
        )
        bars = "".join(f"M{low}L{high}" for low, high in ends)
        shapes.append(element("path", class_="bars", style=color, d=bars))
    return shapes


def hover_data(chart: Chart, x_axis: Axis) -> Markup:
    """The numbers that the page shows at the pointer."""
    series = [
        [
            one.label,
            one.color,
            [float(f"{x:.6g}") for x in one.x],
            [float(f"{y:.5g}") for y in one.y],
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


def _points(x: tuple[float, ...], y: tuple[float, ...], x_axis: Axis, y_axis: Axis) -> list[str]:
    """Places of the points that the axes can show, as `x y`."""
    return [
        f"{units(x_axis.place(one))} {units(1 - y_axis.place(max(other, y_axis.low)))}"
        for one, other in zip(x, y, strict=True)
        if not x_axis.log or one > 0
    ]


def units(place: float) -> str:
    """A place from 0 to 1 in the units of the SVG."""
    return f"{SIDE * place:.1f}".removesuffix(".0")
