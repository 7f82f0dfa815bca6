"""The page of a tuning: the verdict of its check, what mattered, numbers, trials and commands."""

from collections.abc import Mapping, Sequence

from anybatch.lab.charts.chart import Chart, Drawing, IntervalRow, Intervals, Panels, Series, csv_lines
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, element
from anybatch.lab.pages.page import command, page, section, table, versions
from anybatch.lab.pages.report_files import Report
from anybatch.lab.pages.study_curves import curve_panels
from anybatch.lab.pages.study_parts import StudyView
from anybatch.lab.pages.verdicts import intervals_of, shown_verdict
from anybatch.lab.tuning.outcome import Outcome
from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.space import Range
from anybatch.lab.tuning.trials import Trial, best_of
from anybatch.text import counted

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


def report(outcome: Outcome) -> Report:
    """The page with its figures, and the trials as a table."""
    plan, view = outcome.plan, StudyView(outcome.check, outcome.results)
    forests = intervals_of(outcome.verdict)
    curves = curve_panels(view)
    mattered = drawings(plan, outcome.trials, outcome.importances)
    figures: list[Drawing] = [*forests, *mattered, *curves]
    body = (
        section(
            "Check on fresh seeds",
            shown_verdict(outcome.verdict, forests),
            *(element("div", drawing(one), class_="figure") for one in curves),
        ),
        section("What mattered", *(element("div", drawing(one), class_="figure") for one in mattered)),
        section("Numbers", *numbers(outcome)),
        section("Trials", trial_table(plan, outcome.trials, outcome.best)),
        section("Commands", *commands(outcome)),
    )
    content = page(
        title=outcome.check.study["title"],
        kicker=f"Tuning · {plan.env} · {len(outcome.trials)} trials of {plan.env_steps:,} env steps with "
        f"{counted(plan.num_envs, 'env')}",
        lead=outcome.check_sentence if outcome.is_worse else outcome.verdict.reason,
        body=body,
        foot="Made by anybatch. The folder of this page has its figures as PNG and SVG in figures/ and their "
        "numbers as CSV in data/, with all trials in data/trials.csv.",
    )
    return Report(content, figures, {"trials": trials_csv(plan, outcome.trials)})


def numbers(outcome: Outcome) -> list[Markup]:
    """The preset's numbers at the tuning batch, the tuned numbers, and the searched ranges."""
    rows: list[list[Content]] = []
    for one in outcome.plan.ranges:
        found = outcome.best.point[one.name]
        searched = f"{one.low:.4g} to {one.high:.4g}"
        rows.append([words(one.name), f"{one.center:.4g}", element("strong", f"{found:.4g}"), searched])
    left_out = (
        element("p", f"Not searched: {words(name)}, since {reason}.", class_="soft")
        for name, reason in outcome.plan.left_out.items()
    )
    header = ("number", f"preset at {counted(outcome.plan.num_envs, 'env')}", "found", "searched")
    return [table(header, rows, numbers=range(1, len(header)), kind="stacked"), *left_out]


def trial_table(plan: TuningPlan, trials: Sequence[Trial], best: Trial) -> Markup:
    rows: list[list[Content]] = []
    for trial in trials:
        is_best = trial.number == best.number
        what = "best" if is_best else "the preset" if trial.number == 0 else trial.state
        values = [f"{trial.point[one.name]:.4g}" if trial.point else "–" for one in plan.ranges]
        rows.append([str(trial.number), what, trial.shown_value, *values])
    header = ("trial", "state", "area", *(words(one.name) for one in plan.ranges))
    return table(header, rows, numbers=range(2, len(header)))


def commands(outcome: Outcome) -> list[Markup]:
    plan = outcome.plan
    seeds, fresh = (" ".join(map(str, numbers)) for numbers in (plan.seeds, plan.check_seeds))
    made_with = versions(plan.facts, f"tuning seeds {seeds}", f"check seeds {fresh}", f"plan {plan.hash}")
    although = ", although it did worse" if outcome.is_worse else ""
    return [
        element("p", f"Train the tuned preset{although}:"),
        command(outcome.train_words()),
        element("p", "The tuning itself:"),
        command(outcome.tune_words()),
        element("p", made_with, class_="soft"),
    ]


def trials_csv(plan: TuningPlan, trials: Sequence[Trial]) -> str:
    names = [one.name for one in plan.ranges]
    rows = (
        [trial.number, trial.state, trial.value, *(trial.point.get(name) for name in names)]
        for trial in trials
    )
    return csv_lines(["trial", "state", "area", *names], rows)


def drawings(plan: TuningPlan, trials: Sequence[Trial], importances: Mapping[str, float]) -> list[Drawing]:
    """All pictures that the trials allow."""
    found: list[Drawing] = [mattered(importances)] if importances else []
    ended = [trial for trial in trials if trial.value is not None and trial.point]
    if not ended:
        return found
    charts = tuple(panel(one, ended) for one in plan.ranges)
    title = "Area by each number"
    return [*found, Panels(name="area-by-number", title=title, charts=charts, note=PANELS_NOTE)]


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


def panel(one: Range, ended: Sequence[Trial]) -> Chart:
    best = best_of(ended)
    kinds = {
        "finished": ("blue", [trial for trial in ended if trial.is_finished]),
        "pruned": ("gray", [trial for trial in ended if trial.state == "pruned"]),
        "the preset": ("orange", [trial for trial in ended if trial.number == 0]),
        "the best": ("green", [best] if best is not None else []),
    }
    series = (dots(one, label, color, chosen) for label, (color, chosen) in kinds.items() if chosen)
    is_complement = one.dimension.coordinate == "complement"
    return Chart(
        name=one.name,
        title=words(one.name),
        y_label=AREA_LABEL,
        x_label=f"1 − {words(one.name)}" if is_complement else words(one.name),
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


def words(name: str) -> str:
    """A number's name in words."""
    return {"gae-lambda": "GAE λ", "q-lambda": "Q λ", "minibatches": "minibatches per epoch"}.get(
        name, name.replace("-", " ")
    )
