"""Studies as text for a terminal: their list, a plan, and results."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anybatch.lab.pages.study_parts import StudyView, interquartile_mean_of, left_out
from anybatch.lab.pages.verdicts import STATES
from anybatch.lab.studies.cells import RANDOM_ARM
from anybatch.lab.studies.files import Study
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.verdicts.power import Outlook
from anybatch.text import counted


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
    envs_of_all = list(dict.fromkeys(cell.env for cell in plan.cells))
    console.print(f"Environments: {', '.join(envs_of_all)}", markup=False)
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("envs", "arm", "ratio", "cells", "env steps each"):
        table.add_column(header, justify="right" if header in ("cells", "env steps each") else "left")
    view = StudyView(plan, [])
    random = [cell for cell in plan.cells if cell.arm == RANDOM_ARM]
    rows = [("random play", "1", random)] if random else []
    rows += [(view.label(part, with_ratio=False), part.ratio, list(part.cells)) for part in view.parts]
    for title, ratio, cells in rows:
        of_part = list(dict.fromkeys(cell.env for cell in cells))
        envs = f"all {len(envs_of_all)}" if len(of_part) == len(envs_of_all) > 1 else ", ".join(of_part)
        lengths = " or ".join(f"{length:,}" for length in sorted({cell.total_env_steps for cell in cells}))
        table.add_row(envs, title, ratio, str(len(cells)), lengths)
    console.print(table)
    total = sum(cell.total_env_steps for cell in plan.cells)
    counts = (counted(len(plan.cells), "cell"), counted(total, "env step"), counted(plan.threads, "thread"))
    console.print(f"{', '.join(counts)} each", markup=False)
    for sentence in left_out(plan):
        console.print(sentence, markup=False, soft_wrap=True)


def show_results(out: Path, view: StudyView) -> None:
    """A line for each arm and ratio, failed cells with their reason, and the verdicts."""
    console, metrics, found = Console(highlight=False), view.plan.metrics, view.verdicts
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("arm", "ratio", "seeds", *(f"{metric}, IQM" for metric in metrics)):
        table.add_column(header, justify="left" if header == "arm" else "right")
    for part in view.parts:
        scores = [view.normalized(part, metric) for metric in metrics]
        seeds = str(min(map(len, scores[0].values()), default=0))
        means = (f"{interquartile_mean_of(one).value:.3f}" if one else "–" for one in scores)
        table.add_row(view.label(part, with_ratio=False), part.ratio, seeds, *means)
    console.print()
    console.print(table)
    console.print(f"normalized: {view.scores.unit_words()}", markup=False, soft_wrap=True)
    failed = [result for result in view.results.values() if result.failed is not None]
    for result in failed:
        console.print(f"failed: {result.cell.name}: {result.failed}", markup=False, soft_wrap=True)
    console.print()
    for verdict in (one for one in found if one.state != "not run"):
        console.print(Text(f"{verdict.name}: {verdict.state}", style=f"bold {STATES[verdict.state][2]}"))
        console.print(Padding(Text(verdict.claim), (0, 0, 0, 2)))
        said = [comparison.sentence for comparison in verdict.comparisons]
        said += [verdict.reason] if verdict.is_open_by_correction else []
        for sentence in [verdict.reason] if verdict.state == "void" else said:
            console.print(Padding(Text(f"· {sentence}", style="dim"), (0, 0, 0, 2)))
    for note in view.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    not_run = [verdict.name for verdict in found if verdict.state == "not run"]
    if not_run:
        console.print(f"not run yet: {', '.join(not_run)}", markup=False, soft_wrap=True)
    console.print(f"\nfolder  {out}", markup=False, soft_wrap=True)


def show_ranges(view: StudyView) -> None:
    """Print the range of returns that a sweep found in each environment, as a study file has it.

    It is that of random play, and the mean final return at the best factors by area.
    """
    for env in view.envs:
        random = view.scores.random_play(env)
        runs = [
            [one for cell in part.cells if cell.env == env and (one := view.results.get(cell.name))]
            for part in view.parts
        ]
        finished = {
            view.label(part): [one for one in of_part if one.failed is None]
            for part, of_part in zip(view.parts, runs, strict=True)
        }
        by_part = {label: found for label, found in finished.items() if found}
        if random is None or random.final_return is None or not by_part:
            continue
        label, best = max(by_part.items(), key=lambda item: fmean(one.area or 0.0 for one in item[1]))
        high = fmean(one.final_return or 0.0 for one in best)
        print(
            f'range  "{env}" = [{random.final_return:.4g}, {high:.4g}]: random play, and the mean final '
            f"return of {counted(len(best), 'run')} of {best[0].cell.total_env_steps:,} env steps, {label}"
        )


def show_outlooks(outlooks: Sequence[Outlook]) -> None:
    """Print what the study could decide, given the spread of the tuning seeds."""
    for outlook in outlooks:
        print(f"outlook  {outlook.sentence()}")
