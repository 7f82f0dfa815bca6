"""Medians and ratios of what `peers.py` measured, as tables and as JSON.

Ratios are taken within a round, in which the trainers ran one after the other, and above 1 if ours is the
faster: rates are ours ÷ theirs, times to a return theirs ÷ ours.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from peer_process import Rate, Reached
from rich.console import Console
from rich.table import Table

OURS = "ours"
Round = dict[str, Rate]
ReturnRound = dict[str, Reached]
WIDTH = 110
"""Of the tables, also into a file."""


def rate_summary(rounds: Sequence[Round]) -> dict[str, dict[str, float]]:
    """Of each trainer."""

    def middle(name: str, value: Callable[[Rate], float]) -> float:
        return median(value(measured[name]) for measured in rounds)

    rows: dict[str, dict[str, float]] = {}
    for name in rounds[0]:
        rows[name] = {
            "env_steps_per_second": middle(name, lambda rate: rate.env_steps_per_second),
            "start_seconds": middle(name, lambda rate: rate.start_seconds),
            "first_iteration_extra_seconds": middle(name, lambda rate: rate.first_iteration_extra_seconds),
            "others_share": middle(name, lambda rate: rate.others_share),
        }
        if name != OURS and OURS in rounds[0]:
            ratios = [r[OURS].env_steps_per_second / r[name].env_steps_per_second for r in rounds]
            rows[name]["ours_of_it"] = median(ratios)
    return rows


def return_summary(rounds: Sequence[ReturnRound]) -> dict[str, dict[str, Any]]:
    """Of each trainer. A seed that never got there counts as later than all others."""
    rows: dict[str, dict[str, Any]] = {}
    for name in rounds[0]:
        results = [measured[name] for measured in rounds]
        rows[name] = {
            "seconds": finite(median(seconds_of(result) for result in results)),
            "env_steps": median(result.env_steps for result in results),
            "seeds": len(results),
            "others_share": median(result.others_share for result in results),
            "seeds_reached": sum(result.seconds is not None for result in results),
        }
        if name != OURS and OURS in rounds[0]:
            ratios = [seconds_of(r[name]) / seconds_of(r[OURS]) for r in rounds if r[OURS].seconds]
            rows[name]["it_of_ours"] = finite(median(ratios)) if ratios else None
    return rows


def seconds_of(result: Reached) -> float:
    return math.inf if result.seconds is None else result.seconds


def finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None


def print_rates(summaries: dict[str, dict[str, dict[str, float]]]) -> None:
    table = Table(title="Rates; start-up and first iteration in seconds", title_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("trainer")
    for heading in ("env steps/s", "start-up", "first iteration, extra", "ours ÷ it"):
        table.add_column(heading, justify="right")
    for case, rows in summaries.items():
        for number, (name, row) in enumerate(rows.items()):
            table.add_row(
                "" if number else case,
                name,
                f"{row['env_steps_per_second']:,.0f}",
                f"{row['start_seconds']:.1f}",
                f"{row['first_iteration_extra_seconds']:.1f}",
                f"{row['ours_of_it']:.2f}" if "ours_of_it" in row else "",
            )
        table.add_section()
    Console(width=WIDTH).print(table)


def print_returns(case: str, rows: dict[str, dict[str, Any]]) -> None:
    table = Table(title=f"{case}, from the start of the process", title_justify="left")
    table.add_column("trainer")
    for heading in ("seconds", "env steps", "seeds that got there", "it ÷ ours"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        ratio = row.get("it_of_ours")
        table.add_row(
            name,
            "not reached" if row["seconds"] is None else f"{row['seconds']:.1f}",
            f"{row['env_steps']:,.0f}",
            f"{row['seeds_reached']} of {row['seeds']}",
            "" if ratio is None else f"{ratio:.2f}",
        )
    Console(width=WIDTH).print(table)


def case_json(
    summary: dict[str, Any], rounds: Sequence[Round] | Sequence[ReturnRound], cannot: dict[str, str]
) -> dict[str, Any]:
    return {
        "medians": summary,
        "cannot": cannot,
        "rounds": [{name: asdict(result) for name, result in measured.items()} for measured in rounds],
    }
