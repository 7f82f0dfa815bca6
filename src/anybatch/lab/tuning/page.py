"""The page of a tuning: the verdict of its check, then what mattered, numbers, trials and commands."""

from collections.abc import Sequence

from anybatch.lab.charts.chart import Drawing, csv_lines
from anybatch.lab.pages.drawings import drawing
from anybatch.lab.pages.markup import Content, Markup, element
from anybatch.lab.pages.page import command, page, section, table
from anybatch.lab.pages.report_files import Report
from anybatch.lab.pages.study_curves import curve_panels
from anybatch.lab.pages.study_parts import StudyView
from anybatch.lab.pages.verdicts import intervals_of, shown_verdict
from anybatch.lab.tuning import charts
from anybatch.lab.tuning.charts import words
from anybatch.lab.tuning.outcome import Outcome
from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.trials import Trial
from anybatch.text import counted


def report(outcome: Outcome) -> Report:
    """The page with its figures, and the trials as a table."""
    plan, view = outcome.plan, StudyView(outcome.check, outcome.results)
    forests = intervals_of(outcome.verdict)
    curves = curve_panels(view)
    mattered = charts.drawings(plan, outcome.trials, outcome.importances)
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
        lead=outcome.verdict.reason,
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
    plan, facts = outcome.plan, outcome.plan.facts
    known = ("anybatch", "git_commit", "python", "torch")
    versions = [f"{name.replace('_', ' ')} {facts[name]}" for name in known if facts.get(name)]
    seeds = (
        f"tuning seeds {' '.join(map(str, plan.seeds))}, check seeds {' '.join(map(str, plan.check_seeds))}"
    )
    return [
        element("p", "Train the tuned preset:"),
        command(outcome.train_words()),
        element("p", "The tuning itself:"),
        command(outcome.tune_words()),
        element("p", f"{', '.join([seeds, *versions])}; plan {plan.hash}", class_="soft"),
    ]


def trials_csv(plan: TuningPlan, trials: Sequence[Trial]) -> str:
    names = [one.name for one in plan.ranges]
    rows = (
        [trial.number, trial.state, "" if trial.value is None else trial.value, *point(trial, names)]
        for trial in trials
    )
    return csv_lines(["trial", "state", "area", *names], rows)


def point(trial: Trial, names: Sequence[str]) -> list[object]:
    return [trial.point.get(name, "") for name in names]
