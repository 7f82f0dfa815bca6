"""Studies as text for a terminal: their list, a plan, and results."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anybatch.batch.table import counted
from anybatch.reports import statistics
from anybatch.reports.study_parts import left_out
from anybatch.reports.verdicts import Scores, Verdict
from anybatch.reports.verdicts.power import Outlook
from anybatch.reports.verdicts.rule import Selector
from anybatch.studies.cells import RANDOM_ARM, Cell, Result
from anybatch.studies.files import Study
from anybatch.studies.plan import StudyPlan

COLORS = {"holds": "green", "fails": "red", "undecided": "yellow", "measured": "cyan"}
LEVEL = 0.95


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
    for (arm, ratio, point), cells in by_arm(plan).items():
        envs = ", ".join(dict.fromkeys(cell.env for cell in cells))
        title = plan.arms.get(arm, "random play")
        lengths = " or ".join(f"{length:,}" for length in sorted({cell.total_env_steps for cell in cells}))
        table.add_row(envs, f"{title}{point}", ratio, str(len(cells)), lengths)
    console.print(table)
    total = sum(cell.total_env_steps for cell in plan.cells)
    counts = (counted(len(plan.cells), "cell"), counted(total, "env step"), counted(plan.threads, "thread"))
    console.print(f"{', '.join(counts)} each", markup=False)
    for sentence in left_out(plan):
        console.print(sentence, markup=False, soft_wrap=True)


def by_arm(plan: StudyPlan) -> dict[tuple[str, str, str], list[Cell]]:
    """The cells of a plan by arm, ratio and swept settings, in words."""
    found: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in plan.cells:
        point = ", ".join(plan.point_words(cell.point, cell.factors))
        found.setdefault((cell.arm, cell.ratio, f", {point}" if point else ""), []).append(cell)
    return found


def show_results(out: Path, plan: StudyPlan, results: Sequence[Result], found: Sequence[Verdict]) -> None:
    """A line for each arm and ratio, failed cells with their reason, and the verdicts."""
    console, scores = Console(highlight=False), Scores(plan, results)
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("arm", "ratio", "seeds", f"normalized {plan.metric}, IQM", f"{LEVEL:.0%} interval"):
        table.add_column(header, justify="left" if header == "arm" else "right")
    for (arm, ratio, point), cells in by_arm(plan).items():
        if arm != RANDOM_ARM:
            table.add_row(f"{plan.arms[arm]}{point}", ratio, *aggregate(scores, cells[0]))
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


def aggregate(scores: Scores, like: Cell) -> tuple[str, str, str]:
    """Seeds, interquartile mean and its interval of the cells of one arm, ratio and point."""
    chosen = scores.select(
        Selector(arm=like.arm, ratio=like.ratio, point=like.point, factors=like.factors)
    ).scores
    known = {env: values for env, values in chosen.items() if values}
    if not known:
        return "0", "–", "–"
    interval = statistics.stratified_interval(statistics.interquartile_mean, known, level=LEVEL)
    bounds = "–" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
    seeds = min(map(len, known.values()))
    return str(seeds), f"{statistics.interquartile_mean(known):.3f}", bounds
