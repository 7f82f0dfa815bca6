"""Charts as markup that follows the screen: lines stretch with the page, text keeps its size.

The lines are an SVG without a fixed aspect; ticks are text placed by percentages around it.
"""

import json

from anybatch.reports.charts.axes import Axis
from anybatch.reports.charts.chart import Chart, Drawing, HeatMap, Series
from anybatch.reports.pages.markup import Markup, element, joined

SIDE = 1000
"""Units of the SVG's sides, which are stretched to whatever the page has room for."""
EDGE = 0.06
"""Ticks nearer than this to the ends of the x axis are aligned with the end, not centered."""


def drawing(drawn: Drawing, *, alone: bool = True, wide: bool = False) -> Markup:
    """A figure with its caption; one that stands alone also has its legend and note."""
    if isinstance(drawn, HeatMap):
        body = heat_map(drawn)
    else:
        body = joined(legend(drawn.series) if alone else None, frame(drawn))
    return element(
        "figure",
        element(
            "figcaption",
            element("strong", drawn.title),
            element("span", drawn.y_label) if isinstance(drawn, Chart) else None,
        ),
        body,
        element("p", drawn.note, class_="note") if drawn.note and alone else None,
        class_="chart wide" if wide else "chart",
        id=f"figure-{drawn.name}",
    )


def legend(series: tuple[Series, ...]) -> Markup | None:
    """The colors of the lines; None where there is one line only."""
    known = {one.label: one for one in series if one.in_legend}
    if len(known) < 2:
        return None
    keys = (element("li", swatch(one.color, dashed=one.dashed), label) for label, one in known.items())
    return element("ul", *keys, class_="legend")


def swatch(color: str, *, dashed: bool = False) -> Markup:
    kind = "swatch dashed" if dashed else "swatch"
    return element("i", class_=kind, style=f"color:var(--{color})", aria_hidden="true")


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
    grid = "".join(f"M0 {_units(1 - y_axis.place(tick))}H{SIDE}" for tick in y_axis.ticks)
    shapes = [element("path", class_="grid", d=grid)]
    if chart.level is not None:
        height = _units(1 - y_axis.place(chart.level))
        shapes.append(element("path", class_="level", d=f"M0 {height}H{SIDE}"))
    shapes += [band(series, x_axis, y_axis) for series in chart.series if series.low and not series.dots]
    for series in chart.series:
        shapes += lines(series, x_axis, y_axis)
    described = f"{chart.title}: {chart.y_label} over {chart.x_label}"
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
    """The line and, where they are asked for, its points with their ranges."""
    points = _points(series.x, series.y, x_axis, y_axis)
    if not points:
        return []
    color = f"stroke:var(--{series.color})"
    shapes: list[Markup] = []
    if len(points) > 1:
        kind = "line dashed" if series.dashed else "line"
        shapes.append(element("path", class_=kind, style=color, d="M" + "L".join(points)))
    if series.dots or len(points) == 1:
        # A line without length and with round ends is a round dot, however the SVG is stretched.
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


def heat_map(drawn: HeatMap) -> Markup:
    """A table whose cells are the darker, the higher their values."""
    known = [value for row in drawn.values for value in row if value is not None]
    low, span = min(known, default=0.0), (max(known, default=1.0) - min(known, default=0.0)) or 1.0
    marks: dict[tuple[int, int], list[str]] = {}
    for row, column, kind in drawn.marks:
        marks.setdefault((row, column), []).append(kind)
    head = element(
        "tr", element("th", f"{drawn.y_label} ↓"), *(element("th", name) for name in drawn.columns)
    )
    body: list[Markup] = []
    for row, (name, values) in enumerate(zip(drawn.rows, drawn.values, strict=True)):
        cells: list[Markup] = []
        for column, value in enumerate(values):
            if value is None:
                cells.append(element("td", "–", class_="unknown"))
                continue
            share = (value - low) / span
            kinds = ["heat", *(["strong"] if share > 0.5 else []), *marks.get((row, column), ())]
            cells.append(
                element("td", f"{value:.3g}", class_=" ".join(kinds), style=f"--share:{100 * share:.0f}%")
            )
        body.append(element("tr", element("th", name), *cells))
    table = element("table", element("thead", head), element("tbody", *body), class_="heat-map")
    return joined(element("div", table, class_="scroll"), element("div", drawn.x_label, class_="x-label"))


def hover_data(chart: Chart, x_axis: Axis) -> Markup:
    """The numbers that the page shows beside the pointer."""
    series = [
        [
            one.label,
            one.color,
            [float(f"{x:.6g}") for x in one.x],
            [float(f"{y:.5g}") for y in one.y],
        ]
        for one in chart.series
    ]
    data = {"x": [x_axis.low, x_axis.high, x_axis.log], "label": chart.x_label, "series": series}
    # No text of a run's may end the element.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return element("script", Markup(text), type="application/json")


def _points(x: tuple[float, ...], y: tuple[float, ...], x_axis: Axis, y_axis: Axis) -> list[str]:
    """Places of the points that the axes can show, as `x y`."""
    return [
        f"{_units(x_axis.place(one))} {_units(1 - y_axis.place(max(other, y_axis.low)))}"
        for one, other in zip(x, y, strict=True)
        if not x_axis.log or one > 0
    ]


def _units(place: float) -> str:
    return f"{SIDE * place:.1f}".removesuffix(".0")
