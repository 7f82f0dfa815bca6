"""Drawings as figures of a page, each with its caption, legend and note."""

from anybatch.lab.charts.chart import Chart, Drawing, HeatMap, Intervals, Panels, Series
from anybatch.lab.pages.line_charts import SIDE, frame, stretched, units, x_ticks
from anybatch.lab.pages.markup import Markup, element, joined


def drawing(drawn: Drawing, *, alone: bool = True, wide: bool = False) -> Markup:
    """A figure with its caption; a standalone figure also has its legend and note."""
    match drawn:
        case Chart():
            body = joined(legend(drawn.series) if alone else None, frame(drawn))
        case Panels():
            body = panels(drawn)
        case HeatMap():
            body = heat_map(drawn)
        case Intervals():
            body = intervals(drawn)
    caption = (
        element("strong", drawn.title),
        element("span", drawn.y_label) if isinstance(drawn, Chart) else None,
    )
    return element(
        "figure",
        element("figcaption", *caption),
        body,
        element("p", drawn.note, class_="note") if drawn.note and alone else None,
        class_="chart wide" if wide else "chart",
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


def heat_map(drawn: HeatMap) -> Markup:
    """A table whose cells are darker for higher values."""
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
