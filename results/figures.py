"""Figures of collected runs.

python results/figures.py curves FOLDER OUT.png [--window 50000] [--beside PUBLISHED.json]
python results/figures.py batch RUN.json OUT.png
python results/figures.py groups FOLDER OUT.png --reference NAME/NAME

`curves`: mean episode return over env steps, one panel an environment, one line a run, and beside them the
published points [env steps, return] of that environment. `batch`: return, behavioral divergence and
iteration batch of one run with a controller. `groups`: a panel for each folder in FOLDER, a line for each
folder in that, the mean over its runs in their range; the reference is drawn in every panel.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

COLORS = ("#0b5394", "#cc4125", "#38761d", "#8e5ea2", "#b45f06")
THOUSAND, MILLION = 1_000, 1_000_000


def smoothed(curve: list[list[float]], window: int) -> tuple[list[float], list[float]]:
    """Means over all episodes that ended within each stretch of `window` env steps."""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for env_steps, episodes, mean_return in curve:
        total = sums[int(env_steps // window)]
        total[0] += episodes * mean_return
        total[1] += episodes
    places = sorted(place for place, (_, episodes) in sums.items() if episodes)
    return [(place + 0.5) * window for place in places], [sums[place][0] / sums[place][1] for place in places]


def named(path: Path) -> tuple[str, str, str]:
    """Environment, preset and seed, as the run folder was named."""
    env, preset, seed = path.stem.split("__")
    return env, preset, seed


def in_millions(axis: Any, label: str) -> None:
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(lambda steps, _: f"{steps / MILLION:g} M" if steps else "0")
    axis.set_xlabel("env steps")
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)


def draw_curves(folder: Path, out: Path, window: int, published: dict[str, list[list[float]]]) -> None:
    runs = sorted(folder.glob("*__*__s*.json"))
    envs = sorted({named(path)[0] for path in runs})
    presets = sorted({named(path)[1] for path in runs})
    figure, axes = plt.subplots(1, len(envs), figsize=(1 + 3.6 * len(envs), 3.4), squeeze=False)
    for path in runs:
        env, preset, _ = named(path)
        axis = axes[0][envs.index(env)]
        curve = json.loads(path.read_text())["curve"]
        axis.plot(*smoothed(curve, window), color=COLORS[presets.index(preset)], label=preset, linewidth=1.6)
    for env, axis in zip(envs, axes[0], strict=True):
        if env in published:
            points = zip(*published[env], strict=True)
            axis.plot(*points, color="gray", linestyle="--", linewidth=1.2, label="published PPO")
        axis.set_title(env, fontsize=10)
        in_millions(axis, "mean episode return")
        labels = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        axis.legend(labels.values(), labels.keys(), fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(out, dpi=150)


def draw_batch(path: Path, out: Path) -> None:
    run = json.loads(path.read_text())
    env, preset, seed = named(path)
    steps, batch, divergence = zip(*run["divergence"], strict=True)
    figure, axes = plt.subplots(3, 1, figsize=(7, 7.2), sharex=True)
    axes[0].plot(*smoothed(run["curve"], 50 * THOUSAND), color=COLORS[0])
    axes[1].plot(steps, divergence, ".", markersize=4, color=COLORS[1])
    axes[2].step(steps, batch, where="post", color=COLORS[2])
    axes[0].set_title(f"{env}, {preset}, {seed.replace('s', 'seed ')}", fontsize=10)
    labels = ("mean episode return", "behavioral divergence", "iteration batch, samples")
    for axis, label in zip(axes, labels, strict=True):
        in_millions(axis, label)
        axis.set_ylim(bottom=0)
    for axis in axes[:-1]:
        axis.set_xlabel("")
    figure.tight_layout()
    figure.savefig(out, dpi=150)


def draw_groups(folder: Path, out: Path, window: int, reference: str) -> None:
    panels = sorted(path for path in folder.iterdir() if path.is_dir())
    figure, axes = plt.subplots(
        1, len(panels), figsize=(1 + 4 * len(panels), 3.4), sharey=True, squeeze=False
    )
    for panel, axis in zip(panels, axes[0], strict=True):
        groups = {path for path in panel.iterdir() if path.is_dir()} | {folder / reference}
        for color, group in zip(COLORS, sorted(groups, key=lambda path: -int(path.name)), strict=False):
            draw_range(axis, group, window, color)
        axis.set_title(f"rules: {panel.name}", fontsize=10)
        in_millions(axis, "mean episode return")
        axis.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(out, dpi=150)


def draw_range(axis: Any, group: Path, window: int, color: str) -> None:
    """The mean over a folder's runs, and behind it the range of them."""
    curves = [
        smoothed(json.loads(path.read_text())["curve"], window) for path in sorted(group.glob("*.json"))
    ]
    length = min(len(steps) for steps, _ in curves)
    steps = curves[0][0][:length]
    columns = list(zip(*(returns[:length] for _, returns in curves), strict=True))
    axis.fill_between(steps, [*map(min, columns)], [*map(max, columns)], color=color, alpha=0.15, linewidth=0)
    means = [sum(column) / len(column) for column in columns]
    axis.plot(steps, means, color=color, linewidth=1.6, label=f"{group.name} envs")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("curves", "batch", "groups"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--window", type=int, default=50 * THOUSAND, help="env steps that one point averages")
    parser.add_argument("--beside", type=Path, help="a file of published points, by environment")
    parser.add_argument("--reference", help="of `groups`: the folder that is drawn in every panel")
    options = parser.parse_args()
    if options.kind == "curves":
        published = json.loads(options.beside.read_text()) if options.beside else {}
        draw_curves(options.source, options.out, options.window, published)
    elif options.kind == "groups":
        draw_groups(options.source, options.out, options.window, options.reference)
    else:
        draw_batch(options.source, options.out)


if __name__ == "__main__":
    main()
