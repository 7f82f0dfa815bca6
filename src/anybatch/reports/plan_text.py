"""A plan as text: the batches as products, the table *number · tuned at · this run · rule*, its limits."""

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anybatch.batch.plan import Plan
from anybatch.batch.table import plan_table
from anybatch.config import AnyConfig

WIDTH_IN_A_FILE = 160


def show(config: AnyConfig, plan: Plan, console: Console | None = None) -> None:
    """Print a plan; in color and as wide as it is on a terminal."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_FILE
    shown = plan_table(config, plan)
    console.print("\n".join(shown.lines), markup=False, soft_wrap=True)
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("number", "tuned at", "this run", "rule"):
        table.add_column(header, overflow="fold", no_wrap=header == "number")
    for row in shown.rows:
        changed = "bold" if row.this_run != row.tuned_at else ""
        table.add_row(
            row.number, row.tuned_at, Text(row.this_run, style=changed), Text(row.rule, style="dim")
        )
    console.print()
    console.print(table)
    for sentence in shown.warnings:
        console.print(Text("note: ", style="yellow") + Text(sentence), soft_wrap=True)
    console.print()


def render(config: AnyConfig, plan: Plan) -> str:
    """The same without color, as a string."""
    text = io.StringIO()
    show(config, plan, Console(file=text, highlight=False))
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())
