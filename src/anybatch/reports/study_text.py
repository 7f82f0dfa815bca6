"""Studies as text for a terminal: their list, a plan, and results."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anybatch.reports.study_parts import LEVEL, Part, StudyView, interquartile_mean_of, left_out
from anybatch.reports.verdicts import Verdict
from anybatch.reports.verdicts.power import Outlook
from anybatch.studies.cells import RANDOM_ARM, Result
from anybatch.studies.files import Study
from anybatch.studies.plan import StudyPlan
from anybatch.text import counted

COLORS = {"holds": "green", "fails": "red", "undecided": "yellow", "measured": "cyan"}


def show_list(known: Sequence[Study]) -> None:
    """Name, title and claim of each study, and how to run one."""
    console = Console(highlight=False)
    for study in known:
        console.print(Text(f"{study.name}: {study.title}", style="bold"))
        console.print(Padding(Text(study.claim), (0, 0, 1, 2)))
    console.print("anybatch study NAME --plan                   show what would be run", markup=False)
    console.print("anybatch study NAME --scale smoke            try it out, in seconds", markup=False)
    console.print("anybatch study NAME --env ID --budget 20m    run it on your own environment", markup=False)


def show_plan(plan: StudyPlan) -> None:
    """Print what is run: the parts of the grid with their cells and env steps, and what is left out."""
    console = Console(highlight=False)
    console.print(
        Text(f"{plan.study['title']} ({plan.scale}{', tuning' if plan.tune else ''})", style="bold")
    )
    console.print(Text(plan.study["claim"]))
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("envs", "arm", "ratio", "cells", "env steps each"):
        table.add_column(header, justify="right" if header in ("cells", "env steps each") else "left")
    view = StudyView(plan, [])
    random = [cell for cell in plan.cells if cell.arm == RANDOM_ARM]
    rows = [("random play", "1", random)] if random else []
    rows += [(title_of(view, part), part.ratio, list(part.cells)) for part in view.parts]
    for title, ratio, cells in rows:
        envs = ", ".join(dict.fromkeys(cell.env for cell in cells))
        lengths = " or ".join(f"{length:,}" for length in sorted({cell.total_env_steps for cell in cells}))
        table.add_row(envs, title, ratio, str(len(cells)), lengths)
    console.print(table)
    total = sum(cell.total_env_steps for cell in plan.cells)
    counts = (counted(len(plan.cells), "cell"), counted(total, "env step"), counted(plan.threads, "thread"))
    console.print(f"{', '.join(counts)} each", markup=False)
    for sentence in left_out(plan):
        console.print(sentence, markup=False, soft_wrap=True)


def title_of(view: StudyView, part: Part) -> str:
    """The arm, its base if there are several, and the values of swept settings."""
    return ", ".join([view.title(part), *view.words(part.point, part.factors)])


def show_results(out: Path, plan: StudyPlan, results: Sequence[Result], found: Sequence[Verdict]) -> None:
    """A line for each arm and ratio, failed cells with their reason, and the verdicts."""
    console, view = Console(highlight=False), StudyView(plan, results)
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("arm", "ratio", "seeds", f"normalized {plan.metric}, IQM", f"{LEVEL:.0%} interval"):
        table.add_column(header, justify="left" if header == "arm" else "right")
    for part in view.parts:
        table.add_row(title_of(view, part), part.ratio, *aggregate(view.normalized(part)))
    console.print()
    console.print(table)
    failed = [result for result in results if result.failed is not None]
    for result in failed:
        console.print(f"failed: {result.cell.name}: {result.failed}", markup=False, soft_wrap=True)
    console.print()
    for verdict in (one for one in found if one.state != "not run"):
        console.print(Text(f"{verdict.name}: {verdict.state}", style=f"bold {COLORS[verdict.state]}"))
        console.print(Padding(Text(verdict.claim), (0, 0, 0, 2)))
        for comparison in verdict.comparisons:
            console.print(Padding(Text(f"· {comparison.sentence}", style="dim"), (0, 0, 0, 2)))
    not_run = [verdict.name for verdict in found if verdict.state == "not run"]
    if not_run:
        console.print(f"not run yet: {', '.join(not_run)}", markup=False, soft_wrap=True)
    console.print(f"\nfolder  {out}", markup=False, soft_wrap=True)


def show_outlooks(outlooks: Sequence[Outlook]) -> None:
    """Print what the study could decide, given the spread of the tuning seeds."""
    for outlook in outlooks:
        print(f"outlook  {outlook.sentence()}")


def aggregate(scores: Mapping[str, Sequence[float]]) -> tuple[str, str, str]:
    """Seeds, interquartile mean and its interval, of normalized scores by environment."""
    if not scores:
        return "0", "–", "–"
    found = interquartile_mean_of(scores)
    bounds = "–" if found.interval is None else "{:.3f} to {:.3f}".format(*found.interval)
    return str(min(map(len, scores.values()))), f"{found.value:.3f}", bounds
