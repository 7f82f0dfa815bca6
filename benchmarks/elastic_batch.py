"""A batch that follows the ranks: is the learning curve that of a run whose ranks do not change?

    python benchmarks/elastic_batch.py plan
    python benchmarks/elastic_batch.py run --out results/elastic
    python benchmarks/elastic_batch.py report --out results/elastic

With `--envs-per-rank`, `anybatch train` starts four ranks, and `anybatch resume` continues the run with one,
three and two, at moments drawn from the seed. `plan` prints these moments, `report` the tables of
results/elastic/README.md. Runs that have their file are not repeated; one that was interrupted is.
"""

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from anybatch.reports import statistics
from anybatch.runs import folder as run_folder
from anybatch.runs import log
from anybatch.studies import curve_means, curves

ROOT = Path(__file__).resolve().parents[1]
PRESET = "benchmarks/elastic_batch.toml"
"""The base of the study `invariance`, tuned at 16 envs."""
ENVS = 16
ENV_STEPS = 300_000
SEEDS = (1, 2, 3, 4, 5)
FEWEST_SEEDS = 3
RANKS = (4, 1, 3, 2)
PARTS = 50
"""Of a run, for its curve."""
RANDOM_RETURN = 0.46
"""Of random play: the row minatar-Breakout__random of results/studies/invariance.jsonl.gz."""
MARGIN = 0.1
"""As in the study: of the range from random play to the best final return of the constant runs."""
RESAMPLES = 10_000
Scores = dict[str, list[float]]
COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
FLAGS = ["--threads", "1", "--evaluation.num-envs", "1", "--record.no-tensorboard"]


@dataclass(frozen=True)
class RankSequence:
    """How long a run has each number of `RANKS`, at least, and how many envs a rank has."""

    envs_per_rank: int
    least: tuple[float, float, float, float]
    """Shares of the run. The rest of it is divided at random."""


SEQUENCES = {
    "near": RankSequence(envs_per_rank=8, least=(0.05, 0.05, 0.05, 0.05)),  # 32, 8, 24 and 16 envs
    "far": RankSequence(envs_per_rank=2, least=(0.02, 0.7, 0.02, 0.02)),  # 8, 2, 6 and 4 envs
}
CONSTANT = "constant"
RULES = ("all", "none")
VARIANTS = (CONSTANT, *(f"{name}-{rules}" for name in SEQUENCES for rules in RULES))
TITLES = {
    "constant": "constant",
    "near-all": "near, with the rules",
    "near-none": "near, without",
    "far-all": "far, with the rules",
    "far-none": "far, without",
}
COMPARISONS = (
    *((variant, CONSTANT) for variant in VARIANTS[1:]),
    *((f"{name}-all", f"{name}-none") for name in SEQUENCES),
)


@dataclass(frozen=True)
class Stretch:
    """A part of a run with one number of ranks."""

    ranks: int
    until: int
    """Env steps of the run at which it ends, after the iteration in progress."""


def moments(name: str, seed: int) -> list[int]:
    """The env steps at which the ranks change: random within what a sequence leaves open.

    With the rules and without, a seed has the same.
    """
    least = SEQUENCES[name].least
    rng = random.Random(f"{name} {seed}")
    cuts = [0.0, *sorted(rng.random() for _ in RANKS[1:]), 1.0]
    free = 1 - sum(least)
    shares = [low + free * (end - start) for low, (start, end) in zip(least, pairwise(cuts), strict=True)]
    return [round(ENV_STEPS * sum(shares[: place + 1])) for place in range(len(RANKS) - 1)]


def stretches(variant: str, seed: int) -> list[Stretch]:
    """The stretches of a run. One process stands for the two ranks of the constant runs."""
    if variant == CONSTANT:
        return [Stretch(1, ENV_STEPS)]
    ends = [*moments(variant.partition("-")[0], seed), ENV_STEPS]
    return [Stretch(ranks, end) for ranks, end in zip(RANKS, ends, strict=True)]


