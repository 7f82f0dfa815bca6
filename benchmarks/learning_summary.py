"""The tables of `learning.py`, from the rows of its runs. A row has a task, a trainer, a seed and a curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from anybatch.lab import statistics
from anybatch.lab.studies import curves

LEVEL = 0.95
"""Of all intervals: t intervals over seeds, Welch's for differences."""
FEWEST_SEEDS = 2
OURS = "ours"
PEER_OF = {"ours-pqn": ("rejax-pqn",), OURS: ("sb3", "rejax-ppo", "rejax-ppo-cnn")}
"""Which peers each of ours is compared with."""
METRICS = {"final": curves.final_return, "area": curves.area}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """The difference of one of ours and one peer in a task, by one metric."""

    task: str
    ours: str
    peer: str
    metric: str
    difference: statistics.Difference

    @property
    def verdict(self) -> str:
        low, high = self.difference.interval(LEVEL)
        return "better" if low > 0 else "worse" if high < 0 else "open"


def scores(rows: Sequence[Row], task: str, trainer: str, metric: str) -> list[float]:
    """A number for each seed, in the order of the seeds. A run without a single episode has none."""
    of_seeds = sorted(
        (row["seed"], METRICS[metric](row["curve"]))
        for row in rows
        if (row["task"], row["trainer"]) == (task, trainer)
    )
    return [score for _, score in of_seeds if score is not None]


def comparisons(rows: Sequence[Row], tasks: Sequence[str]) -> list[Compared]:
    """Every comparison of ours with a peer for which both have enough seeds."""
    found: list[Compared] = []
    for task in tasks:
        for ours, peers in PEER_OF.items():
            for peer in peers:
                for metric in METRICS:
                    these, those = (scores(rows, task, trainer, metric) for trainer in (ours, peer))
                    if min(len(these), len(those)) >= FEWEST_SEEDS:
                        difference = statistics.difference({task: these}, {task: those})
                        found.append(Compared(task, ours, peer, metric, difference))
    return found


def returns_table(rows: Sequence[Row], tasks: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Mean returns with their intervals, by task and trainer."""
    lines = ["| task | env steps | trainer | seeds | final return | area |", "|---|---|---|---|---|---|"]
    for task, settings in tasks.items():
        length = f"{settings['env_steps']:,}"
        for trainer in (name for name in titles if name in settings):
            by_metric = [scores(rows, task, trainer, metric) for metric in METRICS]
            if not by_metric[0]:
                continue
            shown = " | ".join(summary(values) for values in by_metric)
            lines.append(f"| {task} | {length} | {titles[trainer]} | {len(by_metric[0])} | {shown} |")
    return "\n".join(lines)


def missing(
    rows: Sequence[Row], tasks: Mapping[str, Any], titles: Mapping[str, str], seeds: Sequence[int]
) -> str:
    """What has not been run on all seeds, by trainer; empty if everything has."""
    have = {(row["task"], row["trainer"], row["seed"]) for row in rows}
    parts: list[str] = []
    for trainer, title in titles.items():
        lacking = {
            task: sum((task, trainer, seed) in have for seed in seeds)
            for task, settings in tasks.items()
            if trainer in settings
        }
        named = [f"{task} {count}" for task, count in lacking.items() if count < len(seeds)]
        parts += [f"- {title}: {', '.join(named)}"] if named else []
    return "\n".join([f"Not finished, with how many of {len(seeds)} seeds:", "", *parts]) if parts else ""


def summary(values: Sequence[float]) -> str:
    """The mean and its interval."""
    interval = statistics.mean_interval({"": values}, LEVEL)
    if interval is None:
        return number(fmean(values))
    return f"{number(fmean(values))} ({number(interval[0])} to {number(interval[1])})"


def comparison_table(found: Sequence[Compared], titles: Mapping[str, str]) -> str:
    lines = ["| task | trainer − peer | final return: difference | area: difference |", "|---|---|---|---|"]
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in found:
        low, high = one.difference.interval(LEVEL)
        mean = number(one.difference.mean)
        words = f"{mean} ({number(low)} to {number(high)}), {one.verdict}"
        cells.setdefault((one.task, one.ours, one.peer), {})[one.metric] = words
    for (task, ours, peer), by_metric in cells.items():
        shown = " | ".join(by_metric[metric] for metric in METRICS)
        lines.append(f"| {task} | {titles[ours]} − {titles[peer]} | {shown} |")
    return "\n".join(lines)


def sentences(found: Sequence[Compared], titles: Mapping[str, str]) -> str:
    """Wins, losses and open comparisons with their tasks, by each metric."""
    parts: list[str] = []
    words = {"better": "Better than {}", "worse": "**Worse** than {}", "open": "No difference from {} shown"}
    for metric, name in {"final": "final return", "area": "area"}.items():
        for verdict, phrase in words.items():
            by_pair: dict[tuple[str, str], list[str]] = {}
            for one in found:
                if (one.metric, one.verdict) == (metric, verdict):
                    by_pair.setdefault((one.ours, one.peer), []).append(one.task)
            for (ours, peer), tasks in by_pair.items():
                beginning = phrase.format(titles[peer])
                parts.append(f"- {beginning} in {name} ({titles[ours]}): {', '.join(tasks)}.")
    return "\n".join(parts)


def seconds_to(row: Row, wanted: float) -> float | None:
    """When the mean return over a tenth of a run first was at least `wanted`; None if it never was."""
    filled = curves.filled(row["curve"])
    width = max(1, round(curves.FINAL_SHARE * len(filled)))
    for end in range(width, len(filled) + 1):
        if fmean(filled[end - width : end]) >= wanted:
            return row["seconds"][end - 1]
    return None


def times_table(rows: Sequence[Row], timed: Sequence[Row], titles: Mapping[str, str]) -> str:
    """Wall-clock seconds of timed runs: ours until a peer's mean final return, the peer's to its end."""
    lines = [
        "| task | peer | its final return | its whole run, s | ours until then, s |",
        "|---|---|---|---|---|",
    ]
    for task in dict.fromkeys(row["task"] for row in timed):
        for ours, peers in PEER_OF.items():
            for peer in peers:
                finals = scores(rows, task, peer, "final")
                these = [row for row in timed if (row["task"], row["trainer"]) == (task, ours)]
                those = [row for row in timed if (row["task"], row["trainer"]) == (task, peer)]
                if not (finals and these and those):
                    continue
                wanted = fmean(finals)
                reached = [seconds_to(row, wanted) for row in these]
                shown = ", ".join("not reached" if one is None else f"{one:.1f}" for one in reached)
                whole = ", ".join(f"{row['seconds'][-1]:.1f}" for row in those)
                lines.append(f"| {task} | {titles[peer]} | {number(wanted)} | {whole} | {shown} |")
    return "\n".join(lines)


def number(value: float) -> str:
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−")
