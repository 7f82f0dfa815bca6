"""Runs and judges the study that plan.toml describes, on a copy of the package with window.patch.

    mkdir /tmp/reuse
    git archive f18cd50 src | tar -x -C /tmp/reuse --strip-components 1
    patch -d /tmp/reuse -p1 < results/reuse/window.patch
    PYTHONPATH=/tmp/reuse python results/reuse/reuse.py tune
    PYTHONPATH=/tmp/reuse python results/reuse/reuse.py study
    python results/reuse/reuse.py report          # writes the tables of README.md, without a copy

Each run is one row of runs.jsonl, appended when it ends. Runs that have a row are skipped, so that the same
command continues a study that was stopped.
"""

import argparse
import hashlib
import json
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import anybatch
from anybatch import presets
from anybatch.lab import statistics
from anybatch.lab.studies import curves

HERE = Path(__file__).parent
PLAN, RUNS, README = HERE / "plan.toml", HERE / "runs.jsonl", HERE / "README.md"
KEPT_METRICS = (
    "importance/effective_samples",
    "proximal/kl",
    "losses/approx_kl",
    "losses/clipfrac",
    "losses/explained_variance",
)
MARK = "<!-- results -->"
Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """Numbers that the sweep tries."""

    learning_rate: float
    center_of_mass: float


@dataclass(frozen=True)
class Cell:
    """One run."""

    phase: str
    """tune or study."""
    family: str
    task: str
    arm: str
    """Of the study; in the sweep, one or several epochs."""
    epochs: str
    seed: int
    point: Point
    env_steps: int
    ratio: str = "1"
    rescale: str = "all"
    window: bool = False

    @property
    def name(self) -> str:
        point = f"{self.point.learning_rate:g} {self.point.center_of_mass:g}"
        return f"{self.phase} {self.task} {self.arm} {point} {self.seed}"


@cache
def plan() -> dict[str, Any]:
    return tomllib.loads(PLAN.read_text())


def rows() -> dict[str, Row]:
    """The finished runs by name."""
    lines = RUNS.read_text().splitlines() if RUNS.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def sweep(family: str, epochs: str) -> list[Point]:
    """The points of the plan, and those beyond an edge that turned out to be the best."""
    numbers = plan()["families"][family][epochs]
    points = [Point(rate, age) for age in numbers["center_of_mass"] for rate in numbers["learning_rate"]]
    if not numbers["seeds"]:
        return points
    while (best := best_point(family, epochs, points)) is not None:
        rates = [one.learning_rate for one in points if one.center_of_mass == best.center_of_mass]
        if min(rates) < best.learning_rate < max(rates):
            break
        factor = 2 if best.learning_rate == max(rates) else 0.5
        points.append(replace(best, learning_rate=best.learning_rate * factor))
    return points