def commands(variant: str, seed: int, work: Path) -> Iterator[list[str]]:
    """What an operator would type: the run, and a resume for each change."""
    first, *others = stretches(variant, seed)
    name, _, rules = variant.partition("-")
    envs = (
        ["--num-envs", str(ENVS)]
        if variant == CONSTANT
        else ["--envs-per-rank", str(SEQUENCES[name].envs_per_rank), "--rescale", rules]
    )
    place = ["--run-dir", str(work), "--name", f"{variant}-s{seed}", "--seed", str(seed)]
    yield ["train", "--preset", PRESET, *envs, *of_stretch(first), *place, *FLAGS]
    for stretch in others:
        yield ["resume", str(work / f"{variant}-s{seed}"), *of_stretch(stretch)]


def of_stretch(stretch: Stretch) -> list[str]:
    return ["--ranks", str(stretch.ranks), "--total-env-steps", str(stretch.until)]


def train(variant: str, seed: int, work: Path) -> dict[str, Any]:
    """Make a run; what is left of an interrupted one is removed first."""
    folder = ROOT / work / f"{variant}-s{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    words = list(commands(variant, seed, work))
    with folder.with_suffix(".log").open("w") as output:
        for command in words:
            subprocess.run([*COMMAND, *command], cwd=ROOT, stdout=output, stderr=output, check=True)
    found = {"variant": variant, "seed": seed, **kept(folder, stretches(variant, seed))}
    shutil.rmtree(folder)
    return found | {"commands": [shlex.join(["anybatch", *command]) for command in words]}


def kept(folder: Path, planned: Sequence[Stretch]) -> dict[str, Any]:
    """What the file of a run holds."""
    rows, facts = log.read(folder), run_folder.read_json(folder / run_folder.FACTS_FILE)
    processes = [*facts["earlier"], facts]
    starts = [process["from_env_steps"] for process in processes]
    ends = [*starts[1:], rows[-1]["env_steps"]]
    curve = curves.return_curve(rows, ENV_STEPS, PARTS)
    values = [value for _, value in curve]
    return {
        "commits": sorted({process["git_commit"] for process in processes}),
        **{name: facts[name] for name in ("python", "torch", "engine", "native_code", "threads")},
        "stretches": [
            asdict(stretch)
            | {"from_env_steps": start, "to_env_steps": end}
            | batch_of([row for row in rows if start < row["env_steps"] <= end])
            for stretch, start, end in zip(planned, starts, ends, strict=True)
        ],
        "env_steps": rows[-1]["env_steps"],
        "episodes": sum(row.get(curves.EPISODES) or 0 for row in rows),
        "area": curve_means.area(values),
        "final_return": curve_means.final_return(values),
        "curve": curve,
    }


