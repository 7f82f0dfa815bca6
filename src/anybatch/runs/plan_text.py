"""A plan as text: batches as products, the table *hyperparameter · tuned at · this run · rule*, and notes."""

import io
import re
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anybatch.config import AnyConfig
from anybatch.dial import Plan, PlanRow, plan_table

WIDTH_IN_A_FILE = 200
NOTE = "note: "
INDENT = "  "
"""Indentation of the line that says what a hyperparameter amounts to."""


def show(config: AnyConfig, plan: Plan, console: Console | None = None, *, notes: Sequence[str] = ()) -> None:
    """Print a plan, with further notes below its own; on a terminal, in color and in its width."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_FILE
    shown = plan_table(config, plan)
    for line in shown.lines:
        console.print(wrapped(line, console), markup=False, soft_wrap=True)
    console.print()
    show_table(shown.rows, console)
    show_notes([*shown.warnings, *notes], console)
    console.print()


def show_table(rows: Sequence[PlanRow], console: Console) -> None:
    """The table. What a row amounts to, such as the center of mass of a decay, is on a line below it."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for header in ("hyperparameter", "tuned at", "this run"):
        table.add_column(header, no_wrap=True)
    table.add_column("rule", style="dim")
    for row in rows:
        meaning = row.meaning
        style = "bold" if row.this_run != row.tuned_at else ""
        rule = row.rule if meaning is None else ""
        table.add_row(row.number, row.tuned_at, Text(row.this_run, style=style), rule)
        if meaning is not None:
            table.add_row(
                INDENT + meaning.name, meaning.tuned_at, Text(meaning.this_run, style=style), row.rule
            )
    console.print(table)


def show_notes(sentences: Sequence[str], console: Console) -> None:
    for sentence in sentences:
        note = wrapped(f"{NOTE}{sentence}", console).removeprefix(NOTE)
        console.print(Text(NOTE, style="yellow") + Text(note), soft_wrap=True)


def render(config: AnyConfig, plan: Plan) -> str:
    """The same without color, as a string."""
    text = io.StringIO()
    show(config, plan, Console(file=text, highlight=False))
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())


def wrapped(line: str, console: Console) -> str:
    """A line with a label before its text, wrapped between words, since a terminal would break anywhere."""
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
