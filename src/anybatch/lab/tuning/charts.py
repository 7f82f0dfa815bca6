"""Pictures of a tuning: what mattered, and the area under the curve over each searched number."""

from collections.abc import Mapping, Sequence

from anybatch.lab.charts.chart import Chart, Drawing, IntervalRow, Intervals, Panels, Series
from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.space import Range
from anybatch.lab.tuning.trials import Trial, best_of

AREA_LABEL = "area under the return curve, mean over seeds"
MATTERED_NOTE = (
    "Shares by PED-ANOVA: how much the best quarter of the trials differs from all of them in each number. A "
    "search that closes in on a value varies it less, and a few trials say little."
)
PANELS_NOTE = (
    "Each dot is a trial. Pruned trials show the mean return that they had reached. The "
    "learning rate and the center of mass are those at the preset's number of minibatches; the dial converts "
    "them."
)


def drawings(plan: TuningPlan, trials: Sequence[Trial], importances: Mapping[str, float]) -> list[Drawing]:
    """All pictures that the trials allow."""
    found: list[Drawing] = [mattered(importances)] if importances else []
    ended = [trial for trial in trials if trial.value is not None and trial.point]
    return [*found, panels(plan, ended)] if ended else found


def mattered(importances: Mapping[str, float]) -> Intervals:
    """A bar for each number, the most important first."""
    ordered = sorted(importances.items(), key=lambda pair: -pair[1])
    rows = (
        IntervalRow(label=words(name), value=share, low=0.0, high=share, color="blue")
        for name, share in ordered
    )
    return Intervals(
        name="importance",
        title="What mattered",
        x_label="importance, shares of 1",
        rows=tuple(rows),
        form="{:.0%}",
        bounds_written=False,
        note=MATTERED_NOTE,
    )


def panels(plan: TuningPlan, ended: Sequence[Trial]) -> Panels:
    """A panel for each searched number."""
    return Panels(
        name="area-by-number",
        title="Area by each number",
        charts=tuple(panel(one, ended) for one in plan.ranges),
        note=PANELS_NOTE,
    )


def panel(one: Range, ended: Sequence[Trial]) -> Chart:
    best = best_of(ended)
    kinds = {
        "finished": ("blue", [trial for trial in ended if trial.is_finished]),
        "pruned": ("gray", [trial for trial in ended if trial.state == "pruned"]),
        "the preset": ("orange", [trial for trial in ended if trial.number == 0]),
        "the best": ("green", [best] if best is not None else []),
    }
    series = (dots(one, label, color, chosen) for label, (color, chosen) in kinds.items() if chosen)
    return Chart(
        name=one.name,
        title=words(one.name),
        y_label=AREA_LABEL,
        x_label=axis_label(one),
        x_scale="log",
        x_includes=one.places,
        series=tuple(series),
    )


def dots(one: Range, label: str, color: str, trials: Sequence[Trial]) -> Series:
    places = sorted((one.dimension.place(trial.point[one.name]), trial.value or 0.0) for trial in trials)
    return Series(
        label=label,
        color=color,
        x=tuple(x for x, _ in places),
        y=tuple(y for _, y in places),
        dots=True,
        line=False,
    )


def axis_label(one: Range) -> str:
    """The coordinate of a panel, which is logarithmic."""
    return f"1 − {words(one.name)}" if one.dimension.coordinate == "complement" else words(one.name)


def words(name: str) -> str:
    """A number's name in words."""
    return {"gae-lambda": "GAE λ", "q-lambda": "Q λ", "minibatches": "minibatches per epoch"}.get(
        name, name.replace("-", " ")
    )
