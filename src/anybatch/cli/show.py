"""Display of advice, suites and outcomes."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anybatch.lab.pages import run_charts
from anybatch.lab.suites import SuiteResult
from anybatch.runs.advice import Advice
from anybatch.runs.plan_text import wrapped
from anybatch.runs.record import RunRecord
from anybatch.text import counted, number_text
from anybatch.training import Outcome


def advice(folder: Path, findings: Sequence[Advice]) -> None:
    """Print what stands out in a run, one paragraph each."""
    console = Console(highlight=False)
    if not findings:
        console.print(f"\nadvice: nothing stands out in the metrics of {folder.name}", markup=False)
        return
    console.print(f"\nadvice, from the metrics of {folder.name}:", markup=False, soft_wrap=True)
    for finding in findings:
        said = Text(finding.measured, style="bold") + Text(f": {finding.meaning}.", style="not bold")
        table = Table.grid()
        table.add_row("· ", said)
        table.add_row("", Text(finding.flag, style="dim"))
        console.print(table)


def suite(result: SuiteResult) -> None:
    """Print the table *game · runs · score · human-normalized · capped*, then the summary over the games."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("game", "runs", "score", "human-normalized", "capped"):
        table.add_column(header, justify="left" if header == "game" else "right")
    for game in result.games:
        score, percent, capped = (
            number_text(game.score, 6),
            f"{number_text(game.percent, 4)}%",
            f"{100 * game.capped_share:.3g}%",
        )
        table.add_row(game.game, str(len(game.runs)), score, percent, capped)
    console = Console(highlight=False)
    console.print()
    console.print(table)
    for sentence in result.sentences():
        console.print(sentence, markup=False, soft_wrap=True)


def outcome(result: Outcome, smaller: str = "") -> None:
    """Print the outcome, and what to try next; `smaller` holds the flags of the same run at a smaller
    batch."""
    console = Console(highlight=False)

    def say(line: str) -> None:
        print(wrapped(line, console))

    print()
    if result.training_return is not None:
        episodes = counted(result.training_episodes, "episode")
        say(f"training    {number_text(result.training_return, 6)} mean return over the last {episodes}")
    if result.evaluation is not None:
        say(f"evaluation  {result.evaluation.sentence()}")
    if result.best is not None and result.best.env_steps is not None:
        say(
            f"best        {number_text(result.best.score, 6)} mean return of the evaluation at "
            f"{result.best.env_steps:,} env steps (--checkpoint best)"
        )
    curve = run_charts.sparkline(RunRecord(result.folder).rows)
    if can_print(curve):
        print(f"curve       {curve}")
    print(f"run folder  {result.folder}")
    if result.stopped_by is not None:
        print(f"\n{result.how_to_continue()}")
        return
    print("\nnext:")
    was_greedy = result.evaluation is not None and result.evaluation.greedy
    other = "--evaluation.num-envs 100" if was_greedy else "--evaluation.greedy"
    print(f"  {result.command('evaluate')} {other}")
    if smaller:
        for command, what in (
            (f"  anybatch plan {smaller} ", "what changes at another batch size"),
            (f"  anybatch train {smaller}", "train at that batch, to compare the curves"),
        ):
            fits = not console.is_terminal or len(command) + 4 + len(what) <= console.width
            print(f"{command}    {what}" if fits else command.rstrip())
    print(f"  {shlex.join(['anybatch', 'report', str(result.folder)])}")
    print(f"  {shlex.join(['tensorboard', '--logdir', str(result.folder.parent)])}")


def can_print(text: str) -> bool:
    """Whether there is something to print and the terminal supports its characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return bool(text)
