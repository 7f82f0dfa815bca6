"""Learning curves of studies for the dial: at each recorded batch, with the rules and without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from anybatch.lab.charts.chart import Chart, Series
from anybatch.lab.pages.study_charts import with_common_scale
from anybatch.lab.pages.study_curves import RETURN_LABEL, return_line
from anybatch.lab.pages.study_parts import Part, StudyView
from anybatch.lab.verdicts import gates
from anybatch.text import counted, number_text

WITHOUT_RULES = "none"
"""The arm of studies that changes no number with the batch."""
MOST_POINTS = 50
"""Points of a line: enough for the width of a figure, and half of what cells keep."""


@dataclass(frozen=True)
class Record:
    """The curves of one environment, with a chart for each recorded batch."""

    env: str
    base: str
    """What was trained at the tuned batch, in words."""
    seeds: int
    charts: dict[str, Chart]
    """By ratio, such as 1/4."""


def records_of(view: StudyView) -> list[Record]:
    """The environments of a study with finished cells of its reference arm; none of a study that is void."""
    reference = view.reference
    if reference is None or gates.why_void(view.scores):
        return []
    found: list[Record] = []
    for number, stratum in enumerate(view.strata, 1):
        cells = [cell for cell in reference.cells if view.scores.stratum(cell) == stratum]
        charts = charts_of(view, reference, stratum, f"record-{view.plan.hash[:8]}-{number}")
        if cells and charts:
            found.append(Record(cells[0].env, base_words(cells[0].config), len(cells), charts))
    return found


def base_words(config: Mapping[str, Any]) -> str:
    """Describe recorded settings: this version may not know all of them."""
    averaged = config.get("proximal", {}).get("policy") == "ewma"
    update, epochs = config["update"], config["update"]["epochs"]
    minibatch = config["num_envs"] * config["num_steps"] / update["minibatches_per_epoch"]
    return (
        f"{config['algorithm'].upper()}{'-EWMA' * averaged}, tuned at {config['num_envs']:,} environments × "
        f"{config['num_steps']:,} steps, minibatch {number_text(minibatch, 6)}, "
        f"{counted(epochs, 'epoch')}"
    )


def charts_of(view: StudyView, reference: Part, stratum: str, name: str) -> dict[str, Chart]:
    """A chart for each ratio at which the reference arm was run, all with the same axes."""
    arms = {
        (part.arm, part.ratio): part
        for part in view.parts
        if part.base == reference.base and not part.point and part.is_untouched
    }
    ratios = sorted((ratio for arm, ratio in arms if arm == reference.arm), key=Fraction)
    found: dict[str, Chart] = {}
    for ratio in ratios:
        lines = [
            return_line(view, reference, stratum, label="tuned batch", color="gray", dashed=ratio != "1")
        ]
        share = f"{ratio} of it" if Fraction(ratio) < 1 else f"{ratio} × it"
        for arm, words, color in ((reference.arm, "all rules", "blue"), (WITHOUT_RULES, "no rule", "orange")):
            part = arms.get((arm, ratio)) if ratio != reference.ratio else None
            if part is not None:
                lines.append(return_line(view, part, stratum, label=f"{share}, {words}", color=color))
        series = tuple(thinned(line) for line in lines if line is not None)
        if series and (len(series) > 1 or ratio == reference.ratio):
            found[ratio] = Chart(
                name=f"{name}-{ratio.replace('/', 'of')}",
                title=stratum,
                y_label=f"{RETURN_LABEL}, recorded at {shown_ratio(ratio)}",
                series=series,
                x_includes=(0,),
            )
    return dict(zip(found, with_common_scale(list(found.values())), strict=True)) if found else {}


def shown_ratio(ratio: str) -> str:
    if ratio == "1":
        return "the tuned batch"
    return f"{ratio} of the tuned batch" if Fraction(ratio) < 1 else f"{ratio} × the tuned batch"


def thinned(line: Series) -> Series:
    """The same line with fewer points; the last one stays."""
    every = -(-len(line.x) // MOST_POINTS)

    def kept(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(values[(len(values) - 1) % every :: every]) if values else ()

    return replace(line, x=kept(line.x), y=kept(line.y), low=kept(line.low), high=kept(line.high))
