"""The page of one run, or of several runs overlaid."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from anybatch.lab.charts.chart import Chart, csv_lines
from anybatch.lab.pages.compared import Group, RunView, grouped
from anybatch.lab.pages.drawings import drawing, legend, swatch
from anybatch.lab.pages.markup import Content, Markup, element, joined
from anybatch.lab.pages.page import VERSIONS, command, page, plan_rows, section, table, versions
from anybatch.lab.pages.report_files import Report
from anybatch.lab.pages.run_charts import RETURN, RUN_CHARTS, charts_of, known_metrics, range_note
from anybatch.runs.advice import advise, known
from anybatch.text import counted, duration_text, number_text

RUN_COLUMNS = (
    "run",
    "seed",
    "env steps",
    "iteration batch",
    "training return",
    "evaluation ± standard error",
    "steps/s",
    "time",
)
LONGEST_TITLE = 70
RUN_FACTS = (*VERSIONS, "engine", "device", "threads")
MOST_IN_LEAD = 3


def report(runs: Sequence[RunView], words: Sequence[str]) -> Report:
    """`words` are the command line that makes this report."""
    groups = grouped(runs)
    measured = [group for group in groups if any(run.rows for run in group.runs)]
    charts = charts_of(measured)
    body = (
        section("Runs", runs_table(groups)),
        section("Curves", *curves(measured, charts)),
        section("Plan", *plans(groups)),
        section("Advice", *all_advice(groups)),
        section("Commands", *commands(runs, words)),
    )
    envs = list(dict.fromkeys(group.config.env for group in groups))
    content = page(
        title=title(groups, envs),
        kicker=f"{', '.join(envs)} · {', '.join(dict.fromkeys(run.config.title for run in runs))}",
        lead=lead(groups),
        body=body,
        about=subject(runs),
        foot="Made by anybatch. The folder of this page has its figures as PNG and SVG in "
        "figures/ and their numbers as CSV in data/, with all metrics of the runs in data/metrics.csv.",
    )
    return Report(content, charts, {"metrics": metrics_csv(runs)}, about=subject(runs))


def subject(runs: Sequence[RunView]) -> str:
    """What the page is about: a report on other runs must not replace it."""
    return " ".join(sorted(run.folder.name for run in runs))


def title(groups: Sequence[Group], envs: Sequence[str]) -> str:
    if len(groups) == 1:
        return groups[0].label
    if len(envs) > 1:
        return f"{len(groups)} settings on {len(envs)} environments"
    named = f"{envs[0]}: {'; '.join(group.name for group in groups)}"
    return named if len(named) <= LONGEST_TITLE else f"{envs[0]}: {len(groups)} settings"


def lead(groups: Sequence[Group]) -> str:
    """The outcome, in one sentence."""
    if len(groups) == 1:
        return f"{capitalized(outcome(groups[0]))}."
    parts = [f"{outcome(group)} with {group.name}" for group in groups[:MOST_IN_LEAD]]
    more = len(groups) - len(parts)
    sentence = "; ".join([*parts, *([f"and {more} more"] if more else [])])
    return f"{capitalized(sentence)}."


def capitalized(sentence: str) -> str:
    """A sentence with its first letter as a capital; the others are unchanged."""
    return sentence[0].upper() + sentence[1:]


def outcome(group: Group) -> str:
    """The training return of a group, or its progress so far."""
    steps = max(run.env_steps for run in group.runs)
    scores = [score for run in group.runs if (score := training_return(run)) is not None]
    if not scores:
        return f"no episode has ended in {steps:,} env steps" if steps else "no metrics yet"
    lowest, highest = number_text(min(scores), 4), number_text(max(scores), 4)
    spread = f" ({lowest} to {highest} in {len(scores)} runs)" if len(scores) > 1 else ""
    played = evaluation(group.runs[0]) if len(group.runs) == 1 else ""
    evaluated = f", {played} (standard error) when evaluated," if played else ""
    return f"a mean return of {number_text(fmean(scores), 4)}{spread}{evaluated} after {steps:,} env steps"


def training_return(run: RunView) -> float | None:
    """The training return of a finished run; before its end, that of its last iteration with an episode."""
    recorded = run.result.get("training_return")
    if recorded is not None:
        return float(recorded)
    measured = known(run.rows, RETURN)
    return measured[-1] if measured else None


def evaluation(run: RunView) -> str:
    played: dict[str, Any] | None = run.result.get("evaluation")
    if played is None:
        return ""
    mean, error = number_text(played["mean_return"], 4), number_text(played["standard_error"], 2)
    return f"{mean}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{error}"  # must not be broken across lines


def runs_table(groups: Sequence[Group]) -> Markup:
    rows: list[list[Content]] = []
    for group in groups:
        for run in group.runs:
            score, speeds = training_return(run), known(run.rows, "charts/SPS")
            batches = sorted(set(known(run.rows, "batch/iteration")))
            rows.append(
                [
                    joined(swatch(group.color, dashed=group.dashed), run.folder.name),
                    str(run.config.seed),
                    f"{run.env_steps:,}" + ("" if run.result.get("finished") else " so far"),
                    " to ".join(f"{size:,.0f}" for size in dict.fromkeys((*batches[:1], *batches[-1:]))),
                    "" if score is None else number_text(score, 4),
                    evaluation(run),
                    f"{median(speeds):,.0f}" if speeds else "",
                    duration_text(run.rows[-1]["wall_seconds"]) if run.rows else "",
                ]
            )
    return table(RUN_COLUMNS, rows, numbers=range(1, len(RUN_COLUMNS)))


def curves(groups: Sequence[Group], charts: Sequence[Chart]) -> list[Content]:
    """All charts with one legend and one note."""
    shown = {series.label: series for chart in charts for series in chart.series}
    measured = {name for group in groups for run in group.runs for name in known_metrics(run.rows)}
    absent = [kind.title.lower() for kind in RUN_CHARTS if kind.metric not in measured]
    figures = (drawing(chart, alone=False) for chart in charts)
    return [
        legend(tuple(shown.values()), shared=True),
        element("div", *figures, class_="charts"),
        element(
            "p",
            range_note(groups),
            f" Not measured: {', '.join(absent)}." if absent else "",
            class_="note",
        ),
    ]


def plans(groups: Sequence[Group]) -> list[Markup]:
    """The plan of each group, whose runs differ only in the seed, which plans do not depend on."""
    shown: list[Markup] = []
    for group in groups:
        plan = group.runs[0].plan
        heading = element("h3", swatch(group.color, dashed=group.dashed), group.label)
        shown.append(joined(heading if len(groups) > 1 else None, batch_sentence(plan), plan_rows(plan)))
    return shown


def batch_sentence(plan: dict[str, Any]) -> Markup | None:
    batch = plan.get("batch")
    if not isinstance(batch, dict):
        return None
    return element(
        "p",
        f"{batch['num_envs']:,} envs × {batch['num_steps']:,} steps = an iteration batch of "
        f"{batch['iteration_batch']:,} samples; minibatches of {number_text(batch['minibatch'], 6)}, "
        f"{counted(batch['epochs'], 'epoch')}.",
    )


def all_advice(groups: Sequence[Group]) -> list[Markup]:
    """Each finding once, with the measurement of each run it applies to."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in (run for group in groups for run in group.runs if run.rows):
        for one in advise(run.rows, run.config):
            found.setdefault((one.meaning, one.flag), {}).setdefault(one.measured, []).append(run.folder.name)
    several = sum(len(group.runs) for group in groups) > 1
    shown: list[Markup] = []
    for (meaning, flag), measured in found.items():
        numbers = [
            element("p", element("strong", capitalized(number)), f" ({', '.join(names)})" if several else "")
            for number, names in measured.items()
        ]
        said = element("p", f"{capitalized(meaning)}.")
        shown.append(element("div", *numbers, said, element("p", element("code", flag)), class_="advice"))
    return shown or [element("p", "Nothing stands out in the metrics.")]


def commands(runs: Sequence[RunView], words: Sequence[str]) -> list[Markup]:
    """How the runs and this page were made."""
    made: list[Markup] = []
    for run in runs:
        for process in (*run.facts.get("earlier", []), run.facts):
            if process.get("command"):
                made.append(command(of_folder(process["command"], run)))
    return [
        *dict.fromkeys(made),
        element("p", f"Trained with {versions(runs[0].facts, names=RUN_FACTS)}.", class_="soft"),
        element("p", "This page:"),
        command(words),
    ]


def of_folder(words: Sequence[str], run: RunView) -> list[str]:
    """A command of a run, with the folder that it resumed."""
    return [*words[:2], str(shown_path(run.folder)), *words[3:]] if words[1:2] == ["resume"] else list(words)


def shown_path(folder: Path) -> Path:
    """A folder as it is named from here."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def metrics_csv(runs: Sequence[RunView]) -> str:
    """All rows of all runs."""
    names = list(dict.fromkeys(name for run in runs for row in run.rows for name in row))
    rows = (
        [run.folder.name, run.config.seed, *(row.get(name) for name in names)]
        for run in runs
        for row in run.rows
    )
    return csv_lines(["run", "seed", *names], rows)
