"""Plans and outcomes for a person."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anybatch.batch.plan import Plan
from anybatch.batch.table import PlanRow, plan_table
from anybatch.config import AnyConfig
from anybatch.reports.advice import Advice
from anybatch.reports.suites import SuiteResult
from anybatch.session import Outcome

WIDTH_IN_A_FILE = 160
NOTE = "note: "
WIDE_TABLE = 140
"""Columns that the four columns of a plan's numbers need; on narrower terminals they would be torn."""


def plan(config: AnyConfig, numbers: Plan) -> None:
    """The batches as products, then *number · tuned at · this run · rule*, then what may not hold."""
    shown = plan_table(config, numbers)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_FILE
    for line in shown.lines:
        console.print(wrapped(line, console), markup=False, soft_wrap=True)
    console.print()
    console.print((wide_table if console.width >= WIDE_TABLE else narrow_table)(shown.rows))
    for sentence in shown.warnings:
        note = wrapped(f"{NOTE}{sentence}", console).removeprefix(NOTE)
        console.print(Text(NOTE, style="yellow") + Text(note), soft_wrap=True)
    console.print()


def wide_table(rows: Sequence[PlanRow]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("number", "tuned at", "this run", "rule"):
        table.add_column(header, overflow="fold", no_wrap=header == "number")
    for row in rows:
        table.add_row(row.number, row.tuned_at, this_run(row), Text(row.rule, style="dim"))
    return table


def narrow_table(rows: Sequence[PlanRow]) -> Table:
    """Two columns, with the rule below the numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("number", no_wrap=True)
    table.add_column("tuned at → this run", overflow="fold")
    for row in rows:
        table.add_row(
            row.number, Text.assemble(f"{row.tuned_at} → ", this_run(row), (f"\n{row.rule}", "dim"))
        )
    return table


def this_run(row: PlanRow) -> Text:
    return Text(row.this_run, style="bold" if row.this_run != row.tuned_at else "")


def wrapped(line: str, console: Console) -> str:
    """A line with a label before its text, broken between words where a terminal would break anywhere."""
    if not console.is_terminal:
        return line
    label = re.match(rf"{NOTE}|.*?  +", line)
    indent = " " * (len(label[0]) if label else 0)
    return textwrap.fill(
        line,
        console.width,
        subsequent_indent=indent,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


def advice(folder: Path, findings: Sequence[Advice]) -> None:
    """What stood out in a run, one paragraph each."""
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
    """*game · runs · score · human-normalized · capped*, then the figures over the games."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("game", "runs", "score", "human-normalized", "capped"):
        table.add_column(header, justify="left" if header == "game" else "right")
    for game in result.games:
        score, percent, capped = (
            f"{game.score:,.6g}",
            f"{game.percent:,.4g} %",
            f"{100 * game.capped_share:.3g} %",
        )
        table.add_row(game.game, str(len(game.runs)), score, percent, capped)
    console = Console(highlight=False)
    console.print()
    console.print(table)
    for sentence in result.sentences():
        console.print(sentence, markup=False, soft_wrap=True)


def outcome(result: Outcome, smaller: str = "") -> None:
    """What came out, and what to try next; `smaller` are the flags of the same run at a smaller batch."""
    console = Console(highlight=False)

    def say(line: str) -> None:
        print(wrapped(line, console))

    print()
    if result.training_return is not None:
        episodes = f"{result.training_episodes} episode{'s' * (result.training_episodes > 1)}"
        say(f"training    {result.training_return:.6g} mean return over the last {episodes}")
    if result.evaluation is not None:
        say(f"evaluation  {result.evaluation.sentence()}")
    if result.best is not None and result.best.env_steps is not None:
        say(
            f"best        {result.best.score:.6g} mean return of the evaluation at "
            f"{result.best.env_steps:,} env steps (--checkpoint best)"
        )
    print(f"run folder  {result.folder}")
    if result.stopped_by is not None:
        print(f"\n{result.how_to_continue()}")
        return
    print("\nnext:")
    print(f"  {result.command('evaluate')} --evaluation.greedy")
    if smaller:
        for command, what in (
            (f"  anybatch plan {smaller} ", "what changes at another batch size"),
            (f"  anybatch train {smaller}", "the same learning curve, from a smaller batch?"),
        ):
            fits = not console.is_terminal or len(command) + 4 + len(what) <= console.width
            print(f"{command}    {what}" if fits else command.rstrip())
    print(f"  tensorboard --logdir {result.folder.parent}")