def tuning_cells(family: str, epochs: str, points: list[Point]) -> list[Cell]:
    """The runs of some points of a sweep."""
    settings = plan()["families"][family]
    return [
        Cell("tune", family, task, epochs, epochs, seed, point, settings["env_steps"] // 2)
        for seed in settings[epochs]["seeds"]
        for task in settings["tasks"]
        for point in points
    ]


def best_point(family: str, epochs: str, points: list[Point]) -> Point | None:
    """The point with the best areas; None as long as a run is missing."""
    if len(points) == 1:
        return points[0]
    done, scaled = rows(), dict.fromkeys(points, 0.0)
    for task in plan()["families"][family]["tasks"]:
        areas: dict[Point, list[float]] = {point: [] for point in points}
        for cell in tuning_cells(family, epochs, points):
            if cell.name not in done:
                return None
            if cell.task == task:
                areas[cell.point].append(done[cell.name]["area"])
        means = {point: fmean(values) for point, values in areas.items()}
        low, high = min(means.values()), max(means.values())
        for point, mean in means.items():
            scaled[point] += (mean - low) / (high - low)
    return max(points, key=lambda point: scaled[point])


def chosen(family: str, epochs: str) -> Point | None:
    return best_point(family, epochs, sweep(family, epochs))


def tune(families: list[str]) -> Iterator[Cell]:
    """The runs of the sweeps; further points are added while the best one is at an edge."""
    for family in families:
        for epochs in ("several", "one"):
            while chosen(family, epochs) is None:
                cells = tuning_cells(family, epochs, sweep(family, epochs))
                done = rows()
                yield from (cell for cell in cells if cell.name not in done)


def study(families: list[str]) -> Iterator[Cell]:
    """The runs of the study, seed by seed."""
    points = {
        (family, epochs): chosen(family, epochs) for family in families for epochs in ("several", "one")
    }
    for seed in plan()["seeds"]["study"]:
        for arm, settings in plan()["arms"].items():
            if arm == "none" and seed not in plan()["seeds"]["none"]:
                continue
            for family in families:
                point = points[family, settings["epochs"]]
                if point is None:
                    raise SystemExit(f"The sweep of {family} is not finished: reuse.py tune")
                for task in plan()["families"][family]["tasks"]:
                    yield cell_of(family, task, arm, seed, point)


def cell_of(family: str, task: str, arm: str, seed: int, point: Point) -> Cell:
    settings = {name: value for name, value in plan()["arms"][arm].items() if name != "title"}
    env_steps = plan()["families"][family]["env_steps"]
    return Cell("study", family, task, arm, seed=seed, point=point, env_steps=env_steps, **settings)


def config_of(cell: Cell) -> Any:
    """The config of a run: its batch is scaled from the one that the base has."""
    family = plan()["families"][cell.family]
    age = cell.point.center_of_mass
    changes: dict[str, Any] = {
        "env": cell.task,
        "seed": cell.seed,
        "threads": plan()["native_threads"],
        "total_env_steps": cell.env_steps,
        "rescale": cell.rescale,
        "optimizer": {"learning_rate": cell.point.learning_rate},
        "proximal": {"ewma_decay": age / (age + 1)},
        "record": {"tensorboard": False, "checkpoint_every_seconds": 1e9},
    }
    config = presets.load(family["preset"]).config
    settings = family[cell.epochs]["settings"]
    for group, values in (changes | settings).items():
        value = replace(getattr(config, group), **values) if isinstance(values, dict) else values
        config = replace(config, **{group: value})
    # Measuring the gradient noise takes time and changes nothing.
    config = replace(config, tuned_at=None, update=replace(config.update, noise_scale_every=0)).pinned()
    if cell.window:
        update: Any = config.update
        config = replace(config, update=replace(update, window_env_steps=family["window_env_steps"]))
    return replace(config, num_envs=int(config.num_envs * Fraction(cell.ratio))).completed()


def trained(cell: Cell) -> Row:
    """The row of a run. One that diverges has the returns it had until then, and its error."""
    import torch

    from anybatch import planning
    from anybatch.algorithms import algorithm_of
    from anybatch.algorithms.state import make_env
    from anybatch.backends.threads import set_threads
    from anybatch.errors import TrainingError
    from anybatch.runs import log
    from anybatch.runs.run import Run

    config, bins, error = config_of(cell), plan()["bins"], None
    set_threads(config, planning.expected_encoder(config))
    torch.set_num_threads(1)
    state = algorithm_of(config).start(config, make_env(config, env_steps=0))
    start, cpu_start = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        with Run.silent(Path(folder), config.record) as run:
            try:
                algorithm_of(config).train(config, state, run)
            except TrainingError as caught:
                error = str(caught)
        logged = log.read(Path(folder))
    curve = [value for _, value in curves.return_curve(logged, cell.env_steps, bins)]
    metrics = {name: [row[name] for row in logged if row.get(name) is not None] for name in KEPT_METRICS}
    return {
        "name": cell.name,
        "phase": cell.phase,
        "family": cell.family,
        "task": cell.task,
        "arm": cell.arm,
        "seed": cell.seed,
        "learning_rate": cell.point.learning_rate,
        "center_of_mass": cell.point.center_of_mass,
        "final": curves.final_return(curve),
        "area": curves.area(curve),
        "curve": curve,
        "metrics": {name: curves.rounded(fmean(values), 4) for name, values in metrics.items() if values},
        "env_steps": state.env_steps,
        "gradient_steps": state.steps.counts.taken,
        "num_envs": config.num_envs,
        "minibatch": state.batch.minibatch,
        "native": state.backend.is_native,
        "error": error,
        "cpu_seconds": round(time.process_time() - cpu_start, 1),
        "wall_seconds": round(time.perf_counter() - start, 1),
        "plan": digest([PLAN]),
        "package": package_digest(),
    }


@cache
def package_digest() -> str:
    """Of the sources that this process runs."""
    sources = Path(anybatch.__file__).parent.rglob("*")
    return digest(sorted(path for path in sources if path.suffix in (".py", ".c", ".h", ".toml")))


def digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def run_cells(cells: Iterator[Cell]) -> None:
    if not hasattr(presets.load("mujoco-ppo-ewma").config.update, "window_env_steps"):
        raise SystemExit(
            "This package has no window: apply window.patch to a copy and name it in PYTHONPATH."
        )
    for cell in cells:
        if cell.name in rows():
            continue
        row = trained(cell)
        with RUNS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row['name']}: {row['final']} {row['area']}, {row['cpu_seconds']} s", flush=True)