def batch_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The batch of a stretch, the numbers that went with it, and what was measured there."""

    def only(name: str) -> Any:
        (value,) = {row.get(name) for row in rows}
        return value

    scales = [row["batch/noise_scale"] for row in rows if row.get("batch/noise_scale") is not None]
    return {
        "ranks_recorded": only("charts/ranks"),
        "iteration_batch": only("batch/iteration"),
        "minibatch": only("batch/minibatch"),
        "learning_rate": only("charts/learning_rate"),
        "iterations": len(rows),
        "proximal_age_env_steps": round(fmean(row["proximal/age_env_steps"] for row in rows), 1),
        "noise_scale_median": round(median(scales), 1) if scales else None,
    }


def path_of(out: Path, variant: str, seed: int) -> Path:
    return out / f"{variant}__s{seed}.json"


def finish(out: Path, variant: str, seed: int, work: Path) -> None:
    run = train(variant, seed, work)
    path = path_of(out, variant, seed)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(run, indent=1) + "\n")
    partial.replace(path)
    batches = [stretch["iteration_batch"] for stretch in run["stretches"]]
    print(f"{path.name}: area {run['area']:.4g}, iteration batches {batches}", flush=True)


def run_missing(out: Path, work: Path, *, seeds: Sequence[int], jobs: int) -> None:
    """All runs without a file, seed by seed."""
    out.mkdir(parents=True, exist_ok=True)
    cells = [(variant, seed) for seed in seeds for variant in VARIANTS]
    missing = [cell for cell in cells if not path_of(out, *cell).exists()]
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(finish, out, variant, seed, work) for variant, seed in missing]:
            done.result()


def show_plan() -> None:
    print("| sequence | seed | ranks change after env steps | share of the run with 4, 1, 3, 2 ranks |")
    print("|---|---|---|---|")
    for name in SEQUENCES:
        for seed in SEEDS:
            changes = moments(name, seed)
            shares = [(end - start) / ENV_STEPS for start, end in pairwise([0, *changes, ENV_STEPS])]
            steps = ", ".join(f"{change:,}" for change in changes)
            parts = ", ".join(f"{share:.0%}" for share in shares)
            print(f"| {name} | {seed} | {steps} | {parts} |")


def report(out: Path) -> None:
    """Print the areas, the differences and their verdicts, for the seeds that every variant has."""
    seeds = [seed for seed in SEEDS if all(path_of(out, variant, seed).exists() for variant in VARIANTS)]
    if len(seeds) < FEWEST_SEEDS:
        sys.exit(f"seeds {seeds} are complete: {FEWEST_SEEDS} are needed")
    runs = {v: [json.loads(path_of(out, v, seed).read_text()) for seed in seeds] for v in VARIANTS}
    print("| runs | area under the curve, each seed | mean | last tenth of the run |\n|---|---|---|---|")
    for variant, ones in runs.items():
        each = ", ".join(f"{one['area']:.2f}" for one in ones)
        means = fmean(one["area"] for one in ones), fmean(one["final_return"] for one in ones)
        print(f"| {TITLES[variant]} | {each} | {means[0]:.2f} | {means[1]:.2f} |")
    areas: dict[str, Scores] = {v: {"Breakout": [one["area"] for one in ones]} for v, ones in runs.items()}
    best = max(one["final_return"] for one in runs[CONSTANT])
    margin = MARGIN * (best - RANDOM_RETURN)
    print(f"\nSeeds {', '.join(map(str, seeds))}. Margin: {margin:.2f}.\n")
    print("| difference | mean | 95%, bootstrap | 95%, Welch | 90%, Welch | verdict |")
    print("|---|---|---|---|---|---|")
    for this, that in COMPARISONS:
        print(comparison(this, that, areas[this], areas[that], margin))


def comparison(this: str, that: str, first: Scores, second: Scores, margin: float) -> str:
    """A line of the report."""
    found = statistics.difference(first, second)
    drawn = statistics.stratified_interval(
        lambda a, b: statistics.mean(a) - statistics.mean(b), first, second, level=0.95, resamples=RESAMPLES
    )
    assert drawn is not None
    welch, inner = found.interval(0.95), found.interval(0.9)
    verdicts = [
        *(["different"] if all(low > 0 or high < 0 for low, high in (drawn, welch)) else []),
        *(["within the margin"] if statistics.equivalence_p(found, margin) <= 0.05 else []),
    ]
    intervals = " | ".join(f"{low:+.2f} to {high:+.2f}" for low, high in (drawn, welch, inner))
    verdict = ", ".join(verdicts) or "not decided"
    return f"| {TITLES[this]} − {TITLES[that]} | {found.mean:+.2f} | {intervals} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("plan", "run", "report"))
    parser.add_argument("--out", type=Path, default=Path("results/elastic"))
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build/elastic"),
        help="folder for the run folders, relative to the checkout",
    )
    parser.add_argument("--seeds", type=int, nargs="+", choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    chosen = parser.parse_args()
    if chosen.action == "plan":
        show_plan()
    elif chosen.action == "report":
        report(chosen.out)
    else:
        os.environ["OMP_NUM_THREADS"] = "1"
        run_missing(chosen.out, chosen.work, seeds=chosen.seeds, jobs=chosen.jobs)


if __name__ == "__main__":
    main()
