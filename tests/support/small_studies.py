"""Small studies for the tests: a study file, its plan, and cells with made-up results."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from anybatch.lab.studies import files, opening, runner
from anybatch.lab.studies.cells import RANDOM_ARM, Cell, Result
from anybatch.lab.studies.executor import Executor, LocalExecutor
from anybatch.lab.studies.plan import Request, StudyPlan, make_plan
from anybatch.lab.studies.runner import StudySchedule
from anybatch.runs.display import QUIET

STUDY = """
title = "Small"
claim = "It runs."
reference = { arm = "all" }

[ranges]
"toy:Lines" = [0, 10]
"toy:Match" = [0, 10]
"toy:Target" = [0, 10]

[bases.toy]
preset = "cartpole-ppo-ewma"

[bases.toy.settings]
num_envs = 4
num_steps = 8
evaluation = { num_envs = 2 }
network = { hidden_sizes = [8] }
record = { checkpoint_every_iterations = 1 }
update = { epochs = 1, minibatches_per_epoch = 2 }

[arms.all]
title = "all rules"

[arms.none]
title = "no rule"
settings = { rescale = "none" }

[scales.cpu]
base = "toy"
envs = ["toy:Match"]
seeds = [1, 2]
total_env_steps = 192

[[scales.cpu.grid]]
arms = ["all", "none"]
ratios = ["1", "1/4"]

[[scales.cpu.tune]]
arms = ["all"]
seeds = [101, 102]
factors = { "optimizer.learning_rate" = [0.5, 1, 2] }

[[verdicts]]
name = "invariance"
claim = "Smaller batches equal the base."
rule = "equivalent"
this = { arm = "all", ratio = "1/4" }
that = { ratio = "1" }
control = { arm = "none" }
margin = 0.1
"""
"""A study of eight cells and one of random play, which takes some seconds."""


def study(*changes: tuple[str, str]) -> files.Study:
    """STUDY with pieces of its text replaced."""
    return files.parse("small", changed_text(*changes))


def changed_text(*changes: tuple[str, str]) -> str:
    text = STUDY
    for there, here in changes:
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    return text


def plan_of(*changes: tuple[str, str], **request: Any) -> StudyPlan:
    return make_plan(study(*changes), Request(study="small", **request))


def before_both_metrics(plan: StudyPlan, *, ranges: bool = True) -> StudyPlan:
    """The same plan as one from when verdicts had one metric, no control, and scales that were not fixed."""
    verdicts = ({name: value for name, value in one.items() if name != "control"} for one in plan.verdicts)
    known = {"toy:Match": (0.0, 10.0)} if ranges else {}
    return replace(plan, metric="area", verdicts=tuple(verdicts), ranges=known)


def run_study(
    out: Path,
    *changes: tuple[str, str],
    jobs: int = 1,
    executor: Executor | None = None,
    retry_failed: bool = False,
) -> list[Result]:
    """Run what is missing in a folder."""
    known = opening.open_study(study(*changes), Request(study="small"), out, jobs=jobs)
    return run_plan(out, known, executor or LocalExecutor(jobs), retry_failed=retry_failed)


def run_plan(
    out: Path,
    plan: StudyPlan,
    executor: Executor | None = None,
    *,
    retry_failed: bool = False,
) -> list[Result]:
    """Run what is missing of a plan in its folder."""
    schedule = StudySchedule(out, plan, retry_failed=retry_failed)
    runner.run(schedule, executor or LocalExecutor(1), output=QUIET)
    return runner.results(out, plan)


def stop_processes(out: Path, *, times: int) -> None:
    """Let the workers in a folder get a SIGTERM after each of their first iterations, as by `kill PID`."""
    copy = out / "source" / "anybatch" / "runs" / "run.py"
    before = "        self.pace.end_iteration()\n"
    stops = (
        '        with (self.folder.parent / "stops").open("a") as stops:\n'
        f'            if stops.write("x") and stops.tell() <= {times}:\n'
        '                __import__("os").kill(__import__("os").getpid(), 15)\n'
    )
    text = copy.read_text()
    assert text.count(before) == 1
    copy.write_text(text.replace(before, before + stops))


def made_up(study_plan: StudyPlan, score: Callable[[Cell], float | None], **more: Any) -> list[Result]:
    """Results of all cells of a plan: random play reaches 0; None diverges."""
    results: list[Result] = []
    for cell in study_plan.cells:
        value = 0.0 if cell.arm == RANDOM_ARM else score(cell)
        known: Mapping[str, Any] = {"cell": cell, "plan_hash": study_plan.hash, "facts": {}}
        if value is None:
            results.append(Result(**known, failed="the gradient is non-finite", diverged=True))
        else:
            metrics = {"metrics": {}} if cell.arm == RANDOM_ARM and "metrics" in more else {}
            results.append(Result(**known, curve=((100, value),), **more | metrics))
    return results
