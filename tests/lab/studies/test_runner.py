"""Running studies: what is missing is done, once, whatever happened before."""

import contextlib
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_studies import STUDY, plan_of, run_plan, run_study, stop_processes, study
from toy_runs import toy_config, train

from anybatch.envs.protocol import BoxActions, MultiDiscreteActions
from anybatch.errors import ConfigError, UserError
from anybatch.lab.studies import cells, curves, opening, runner, training
from anybatch.lab.studies.cells import Cell
from anybatch.lab.studies.executor import LocalWorker, ended
from anybatch.lab.studies.plan import Request, StudyPlan
from anybatch.lab.studies.training import largest_entropy, random_play
from anybatch.runs.record import RunRecord

COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
KILLS = 5
SILENT: dict[str, Any] = {"jobs": 1}
ONE_SEED = (("seeds = [1, 2]", "seeds = [1]"), ('ratios = ["1", "1/4"]', 'ratios = ["1"]'))
"""Changes that leave two cells and random play."""


def decisive(out: Path) -> dict[str, dict[str, Any]]:
    """All cells of a study without the facts, which tell of time and place."""
    found = {path.name: json.loads(path.read_text()) for path in sorted((out / "cells").iterdir())}
    for cell in found.values():
        cell.pop("facts")
    return found