def scores(done: Mapping[str, Row], arm: str, metric: str, seeds: list[int]) -> dict[str, list[float]]:
    """By task, the scores of the seeds."""
    by_seed = {(row["task"], row["seed"]): row[metric] for row in done.values() if is_of(row, arm)}
    tasks = [task for family in plan()["families"].values() for task in family["tasks"]]
    return {task: [by_seed[task, seed] for seed in seeds if (task, seed) in by_seed] for task in tasks}


def is_of(row: Row, arm: str) -> bool:
    return row["phase"] == "study" and row["arm"] == arm


def common_seeds(done: Mapping[str, Row], arms: list[str]) -> list[int]:
    """The seeds that all tasks have in all of these arms."""
    have = {(row["task"], row["arm"], row["seed"]) for row in done.values() if row["phase"] == "study"}
    tasks = [task for family in plan()["families"].values() for task in family["tasks"]]
    return [
        seed
        for seed in plan()["seeds"]["study"]
        if all((task, arm, seed) in have for task in tasks for arm in arms)
    ]


def judgement(this: list[float], that: list[float], alpha: float) -> tuple[str, statistics.Difference]:
    """better, worse or open, by one-sided Welch tests of this against that."""
    found = statistics.difference({"": this}, {"": that})
    if found.p_above(0.0) < alpha:
        return "better", found
    return ("worse" if found.p_below(0.0) < alpha else "open"), found


def gate(done: Mapping[str, Row]) -> tuple[str, dict[str, dict[str, Any]], list[int]]:
    """The answer of the gate, and for each task what it rests on."""
    rule = plan()["gate"]
    this, that = rule["this"], rule["that"]
    seeds = common_seeds(done, [this, that])
    if len(seeds) < 2:
        return "undecided", {}, seeds
    tasks: dict[str, dict[str, Any]] = {}
    for metric in rule["metrics"]:
        these, those = scores(done, this, metric, seeds), scores(done, that, metric, seeds)
        for task in these:
            tasks.setdefault(task, {})[metric] = judgement(these[task], those[task], rule["alpha"])
    for found in tasks.values():
        states = [found[metric][0] for metric in rule["metrics"]]
        found["state"] = "worse" if "worse" in states else "better" if set(states) == {"better"} else "open"
    states = [found["state"] for found in tasks.values()]
    passes = states.count("better") >= rule["better_in"] and states.count("worse") <= rule["worse_in"]
    answer = "passed" if passes else "not passed"
    return answer if len(seeds) == len(plan()["seeds"]["study"]) else f"provisionally {answer}", tasks, seeds


def number(value: float) -> str:
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−")


def interval(found: statistics.Difference) -> str:
    low, high = found.interval(0.95)
    return f"{number(found.mean)} ({number(low)} to {number(high)})"


def report() -> str:
    done = rows()
    hours = sum(row["cpu_seconds"] for row in done.values()) / 3600
    cost = f"{len(done)} runs, {hours:.1f} core-hours, on a shared core."
    return "\n\n".join(
        [*gate_report(done), *arm_report(done), *comparison_report(done), *sweep_report(), cost]
    )


