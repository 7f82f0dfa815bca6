"""The metrics of runs over env steps, as charts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anybatch.errors import UserError
from anybatch.lab.charts.chart import Chart, Scale, Series
from anybatch.lab.pages.compared import Group
from anybatch.runs.metrics import METRICS, meant

PARTS = 120
"""Number of equal parts of the longest run; a point of a line is the mean within one."""
RETURN, EPISODES = "charts/episodic_return", "charts/episodes"
NOISE_SCALE, NOISE_SCALE_ABOVE = "batch/noise_scale", "batch/noise_scale_above"
"""Where noise hides the signal, a run has measured only what the noise scale is more than."""
RETURN_METRICS = (RETURN, "charts/normalized_return", "charts/episodic_length")
"""Metrics that are means over episodes: parts of a run weight them by the number of episodes."""


@dataclass(frozen=True)
class MetricChart:
    """A kind of chart: what it shows of a run."""

    name: str
    title: str
    metric: str
    y_label: str
    y_scale: Scale = "linear"
    y_from: float | None = None
    beside: str | None = None
    """Another metric, drawn dashed in the same color."""
    beside_label: str = ""


RUN_CHARTS = (
    MetricChart("return", "Return", RETURN, "mean score of training episodes"),
    MetricChart("evaluation", "Evaluation", "evaluation/return", "mean score while training"),
    MetricChart("batch", "Iteration batch", "batch/iteration", "samples", y_scale="log"),
    MetricChart("ranks", "Ranks", "charts/ranks", "learner processes", y_from=0),
    MetricChart(
        "noise-scale",
        "Gradient noise scale",
        NOISE_SCALE,
        "samples; dashed: the minibatch; dots: more than this, lost in noise",
        y_scale="log",
        beside="batch/minibatch",
        beside_label="minibatch",
    ),
    MetricChart(
        "divergence",
        "Behavioral divergence",
        "batch/behavioral_divergence",
        "share of states whose best action changed",
        y_from=0,
    ),
    MetricChart(
        "policy-kl",
        "Divergence of an iteration",
        "batch/policy_kl",
        "KL from the policy before the iteration",
        y_from=0,
    ),
    MetricChart(
        "kl", "KL divergence", "losses/approx_kl", "from the behavior policy to the current one", y_from=0
    ),
    MetricChart(
        "clip-fraction",
        "Clip fraction",
        "losses/clipfrac",
        "share of ratios outside the clip range",
        y_from=0,
    ),
    MetricChart("entropy", "Entropy", "losses/entropy", "of the policy, nats"),
    MetricChart(
        "learning-rate", "Learning rate", "charts/learning_rate", "of the first gradient step", y_from=0
    ),
    MetricChart("speed", "Speed", "charts/SPS", "env steps per second", y_from=0),
)
"""The charts of a run's page, in their order. Those that no run has measured are left out."""


def charts_of(groups: Sequence[Group]) -> list[Chart]:
    """All charts of these runs; for the return, one per environment."""
    charts: list[Chart] = []
    for kind in RUN_CHARTS:
        if kind.metric == RETURN:
            charts += return_charts(kind, groups)
        else:
            charts.append(metric_chart(kind, groups))
    return [chart for chart in charts if chart.series]


def return_charts(kind: MetricChart, groups: Sequence[Group]) -> list[Chart]:
    """Scores of two environments have no common axis."""
    envs = list(dict.fromkeys(group.config.env for group in groups))
    if len(envs) == 1:
        return [metric_chart(kind, groups)]
    return [
        metric_chart(
            replace(kind, name=f"return-{number}", title=f"Return, {env}"),
            [group for group in groups if group.config.env == env],
        )
        for number, env in enumerate(envs, 1)
    ]


def chart_of_metric(metric: str, groups: Sequence[Group]) -> Chart:
    """The chart of one metric by its name in metrics.jsonl; a metric that no run has measured is refused."""
    if metric not in METRICS:
        raise UserError(
            f"--metric {metric}: there is no such metric{meant(metric) or '; metrics.jsonl has their names'}"
        )
    name = metric.rpartition("/")[2].replace("_", "-")
    other = MetricChart(name, metric, metric, METRICS[metric].rstrip("."))
    known = next((kind for kind in RUN_CHARTS if kind.metric == metric), other)
    chart = metric_chart(known, groups)
    if not chart.series:
        there = sorted({name for group in groups for run in group.runs for name in known_metrics(run.rows)})
        raise UserError(f"--metric {metric}: not measured in these runs, which have {', '.join(there)}")
    envs = {group.config.env for group in groups}
    if len(envs) > 1:
        return chart
    env = envs.pop().encode(errors="replace").decode()  # a name in a record may be no text
    return replace(chart, title=f"{chart.title}, {env}")