def job_of(plan: StudyPlan, cell: Cell) -> dict[str, Any]:
    """A worker's job to run a cell."""
    return {"cell": cell.to_json(), "origin": asdict(plan.origin)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that ran to its end in one process after another."""
    out = tmp_path_factory.mktemp("studies") / "undisturbed"
    run_study(out)
    return out


def test_every_cell_leaves_one_small_file_and_nothing_else(undisturbed: Path):
    found = runner.results(undisturbed, StudyPlan.read(undisturbed))
    assert len(found) == 9 and not [result for result in found if result.failed]
    trained = found[1]
    assert len(trained.curve) == 100 and trained.curve[-1][0] == 192
    assert trained.episodes > 0 and trained.area is not None and trained.final_return is not None
    assert trained.plan["batch"]["num_envs"] == 4 and trained.plan["rows"]
    assert {
        "losses/entropy",
        "losses/approx_kl",
        "losses/clipfrac",
        "batch/iteration",
    } <= trained.metrics.keys()
    assert all(len(values) == 100 for values in trained.metrics.values())
    assert trained.evaluation["episodes"] == 2
    assert trained.facts["seconds"] > 0 and trained.facts["interruptions"] == 0
    assert trained.facts["source"] and trained.facts["torch"] and trained.facts["threads"] == 1
    assert found[0].cell.arm == "random" and found[0].episodes == 100
    assert not list((undisturbed / "runs").iterdir())
    assert all(path.stat().st_size < 30_000 for path in (undisturbed / "cells").iterdir())


def test_arms_differ_where_the_batch_does_and_are_the_same_run_where_it_does_not(undisturbed: Path):
    metrics = {name: cell.get("metrics") for name, cell in decisive(undisturbed).items()}
    assert metrics["toy-Match__all__r1__s1.json"] == metrics["toy-Match__none__r1__s1.json"]
    assert metrics["toy-Match__all__r1-4__s1.json"] != metrics["toy-Match__none__r1-4__s1.json"]


def test_two_jobs_give_the_cells_of_one(undisturbed: Path, tmp_path: Path):
    run_study(tmp_path, jobs=2)
    assert decisive(tmp_path) == decisive(undisturbed)


def test_a_second_call_does_only_what_is_missing(undisturbed: Path, tmp_path: Path):
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    missing = cells.path_of(tmp_path, "toy-Match__all__r1__s2")
    missing.unlink()
    before = {path.name: path.stat().st_mtime_ns for path in missing.parent.iterdir()}
    run_study(tmp_path)
    after = {path.name: path.stat().st_mtime_ns for path in missing.parent.iterdir()}
    assert after.keys() - before.keys() == {missing.name}
    assert {name: after[name] for name in before} == before
    assert decisive(tmp_path) == decisive(undisturbed)


@pytest.mark.timeout(900)  # six times two processes that import torch
def test_a_study_killed_five_times_gives_the_cells_of_an_undisturbed_one(undisturbed: Path, tmp_path: Path):
    file, out, rng = tmp_path / "small.toml", tmp_path / "out", random.Random(3)
    file.write_text(STUDY)
    command = [*COMMAND, "study", str(file), "--out", str(out), "--jobs", "1"]
    for kill in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                wait_for_checkpoints(out, process, more_than=kill)
                time.sleep(rng.uniform(0, 0.3))
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert decisive(out) == decisive(undisturbed)
    results = [cells.read(out, path.stem) for path in (out / "cells").iterdir()]
    assert sum(result.facts.get("interruptions", 0) for result in results if result) > 0


def test_a_kill_before_a_result_is_stored_loses_nothing(tmp_path: Path):
    plan = plan_of()
    cell = next(cell for cell in plan.cells if cell.arm == "all")
    first = training.run_cell(tmp_path, plan.origin, cell)
    assert first.failed is None and training.is_complete(RunRecord(tmp_path / "runs" / cell.name))
    again = training.run_cell(tmp_path, plan.origin, cell)  # what the next worker does
    assert (again.curve, again.metrics, again.evaluation) == (first.curve, first.metrics, first.evaluation)
    training.remove_finished_run(tmp_path, cell)
    assert not list((tmp_path / "runs").iterdir())


def wait_for_checkpoints(out: Path, process: subprocess.Popen[bytes], more_than: int) -> None:
    """Wait until a cell is within its training, and as many cells as kills so far are done."""
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None and time.monotonic() < deadline
        steps = [int(path.name[5:17]) for path in out.glob("runs/*/checkpoints/step_*")]
        if max(steps, default=0) > 32 and len(list(out.glob("cells/*.json"))) > more_than:
            return
        time.sleep(0.005)


@pytest.mark.timeout(900)
def test_a_stopped_study_says_how_to_continue_and_loses_nothing(undisturbed: Path, tmp_path: Path):
    file, out = tmp_path / "small.toml", tmp_path / "out"
    file.write_text(STUDY)
    command = [*COMMAND, "study", str(file), "--out", str(out), "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_for_checkpoints(out, process, more_than=0)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"Continue with: anybatch study {file}" in said
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert decisive(out) == decisive(undisturbed)


def test_a_worker_that_is_stopped_saves_first(tmp_path: Path):
    endless = ("total_env_steps = 192", "total_env_steps = 1_000_000_000")
    plan = opening.open_study(study(endless), Request(study="small"), tmp_path, **SILENT)
    with contextlib.closing(LocalWorker(tmp_path, threads=1)) as worker, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(worker.ask, **job_of(plan, plan.cells[1]))
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/metrics.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(3):  # the runner says so as long as it waits
            worker.stop()
        assert answer.result(timeout=60) == {"answer": "stopped"}
    (result,) = tmp_path.glob("runs/*/result.json")
    assert json.loads(result.read_text())["finished"] is False
    assert worker.ask(**job_of(plan, plan.cells[1])) == {"answer": "stopped"}


def test_a_worker_gives_a_cell_up_and_takes_the_next(tmp_path: Path):
    endless = ("total_env_steps = 192", "total_env_steps = 1_000_000_000")
    plan = opening.open_study(study(endless), Request(study="small"), tmp_path, **SILENT)
    cell, random_play = plan.cells[1], plan.cells[0]
    with contextlib.closing(LocalWorker(tmp_path, threads=1)) as worker, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(worker.ask, **job_of(plan, cell))
        deadline = time.monotonic() + 120
        while not runner.newest_env_steps(tmp_path, cell) and time.monotonic() < deadline:
            time.sleep(0.01)
        process = worker._process
        worker.give_up(random_play.name)  # not the one in progress
        time.sleep(0.3)
        assert not answer.done()
        worker.give_up(cell.name)
        worker.give_up(cell.name)
        assert answer.result(timeout=60) == {"answer": "stopped"}
        assert worker.ask(**job_of(plan, random_play))["answer"] == "done"
        assert worker._process is process
    assert not cells.path_of(tmp_path, cell.name).exists()


def test_the_curve_of_a_cell_in_progress_is_the_start_of_its_curve(tmp_path: Path):
    whole = train(toy_config(num_envs=4, num_steps=8, total_env_steps=640), tmp_path / "runs")
    plan = opening.make_plan(
        study(("total_env_steps = 192", "total_env_steps = 640")), Request(study="small")
    )
    cell = replace(plan.cells[1], name=whole.folder.name)
    metrics = whole.folder / "metrics.jsonl"
    rows = metrics.read_text().splitlines(keepends=True)
    curve = curves.return_curve([json.loads(row) for row in rows], 640, 100)
    for count in range(len(rows) + 1):
        metrics.write_text("".join(rows[:count]) + '{"env_steps": 1')  # and a row that is being written
        found = runner.curve_so_far(tmp_path, cell, 100)
        assert found == curve[: len(found)]
        reached = json.loads(rows[count - 1])["env_steps"] if count else 0
        assert runner.newest_env_steps(tmp_path, cell) == reached
        # A part that ends at 595.2 env steps is over at 595: the next row is beyond it.
        assert len(found) == sum(end <= reached for end, _ in curve[:-1])


def test_a_cell_that_fails_is_kept_with_its_reason_and_the_others_run(tmp_path: Path):
    broken = (
        'settings = { rescale = "none" }',
        'settings = { network = { factory = "no_such_module:make" } }',
    )
    changes = (broken, *ONE_SEED)
    results = run_study(tmp_path, *changes)
    (failed,) = [result for result in results if result.failed is not None]
    assert failed.cell.arm == "none" and "no_such_module" in str(failed.failed) and not failed.diverged
    assert len(results) == 3
    before = {path.stem: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    run_study(tmp_path, *changes)
    assert {path.stem: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()} == before
    run_study(tmp_path, *changes, retry_failed=True)
    after = {path.stem: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert {name for name in before if after[name] != before[name]} == {failed.cell.name}


def test_a_run_whose_loss_explodes_is_a_cell_that_diverged(tmp_path: Path):
    exploding = ('settings = { rescale = "none" }', "settings = { optimizer = { learning_rate = 1e30 } }")
    (failed,) = [result for result in run_study(tmp_path, exploding, *ONE_SEED) if result.failed is not None]
    assert failed.diverged and failed.cell.arm == "none"


@pytest.mark.parametrize(("env", "mean"), [("NaNReward-v0", "nan"), ("InfiniteReward-v0", "inf")])
def test_random_play_with_a_reward_that_is_not_finite_fails_like_any_cell(
    tmp_path: Path, env: str, mean: str
):
    plan = plan_of(envs=(f"broken_envs:{env}",), preset="cartpole-ppo-ewma", ranges=(0, 1))
    random_play = plan.cells[0]
    result = training.run_cell(tmp_path, plan.origin, random_play)
    assert result.failed == f"random play has a mean return of {mean}" and not result.diverged
    cells.write(tmp_path, result)
    assert runner.results(tmp_path, plan) == [result]


def test_a_process_that_dies_is_a_failed_cell_and_not_the_end(tmp_path: Path):
    plan = opening.open_study(study(*ONE_SEED), Request(study="small"), tmp_path, **SILENT)
    copy = tmp_path / "source" / "anybatch" / "lab" / "studies" / "training.py"
    before = "def run_cell(out: Path, origin: Origin, cell: Cell) -> Result:\n"
    dies = f'{before}    if cell.arm == "all":\n        __import__("os").abort()\n'
    assert before in copy.read_text()
    copy.write_text(copy.read_text().replace(before, dies))
    results = run_plan(tmp_path, plan)
    (failed,) = [result for result in results if result.failed]
    assert failed.cell.arm == "all" and "SIGABRT" in str(failed.failed) and len(results) == 3


def test_a_process_that_dies_after_storing_a_result_keeps_it(tmp_path: Path):
    plan = opening.open_study(study(*ONE_SEED), Request(study="small"), tmp_path, **SILENT)
    copy = tmp_path / "source" / "anybatch" / "lab" / "studies" / "worker.py"
    before = "        remove_finished_run(out, cell)\n"
    assert before in copy.read_text()
    copy.write_text(copy.read_text().replace(before, '        __import__("os").abort()\n'))
    results = run_plan(tmp_path, plan)
    assert len(results) == 3 and not [result for result in results if result.failed]


def test_a_cell_whose_process_somebody_stops_is_run_again(undisturbed: Path, tmp_path: Path):
    plan = opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    stop_processes(tmp_path, times=1)
    results = run_plan(tmp_path, plan)
    assert sum(result.facts.get("interruptions", 0) for result in results) == 1
    assert decisive(tmp_path) == decisive(undisturbed)


def test_a_cell_whose_process_is_stopped_again_and_again_fails(tmp_path: Path):
    plan = opening.open_study(study(*ONE_SEED), Request(study="small"), tmp_path, **SILENT)
    stop_processes(tmp_path, times=10)
    results = run_plan(tmp_path, plan)
    reason = "its process was stopped from outside, 5 times in a row"
    assert [result.failed for result in results] == [None, reason, reason]


def test_how_a_process_ended_is_said():
    assert "ended by SIGKILL" in ended(-9) and "code 3" in ended(3)


def test_cells_of_another_plan_are_refused(undisturbed: Path, tmp_path: Path):
    plan = opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    name = plan.cells[1].name
    data = json.loads(cells.path_of(undisturbed, name).read_text())
    cells.path_of(tmp_path, name).write_text(json.dumps(data | {"plan_hash": "0"}))
    with pytest.raises(UserError, match="belongs to another plan"):
        runner.results(tmp_path, plan)
    cells.path_of(tmp_path, name).write_text("{}")
    with pytest.raises(UserError, match="is not a cell of a study"):
        runner.results(tmp_path, plan)


def test_as_many_seeds_are_run_as_fit_the_budget_and_later_calls_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
):
    asked: list[str] = []

    def ask(_: LocalWorker, probe: dict[str, Any]) -> dict[str, Any]:
        asked.append(probe["name"])
        return {"answer": "done", "seconds": 0.1}

    monkeypatch.setattr(LocalWorker, "ask", ask)
    # A seed is four cells of 5 s and 192 env steps, and random play takes 5 s.
    one_seed = Request(study="small", budget_seconds=120)
    plan = opening.open_study(study(), one_seed, tmp_path, jobs=1)
    assert {cell.seed for cell in plan.cells} == {1} and len(plan.cells) == 5
    assert len(asked) == 2  # one for each batch
    assert logged[-2:] == [
        "A budget of 2 min: 1 of 1 parts of the grid fit, with 1 of 2 seeds, 5 cells in about 2 min, "
        "one after another.",
        "One seed cannot decide a verdict. Two of them take about 3 min.",
    ]
    monkeypatch.setattr(LocalWorker, "ask", lambda *_, **__: {"answer": "done", "seconds": 1e-9})
    assert opening.open_study(study(), one_seed, tmp_path, jobs=1) == plan
    by_path = replace(one_seed, study="./small.toml")
    assert opening.open_study(study(), by_path, tmp_path, jobs=1) == plan
    both = opening.open_study(study(), Request(study="small", budget_seconds=300), tmp_path / "other", jobs=2)
    assert len(both.cells) == 9


def test_a_budget_is_spent_on_three_seeds_before_it_is_spent_on_further_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        LocalWorker, "ask", lambda *_, **__: {"answer": "done", "seconds": 5 / 192}
    )  # 10 s a cell
    two_parts = (
        ('arms = ["all", "none"]', 'arms = ["all"]'),
        ("[[scales.cpu.tune]]", '[[scales.cpu.grid]]\narms = ["none"]\n\n[[scales.cpu.tune]]'),
        ("seeds = [1, 2]", "seeds = [1, 2, 3, 4]"),
    )
    # The first part has two cells for each seed, the second one more; random play takes 5 s.
    expected = {28: (1, 1), 78: (1, 3), 98: (2, 3), 128: (2, 4)}  # with some seconds to measure
    for budget, (parts, seeds) in expected.items():
        request = Request(study="small", budget_seconds=budget)
        plan = opening.open_study(study(*two_parts), request, tmp_path / str(budget), **SILENT)
        assert (plan.parts, plan.most_seeds) == (parts, seeds)
        dropped = [(entry.arm, entry.ratio, entry.cause) for entry in plan.left_out]
        assert dropped == ([("none", "1", "budget")] if parts == 1 else [])
        assert opening.open_study(study(*two_parts), request, tmp_path / str(budget), **SILENT) == plan


def test_measuring_is_part_of_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def ask(*_: Any, **__: Any) -> dict[str, Any]:
        time.sleep(1.5)  # for each of two batches
        return {"answer": "done", "seconds": 1e-9}

    monkeypatch.setattr(LocalWorker, "ask", ask)
    # Cells of 5 s each: five of them fit 27 s, but not what is left of it.
    with pytest.raises(ConfigError, match="takes about 25 s"):
        opening.open_study(study(), Request(study="small", budget_seconds=27), tmp_path, **SILENT)


def test_a_grid_that_does_not_fit_the_budget_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LocalWorker, "ask", lambda *_, **__: {"answer": "done", "seconds": 1.0})
    request = Request(study="small", budget_seconds=60)
    with pytest.raises(ConfigError) as refused:
        opening.open_study(study(), request, tmp_path / "out", **SILENT)
    assert "takes about 13 min with a single seed, its 5 cells one after another" in str(refused.value)
    assert "more than what measuring has left of the budget of 60 s" in str(refused.value)
    assert "--env" not in str(refused.value)  # there is only one
    assert not (tmp_path / "out").exists()


def test_a_budget_is_measured_on_cells_of_each_batch():
    plan = opening.make_plan(study(), Request(study="small"))
    rates = opening.measured(plan.cells, threads=1, named_envs=())
    assert len(rates) == 2 and all(0 < seconds < 1 for seconds in rates.values())


def test_a_measurement_whose_process_somebody_stops_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    freeze = opening.freeze

    def freeze_and_stop(aside: Path) -> dict[str, Any]:
        facts = freeze(aside)
        stop_processes(aside, times=1)
        return facts

    monkeypatch.setattr(opening, "freeze", freeze_and_stop)
    with pytest.raises(UserError, match="cannot be timed: its process was stopped from outside"):
        opening.measured(plan_of(*ONE_SEED).cells, threads=1, named_envs=())


def test_a_budget_counts_the_auxiliary_phases_that_a_measurement_leaves_out():
    """Per env step: half a second, of which 40 % is updates, and three more epochs like them."""
    seconds = {"time/rollout": 3.0, "time/update": 2.0}
    rows = [{"env_steps": 10 * number, **seconds} for number in (1, 2, 3)]
    config = {"phase": {"auxiliary_epochs": 6}, "update": {"epochs": 2}}
    assert training.timed(rows, training.auxiliary_share(config)) == pytest.approx(0.5 * (1 + 3 * 0.4))
    assert training.timed(rows, training.auxiliary_share({"update": {"epochs": 2}})) == 0.5


def test_iterations_that_only_reset_envs_count_with_their_seconds():
    rows = [{"env_steps": steps, "time/rollout": 1.0, "time/update": 1.0} for steps in (7, 7, 9, 11)]
    assert training.timed(rows, 0.0) == 6 / 4
    assert training.timed(rows[:1], 0.0) == 2 / 7  # the first one counts if there is no other


@pytest.mark.parametrize("greedy", [True, False])
def test_random_play_samples_its_actions_however_runs_are_evaluated(greedy: bool):
    played = training.untrained(toy_config(evaluation={"greedy": greedy, "episodes_per_env": 3})).evaluation
    assert (played.greedy, played.num_envs, played.episodes_per_env) == (False, 100, 1)


def test_random_play_has_the_largest_entropy_that_a_policy_of_discrete_actions_can_have():
    plan = plan_of()
    (random,) = [cell for cell in plan.cells if cell.arm == "random"]
    found = random_play(plan.origin, random)
    assert found.metrics == {"losses/entropy": (pytest.approx(math.log(5), abs=1e-4),)}
    assert largest_entropy(MultiDiscreteActions((2, 3))) == pytest.approx(math.log(6))
    box = BoxActions(np.full(2, -1, dtype=np.float32), np.full(2, 1, dtype=np.float32))
    assert largest_entropy(box) is None
