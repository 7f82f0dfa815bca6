"""Scores over a setting that is multiplied by factors: the optimum, and where the rules expect it."""

from collections.abc import Sequence

from anybatch.lab.charts import palette
from anybatch.lab.charts.chart import Chart, Drawing, HeatMap, Panels, Series
from anybatch.lab.pages.study_charts import arm_names, file_part
from anybatch.lab.pages.study_parts import LEVEL, Part, StudyView, mean_of
from anybatch.lab.studies.plan import setting_name

LEARNING_RATE = "optimizer.learning_rate"


def sweep_drawings(view: StudyView) -> list[Drawing]:
    """For each swept setting: lines over its values, and over its values at the tuned batch; a map of
    both."""
    drawn: list[Drawing] = []
    for setting in dict.fromkeys(path for part in view.parts for path in part.factors):
        parts = [part for part in view.parts if setting in part.factors and view.normalized(part)]
        if len({part.factors[setting] for part in parts}) < 2:
            continue
        drawn.append(sweep_panels(view, setting, parts))
        for base, arm in dict.fromkeys((part.base, part.arm) for part in parts):
            of_arm = [part for part in parts if (part.base, part.arm) == (base, arm)]
            if len({part.ratio for part in of_arm}) > 1:
                drawn.append(sweep_map(view, setting, of_arm))
    return drawn


def sweep_panels(view: StudyView, setting: str, parts: Sequence[Part]) -> Panels:
    """One line for each arm and batch. If a rule holds, lines over the tuned values coincide."""
    name = setting_name(setting)
    lines: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.ratio_value):
        lines.setdefault(f"{view.title(part)}, ratio {part.ratio}", []).append(part)
    # At one batch, the two would be the same line on another scale.
    rescaled = len({part.ratio for part in parts}) > 1 and any(
        used(view, part, setting) != tuned(part, setting) for part in parts
    )
    labels = ([f"{name} of the run"] if rescaled else []) + [f"{name} at the tuned batch"]
    charts: list[Chart] = []
    for place, label in enumerate(labels):
        of_run = rescaled and place == 0
        series = tuple(
            sweep_line(view, setting, of_line, line, number, len(lines), of_run=of_run)
            for number, (line, of_line) in enumerate(lines.items())
        )
        charts.append(
            Chart(
                name=f"sweep-{place}",
                title=label,
                y_label="normalized score",
                x_label=label,
                x_scale="log",
                series=series,
                y_includes=(0.0,),
            )
        )
    return Panels(
        name=f"sweep-{file_part(name)}",
        title=f"Score over the {name}",
        charts=tuple(charts),
        note=f"Bars: {LEVEL:.0%} bootstrap intervals over seeds. On the right, the rules are divided out."
        if rescaled
        else f"Bars: {LEVEL:.0%} bootstrap intervals over seeds.",
    )


def sweep_line(
    view: StudyView, setting: str, parts: Sequence[Part], label: str, number: int, count: int, *, of_run: bool
) -> Series:
    points: list[tuple[float, float, float, float]] = []
    for part in sorted(parts, key=lambda part: part.factors[setting]):
        x = used(view, part, setting) if of_run else tuned(part, setting)
        found = mean_of(view.normalized(part))
        points.append((x, found.value, *(found.interval or (found.value, found.value))))
    x, y, low, high = zip(*points, strict=True)
    color = palette.ordered(number, count)
    return Series(label=label, color=color, dots=True, x=x, y=y, low=low, high=high)


def sweep_map(view: StudyView, setting: str, parts: Sequence[Part]) -> HeatMap:
    """Batches × values, with the measured optimum of each batch and the value expected by the rules."""
    name = setting_name(setting)
    values = sorted({rounded(used(view, part, setting)) for part in parts})
    ratios = sorted({(part.ratio_value, part.ratio) for part in parts}, reverse=True)
    scores: dict[tuple[str, float], float] = {}
    marks: list[tuple[int, int, str]] = []
    for part in parts:
        value = rounded(used(view, part, setting))
        scores[part.ratio, value] = mean_of(view.normalized(part)).value
        if part.is_untouched:
            row = [ratio for _, ratio in ratios].index(part.ratio)
            marks.append((row, values.index(value), "predicted"))
    table = [[scores.get((ratio, value)) for value in values] for _, ratio in ratios]
    for row, of_row in enumerate(table):
        known = {column: value for column, value in enumerate(of_row) if value is not None}
        marks.append((row, max(known, key=lambda column: known[column]), "best"))
    return HeatMap(
        name="-".join(["map", file_part(name), *arm_names(view, parts[0])]),
        title=f"Normalized score, {view.title(parts[0])}",
        x_label=f"{name} of the run",
        y_label="ratio",
        columns=tuple(f"{value:.3g}" for value in values),
        rows=tuple(ratio for _, ratio in ratios),
        values=tuple(tuple(row) for row in table),
        marks=tuple(marks),
        note="Solid frame: the best of a row. Dashed frame: where the rules expect it.",
    )


def used(view: StudyView, part: Part, setting: str) -> float:
    """The value of a setting in the run; the dial changes the learning rate."""
    for cell in part.cells:
        result = view.results.get(cell.name)
        if setting == LEARNING_RATE and result is not None and result.failed is None:
            return float(result.plan["hyperparameters"]["learning_rate"])
    return tuned(part, setting)


def tuned(part: Part, setting: str) -> float:
    """The value of a setting at the tuned batch, as in the config."""
    value = part.cells[0].config
    for name in setting.split("."):
        value = value[name]
    return float(value)  # type: ignore[arg-type]


def rounded(value: float) -> float:
    """Merge values that differ only by rounding into one column."""
    return float(f"{value:.4g}")