def known_metrics(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {name for row in rows for name, value in row.items() if name in METRICS and value is not None}


def metric_chart(kind: MetricChart, groups: Sequence[Group]) -> Chart:
    """One metric of all groups; a group that has not measured it has no line."""
    longest = max(run.env_steps for group in groups for run in group.runs)
    series: list[Series] = []
    end = 0
    for group in groups:
        line = group_line(group, kind.metric, longest)
        if line is None:
            continue
        series += [line, *lost_marks(group, line, longest)]
        end = max(end, *(run.env_steps for run in group.runs))
        beside = group_line(group, kind.beside, longest) if kind.beside else None
        if beside is not None:
            label = f"{group.label}, {kind.beside_label}"
            series.append(replace(beside, label=label, dashed=True, low=(), high=(), in_legend=False))
    return Chart(
        name=kind.name,
        title=kind.title,
        y_label=kind.y_label,
        y_scale=kind.y_scale,
        y_includes=() if kind.y_from is None else (kind.y_from,),
        x_includes=(0, end),
        series=tuple(series),
        note=range_note(groups),
        is_wide=kind.metric == RETURN,
    )


def range_note(groups: Sequence[Group]) -> str:
    """The sentence about the shaded ranges."""
    several = [len(group.runs) > 1 for group in groups]
    if all(several):
        return "Shaded: the range over the runs of a line."
    if not any(several):
        return "Shaded: the range over the iterations within a point."
    return (
        "Shaded: the range over the runs of a line, or over the iterations within a point for a single run."
    )


def group_line(group: Group, metric: str, longest: int) -> Series | None:
    """The mean over a group's runs with their range; for one run, the mean and range within each part.

    Where the metric was lost in noise, y is NaN: a gap.
    """
    lines = [line for run in group.runs if (line := run_line(run.rows, metric, longest / PARTS)) is not None]
    if not lines:
        return None
    x, y, low, high = lines[0] if len(lines) == 1 else over_runs(lines, longest)
    has_range = bool((high > low).any())
    return Series(
        label=group.label,
        color=group.color,
        dashed=group.dashed,
        x=tuple(x.tolist()),
        y=tuple(np.where(np.isinf(y), np.nan, y).tolist()),
        low=tuple(low.tolist()) if has_range else (),
        high=tuple(high.tolist()) if has_range else (),
    )


def lost_marks(group: Group, line: Series, longest: int) -> list[Series]:
    """Dots where a line has gaps: the noise scale is more than that."""
    lost = tuple(x for x, y in zip(line.x, line.y, strict=True) if math.isnan(y))
    above = group_line(group, NOISE_SCALE_ABOVE, longest) if lost else None
    if above is None:
        return []
    heights = tuple(np.interp(lost, above.x, above.y).tolist())
    label = f"{group.label}, more than this"
    return [Series(label=label, color=line.color, x=lost, y=heights, dots=True, line=False, in_legend=False)]


Line = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Env steps, means, and lowest and highest values: [P] each. Means lost in noise are infinite."""


def run_line(rows: Sequence[Mapping[str, Any]], metric: str, width: float) -> Line | None:
    """A metric in parts of `width` env steps; rows that are farther apart are separate points."""
    names = (NOISE_SCALE, NOISE_SCALE_ABOVE) if metric == NOISE_SCALE else (metric,)
    known = [row for row in rows if any(row.get(name) is not None for name in names)]
    if not known:
        return None
    steps = np.array([row["env_steps"] for row in known], dtype=np.float64)
    values = np.array([math.inf if row.get(metric) is None else row[metric] for row in known])
    by_episodes = metric in RETURN_METRICS
    weights = np.array([row.get(EPISODES) or 1 if by_episodes else 1 for row in known], dtype=np.float64)
    # A row at the very end of a part belongs to it, since its env steps were done within it.
    _, starts = np.unique(np.ceil(steps / width), return_index=True)
    parts = zip(*(np.split(array, starts[1:]) for array in (steps, values, weights)), strict=True)
    points = [(np.average(x, weights=weight), *middle_and_range(y, weight)) for x, y, weight in parts]
    x, y, low, high = np.array(points).T
    return x, y, low, high


def over_runs(lines: Sequence[Line], longest: int) -> Line:
    """Middle and range over runs, each interpolated to common points and counted where it has data."""
    x = np.linspace(0, longest, PARTS + 1)
    at = np.array([at_points(x, steps, means) for steps, means, _, _ in lines])
    has_data = ~np.isnan(at)
    points = [
        (place, *middle_and_range(values[there], np.ones(there.sum())))
        for place, values, there in zip(x, at.T, has_data.T, strict=True)
        if there.any()
    ]
    x, y, low, high = np.array(points).T
    return x, y, low, high


def middle_and_range(values: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """The mean and the range of finite values; if the mean is not finite, there is no range."""
    middle = np.average(values, weights=weights)
    if not np.isfinite(middle):
        return math.inf, math.nan, math.nan
    finite = values[np.isfinite(values)]
    return float(middle), float(finite.min()), float(finite.max())


def at_points(x: np.ndarray, steps: np.ndarray, means: np.ndarray) -> np.ndarray:
    """A line at the points x; NaN before its first point, and more than one point after its last one."""
    lost = np.isinf(means)
    values = np.interp(x, steps, np.where(lost, 0.0, means))
    values[np.interp(x, steps, lost) > 0] = np.inf
    values[(x < steps[0]) | (x > steps[-1] + x[1] - x[0])] = np.nan
    return values
