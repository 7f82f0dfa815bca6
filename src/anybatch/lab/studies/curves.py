"""What a cell keeps of its run's rows: curves with one point for each of equal parts of the run."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from anybatch.lab.studies.cells import METRIC_CURVES
from anybatch.lab.studies.curve_means import rounded

EPISODES, RETURN, NOISE_SCALE = "charts/episodes", "charts/episodic_return", "batch/noise_scale"
METRIC_DIGITS = 4
"""Significant digits that a cell keeps of metrics."""

Row = Mapping[str, Any]
Values = tuple[float | None, ...]


def parts(rows: Iterable[Row], total_env_steps: int, bins: int) -> list[list[Row]]:
    """The rows of each part of a run. The last part includes the excess of less than an iteration."""
    found: list[list[Row]] = [[] for _ in range(bins)]
    for row in rows:
        place = -(-row["env_steps"] * bins // total_env_steps) - 1  # the end of a part belongs to it
        found[min(max(place, 0), bins - 1)].append(row)
    return found


def return_curve(
    rows: Sequence[Row], total_env_steps: int, bins: int
) -> tuple[tuple[int, float | None], ...]:
    """Env steps at the end of each part, and the mean return of the episodes that ended within it."""
    points: list[tuple[int, float | None]] = []
    for place, part in enumerate(parts(rows, total_env_steps, bins), 1):
        ended = [row for row in part if row.get(EPISODES)]
        count = sum(row[EPISODES] for row in ended)
        mean = sum(row[EPISODES] * row[RETURN] for row in ended) / count if count else None
        points.append((round(total_env_steps * place / bins), rounded(mean)))
    return tuple(points)


def metric_curves(rows: Sequence[Row], total_env_steps: int, bins: int) -> dict[str, Values]:
    """The measured metrics of METRIC_CURVES, one value for each part of the run."""
    split = parts(rows, total_env_steps, bins)
    found: dict[str, Values] = {}
    for name in METRIC_CURVES:
        # A few largest values dominate a mean of noise scales: the gradient in the denominator can be near 0.
        middle = median if name == NOISE_SCALE else fmean
        known = [[row[name] for row in part if row.get(name) is not None] for part in split]
        if any(known):
            found[name] = tuple(
                rounded(middle(values), METRIC_DIGITS) if values else None for values in known
            )
    return found