def gate_report(done: Mapping[str, Row]) -> list[str]:
    answer, tasks, seeds = gate(done)
    lines = [
        f"Gate: **{answer}**, with {len(seeds)} of {len(plan()['seeds']['study'])} seeds.",
    ]
    if tasks:
        table = [
            "| task | final return: difference (95% interval) | area | the window is |",
            "|---|---|---|---|",
        ]
        table += [
            f"| {task} | {interval(one['final'][1])} | {interval(one['area'][1])} | {one['state']} |"
            for task, one in tasks.items()
        ]
        lines.append("\n".join(table))
    return lines


def arm_report(done: Mapping[str, Row]) -> list[str]:
    """Mean returns of every arm, over the seeds it has."""
    tables = []
    for metric, title in (("final", "Final return"), ("area", "Area")):
        arms = plan()["arms"]
        head = f"| {title.lower()} | " + " | ".join(arms[arm]["title"] for arm in arms) + " |"
        by_arm = {arm: scores(done, arm, metric, plan()["seeds"]["study"]) for arm in arms}
        body = [
            f"| {task} | " + " | ".join(summary(by_arm[arm][task]) for arm in arms) + " |"
            for task in next(iter(by_arm.values()))
        ]
        tables.append("\n".join([head, "|---" * (len(arms) + 1) + "|", *body]))
    return tables


def summary(values: list[float]) -> str:
    """Mean, range and number of seeds."""
    if not values:
        return "not run"
    if len(values) == 1:
        return f"{number(values[0])} (1 seed)"
    return f"{number(fmean(values))} ({number(min(values))} to {number(max(values))}; {len(values)} seeds)"


def comparison_report(done: Mapping[str, Row]) -> list[str]:
    """Differences without a verdict."""
    pairs = (("window", "base"), ("all", "base"), ("none", "base"), ("base", "one"))
    lines = ["| difference (95% interval) | task | seeds | final return | area |", "|---|---|---|---|---|"]
    for this, that in pairs:
        seeds = common_seeds(done, [this, that])
        if len(seeds) < 2:
            continue
        both = [
            (scores(done, this, metric, seeds), scores(done, that, metric, seeds))
            for metric in ("final", "area")
        ]
        titles = f"{plan()['arms'][this]['title']} − {plan()['arms'][that]['title']}"
        for task in both[0][0]:
            found = [statistics.difference({"": these[task]}, {"": those[task]}) for these, those in both]
            lines.append(f"| {titles} | {task} | {len(seeds)} | " + " | ".join(map(interval, found)) + " |")
    return ["\n".join(lines)] if len(lines) > 2 else []


def sweep_report() -> list[str]:
    """The areas of the sweeps, and what was chosen."""
    done = rows()
    lines = ["| sweep | task | learning rate: area | chosen |", "|---|---|---|---|"]
    for family, settings in plan()["families"].items():
        for epochs in ("several", "one"):
            points, best = sweep(family, epochs), chosen(family, epochs)
            if not settings[epochs]["seeds"]:
                continue
            for task in settings["tasks"]:
                cells = [cell for cell in tuning_cells(family, epochs, points) if cell.task == task]
                shown = []
                for point in points:
                    areas = [
                        done[one.name]["area"] for one in cells if one.point == point and one.name in done
                    ]
                    shown.append(f"{point_text(point)}: {number(fmean(areas)) if areas else 'not run'}")
                picked = point_text(best) if best else "not finished"
                lines.append(f"| {settings['preset']}, {epochs} | {task} | {'; '.join(shown)} | {picked} |")
    return ["\n".join(lines)]


def point_text(point: Point) -> str:
    return f"{point.learning_rate:g} (center of mass {point.center_of_mass:g})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("tune", "study", "report", "cells"))
    parser.add_argument(
        "--families", nargs="+", default=list(plan()["families"]), help="of the plan; default: all"
    )
    options = parser.parse_args()
    if options.command == "report":
        before, _, _ = README.read_text().partition(MARK)
        README.write_text(f"{before}{MARK}\n\n{report()}\n")
    elif options.command == "cells":
        print("\n".join(cell.name for cell in study(options.families)))
    else:
        run_cells((tune if options.command == "tune" else study)(options.families))


if __name__ == "__main__":
    main()
