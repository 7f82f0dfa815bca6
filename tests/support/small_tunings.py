"""A small tuning for the tests: a preset on a toy environment whose trials take a fraction of a second."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from small_studies import stop_processes

from anybatch.lab.studies import runner
from anybatch.lab.studies.executor import LocalExecutor
from anybatch.lab.tuning.outcome import Outcome
from anybatch.lab.tuning.plan import Request, TuningPlan
from anybatch.lab.tuning.search import TrialSchedule
from anybatch.lab.tuning.trials import Trial, TrialBook
from anybatch.lab.tuning.tune import open_tuning, tune
from anybatch.runs.display import QUIET

PRESET = """
extends = "cartpole-ppo-ewma"
description = "small"
env = "toy:Match"
num_envs = 16
num_steps = 16
total_env_steps = 1_024
tuned_at = "own batch"
[update]
epochs = 2
minibatches_per_epoch = 2
[network]
hidden_sizes = [8]
[evaluation]
num_envs = 2
[record]
checkpoint_every_iterations = 1
"""
TRIALS = 14
SEED = 21
SEARCH = ("learning-rate=1e-6..0.05", "clip=fixed", "minibatches=1..8")
"""The smallest learning rates learn nothing, so that some trials are pruned."""


def request(folder: Path, **changes: Any) -> Request:
    """The same for each folder: the preset's file is beside all of them."""
    preset = folder / "small.toml"
    if not preset.exists():
        preset.write_text(PRESET)
    asked: dict[str, Any] = {"trials": TRIALS, "seeds": (SEED,), "check_seeds": 2, "search": SEARCH}
    return Request(preset=str(preset), **asked | changes)


def words(asked: Request, out: Path) -> list[str]:
    """The command line of a request."""
    seeds = ["--seeds", *map(str, asked.seeds), "--check-seeds", str(asked.check_seeds)]
    known = ["tune", "--preset", asked.preset, "--trials", str(asked.trials), *seeds]
    return [*known, "--search", *asked.search, "--jobs", "1", "--out", str(out)]


def run_tuning(asked: Request, out: Path, *, jobs: int = 1) -> Outcome:
    return tune(asked, out=out, jobs=jobs, output=QUIET)


def run_trials(
    asked: Request, out: Path, *, jobs: int = 1, only: int | None = None, stops: int = 0
) -> list[Trial]:
    """The search without what comes after it, or its first trials only.

    The workers get `stops` signals that nobody in this process has sent.
    """
    plan = open_tuning(asked, out, jobs=jobs)
    plan = replace(plan, trials=only or plan.trials)
    stop_processes(out, times=stops)
    book = TrialBook(out, plan, jobs=jobs)
    runner.run(TrialSchedule(out, plan, book), LocalExecutor(jobs), output=QUIET)
    return book.trials()


def recorded(out: Path, plan: TuningPlan) -> list[Trial]:
    return TrialBook(out, plan).trials()


def decisive(out: Path) -> dict[str, dict[str, Any]]:
    """All cells without the facts, which tell of time and place."""
    found = {path.name: json.loads(path.read_text()) for path in sorted((out / "cells").iterdir())}
    for cell in found.values():
        cell.pop("facts")
    return found
