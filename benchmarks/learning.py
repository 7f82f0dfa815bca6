"""What ours learns beside Stable-Baselines3 and rejax, in the same env steps, with everybody's own settings.

    python benchmarks/learning.py                        # every run that results/learning lacks, seed by seed
    python benchmarks/learning.py --tasks CartPole-v1 Acrobot-v1 --trainers ours sb3 --seeds 701 702
    python benchmarks/learning.py --report               # README.md and curves.png there, without a run
    python benchmarks/learning.py --timed --seeds 701    # wall-clock times, on an otherwise idle machine

learning.toml has tasks, lengths, seeds and settings, with their sources. Every run is a process with one
thread; `--under 'taskset --cpu-list 0'` pins it. When it ends, its row is appended to runs.jsonl, and a run
that has a row is skipped, so that the same command continues after a stop. Peers have venvs of their own.
Needs Linux.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from learning_process import Request
from learning_summary import (
    Row,
    comparison_table,
    comparisons,
    missing,
    returns_table,
    sentences,
    times_table,
)
from machine_facts import cpu_name, machine_facts
from peer_venvs import HERE, python_of
from processor_time import OthersTime

RESULTS = HERE.parent / "results" / "learning"
RUNS, TIMED, README, FIGURE = (
    RESULTS / name for name in ("runs.jsonl", "timed.jsonl", "README.md", "curves.png")
)
MARK = "<!-- from here on written by benchmarks/learning.py --report -->"
COLORS = ("#0b5394", "#7fa7d1", "#38761d", "#cc4125", "#b45f06", "#8e5ea2", "#741b47")
PLAN: dict[str, Any] = tomllib.loads((HERE / "learning.toml").read_text())
TITLES: dict[str, str] = {name: trainer["title"] for name, trainer in PLAN["trainers"].items()}


def main() -> None:
    options = parse_options()
    if options.report:
        write_report()
        return
    target = TIMED if options.timed else RUNS
    done = {key_of(row) for row in read(target)}
    for request in requests(options):
        if key_of(vars(request)) not in done:
            row = run(request, tuple(shlex.split(options.under)))
            RESULTS.mkdir(parents=True, exist_ok=True)
            with target.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{request.task} {request.trainer} {request.seed}: {row['cpu_seconds']} s", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(PLAN["tasks"]), default=list(PLAN["tasks"]))
    parser.add_argument("--trainers", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--seeds", nargs="+", type=int, choices=PLAN["seeds"], default=PLAN["seeds"])
    parser.add_argument("--under", default="", help="put this before the command of every run")
    parser.add_argument("--timed", action="store_true", help="for timed.jsonl, whose times are reported")
    parser.add_argument("--report", action="store_true", help="write README.md and curves.png, run nothing")
    return parser.parse_args()


def requests(options: argparse.Namespace) -> Iterator[Request]:
    """The runs, seed by seed."""
    for seed in options.seeds:
        for task in options.tasks:
            settings = PLAN["tasks"][task]
            for trainer in options.trainers:
                if trainer in settings:
                    own = PLAN["trainers"][trainer].get("settings", {}) | settings[trainer]
                    yield Request(trainer, task, settings["env_steps"], seed, PLAN["bins"], own)


def key_of(row: Row) -> str:
    """What makes a run the same one: also its settings, so that changed ones are run again."""
    return json.dumps([row[name] for name in ("task", "trainer", "seed", "env_steps", "settings")])


def run(request: Request, under: tuple[str, ...]) -> dict[str, Any]:
    """The row of a run, in a process of its own."""
    trainer = PLAN["trainers"][request.trainer]
    python = python_of(trainer["venv"]) if "venv" in trainer else sys.executable
    command = [*under, str(python), "-W", "ignore", str(HERE / trainer["script"]), request.to_json()]
    others = OthersTime()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        sys.exit(f"A run failed: {shlex.join(command)}\n{done.stderr.strip()[-2000:]}")
    asked = {name: vars(request)[name] for name in ("task", "trainer", "seed", "env_steps", "settings")}
    facts = {"others_share": others.share(), "cpu": cpu_name(), "commit": machine_facts()["git_commit"]}
    return asked | json.loads(lines[-1]) | facts


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; of repeated runs the last."""
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return list({(row["task"], row["trainer"], row["seed"]): row for row in rows}.values())


def write_report() -> None:
    """Everything below the mark in README.md, and the figure."""
    rows, tasks = read(RUNS), PLAN["tasks"]
    found = comparisons(rows, list(tasks))
    timed = read(TIMED)
    hours = sum(row["cpu_seconds"] for row in rows) / 3600
    parts = [
        sentences(found, TITLES),
        "## Returns",
        returns_table(rows, tasks, TITLES),
        missing(rows, tasks, TITLES, PLAN["seeds"]),
        "![returns over env steps: means over the seeds, and their range](curves.png)",
        "## Differences",
        comparison_table(found, TITLES),
        "## Times",
        times_table(rows, timed, TITLES)
        if timed
        else "Not run yet: `python benchmarks/learning.py --timed`.",
        "## Settings and versions",
        "\n".join(f"- **{one['title']}**: {one['source']}." for one in PLAN["trainers"].values()),
        f"{len(rows)} runs, {hours:.1f} core-hours. {versions(rows)}.",
    ]
    before, _, _ = README.read_text().partition(MARK)
    README.write_text(before + MARK + "\n\n" + "\n\n".join(part for part in parts if part) + "\n")
    draw(rows)


def versions(rows: list[dict[str, Any]]) -> str:
    """All versions in the rows, with the processors and commits they ran on."""
    found = sorted({f"{name} {number}" for row in rows for name, number in row["versions"].items()})
    commits = sorted({(row["commit"] or "unknown")[:7] for row in rows})
    return (
        f"{', '.join(found)}; {', '.join(sorted({row['cpu'] for row in rows}))}; commits {', '.join(commits)}"
    )


def draw(rows: list[dict[str, Any]]) -> None:
    """A panel for each task that has a run, and in it a line for each trainer."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from anybatch.lab.studies.curves import filled

    tasks = [task for task in PLAN["tasks"] if any(row["task"] == task for row in rows)]
    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(3.6 * columns, 2.9 * lines), squeeze=False)
    for axis, task in zip(axes.flat, tasks, strict=False):
        for (trainer, title), color in zip(TITLES.items(), COLORS, strict=True):
            runs = [row for row in rows if (row["task"], row["trainer"]) == (task, trainer)]
            returns = np.array([filled(row["curve"]) for row in runs])
            if not len(returns):
                continue
            steps = PLAN["tasks"][task]["env_steps"] * np.arange(1, returns.shape[1] + 1) / returns.shape[1]
            axis.plot(steps, returns.mean(0), color=color, label=title, linewidth=1.3)
            axis.fill_between(steps, returns.min(0), returns.max(0), color=color, alpha=0.12, linewidth=0)
        axis.set_title(task, fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("env steps", fontsize=7)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25)
    for axis in axes.flat[len(tasks) :]:
        axis.set_visible(False)
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="lower center",
        ncols=min(4, len(handles)),
        fontsize=8,
        frameon=False,
    )
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(FIGURE, dpi=120)


if __name__ == "__main__":
    main()
