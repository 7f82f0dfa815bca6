"""What a cell keeps of its run's rows: curves with one point for each of equal parts of the run."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

EPISODES, RETURN = "charts/episodes", "charts/episodic_return"
NOISE_SCALE, TRACE, SIGNAL = "batch/noise_scale", "noise/trace", "noise/signal"
"""The noise scale is not kept itself: it is the quotient of the other two, whose means are taken first."""
ENTROPY = "losses/entropy"
METRIC_CURVES = (
    "batch/iteration",
    "batch/minibatch",
    TRACE,
    SIGNAL,
    "batch/behavioral_divergence",
    "batch/policy_kl",
    "charts/learning_rate",
    "losses/approx_kl",
    "losses/clipfrac",
    ENTROPY,
    "losses/explained_variance",
    "losses/grad_clip_fraction",
    "losses/td_loss",
    "losses/q_values",
    "advantage/std",
    "importance/effective_samples",
    "proximal/kl",
)
"""Metrics that a cell keeps over the run."""
FINAL_SHARE = 0.1
"""The last part of a run, whose mean return is the final one."""
RETURN_DIGITS, METRIC_DIGITS = 6, 4
"""Significant digits that a cell keeps of returns and of metrics."""

Row = Mapping[str, Any]
Values = tuple[float | None, ...]
Points = tuple[tuple[int, float | None], ...]
"""Env steps at the end of each part, and the mean return of the episodes that ended within it."""


def parts(rows: Iterable[Row], total_env_steps: int, bins: int) -> list[list[Row]]:
    """The rows of each part of a run. The last part includes the excess of less than an iteration."""
    found: list[list[Row]] = [[] for _ in range(bins)]
    for row in rows:
        place = -(-row["env_steps"] * bins // total_env_steps) - 1  # the end of a part belongs to it
        found[min(max(place, 0), bins - 1)].append(row)
    return found


def return_curve(rows: Sequence[Row], total_env_steps: int, bins: int) -> Points:
    """The returns of a run, one point for each part."""
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
        known = [[row[name] for row in part if row.get(name) is not None] for part in split]
        if any(known):
            found[name] = tuple(rounded(fmean(values), METRIC_DIGITS) if values else None for values in known)
    return found


def filled(curve: Iterable[float | None]) -> list[float]:
    """A curve with gaps filled by the value after or, at the end, before them. Empty if it has no value.

    The episodes that a row is about ran in the env steps before it. With the value before the gap, curves of
    larger iterations would be late, and their areas too small.
    """
    values = list(curve)
    following = next((value for value in reversed(values) if value is not None), None)
    whole: list[float] = []
    for value in reversed(values):
        following = following if value is None else value
        if following is not None:
            whole.append(following)
    return whole[::-1]


def area(curve: Iterable[float | None]) -> float | None:
    """The mean over the run: the area under the curve, divided by its length."""
    whole = filled(curve)
    return rounded(fmean(whole)) if whole else None


def final_return(curve: Iterable[float | None]) -> float | None:
    """The mean over the last part of the run."""
    whole = filled(curve)
    return rounded(fmean(whole[-max(1, round(FINAL_SHARE * len(whole))) :])) if whole else None


def rounded(value: float | None, digits: int = RETURN_DIGITS) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")
