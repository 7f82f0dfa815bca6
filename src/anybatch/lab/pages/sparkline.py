"""A curve in one line of text."""

from collections.abc import Mapping, Sequence
from typing import Any

from anybatch.lab.pages.run_charts import RETURN, run_line
from anybatch.text import number_text

BARS = "▁▂▃▄▅▆▇█"
COLUMNS = 40


def of_returns(rows: Sequence[Mapping[str, Any]]) -> str:
    """The return of a run over its episodes: ▁▂▅▇█ 21.4 → 498. Empty for fewer than two points."""
    line = run_line(rows, RETURN, rows[-1]["env_steps"] / COLUMNS) if rows else None
    if line is None or len(line[1]) < 2:
        return ""
    values = line[1].tolist()
    return f"{bars(values)}  {number_text(values[0], 4)} → {number_text(values[-1], 4)}"


def bars(values: Sequence[float]) -> str:
    """A bar for each value, scaled from the lowest to the highest."""
    low, span = min(values), max(values) - min(values)
    if span == 0:
        return BARS[0] * len(values)
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)
