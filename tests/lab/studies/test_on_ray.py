"""Studies on Ray: the cells of a local study to the bit, whatever is lost on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import ray
from process_trees import is_running, processes_below
from small_studies import changed_text, run_plan, run_study, study

from anybatch.cli import main
from anybatch.lab.studies import opening, runner
from anybatch.lab.studies.plan import Request
from anybatch.lab.studies.ray_executor import RayExecutor, RayWorker

COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
ONE_SEED = (("seeds = [1, 2]", "seeds = [1]"), ('ratios = ["1", "1/4"]', 'ratios = ["1"]'))
"""Changes that leave two cells and random play."""
LONGER = ("total_env_steps = 192", "total_env_steps = 1_600")
ENDLESS = ("total_env_steps = 192", "total_env_steps = 1_000_000_000")


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    executor = RayExecutor(None, jobs=2, threads=1)
    yield executor
    executor.close()


def decisive(out: Path) -> dict[str, Any]:
    """All cells of a study without the facts, which tell of time and place."""
    found = {path.name: json.loads(path.read_text()) for path in sorted((out / "cells").iterdir())}
    return {name: {key: cell[key] for key in cell if key != "facts"} for name, cell in found.items()}


def test_cells_on_ray_are_those_of_one_local_job_and_a_second_call_does_what_is_missing(
    executor: RayExecutor, tmp_path: Path
):
    run_study(tmp_path / "local", *ONE_SEED)
    run_study(tmp_path / "ray", *ONE_SEED, executor=executor)
    expected = decisive(tmp_path / "local")
    assert len(expected) == 3 and decisive(tmp_path / "ray") == expected
    missing = tmp_path / "ray" / "cells" / "toy-Match__all__r1__s1.json"
    missing.unlink()
    before = {path: path.stat().st_mtime_ns for path in missing.parent.iterdir()}
    run_study(tmp_path / "ray", *ONE_SEED, executor=executor)
    assert decisive(tmp_path / "ray") == expected
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_cell_whose_ray_worker_is_killed_is_run_again_with_the_same_result(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "out"
    run_study(undisturbed, *ONE_SEED, LONGER)
    plan = opening.open_study(study(*ONE_SEED, LONGER), Request(study="small"), out, jobs=1)
    asked: list[tuple[RayWorker, str]] = []
    ask = RayWorker.ask

    def record_and_ask(worker: RayWorker, **job: Any) -> dict[str, Any]:
        asked.append((worker, job["cell"]["name"]))
        return ask(worker, **job)

    def kill_once() -> None:
        by_name = {cell.name: cell for cell in plan.cells}
        while True:
            for worker, name in list(asked):
                if runner.newest_env_steps(out, by_name[name]) > 0:
                    os.kill(worker.process_id(), signal.SIGKILL)
                    return
            time.sleep(0.005)

    monkeypatch.setattr(RayWorker, "ask", record_and_ask)
    threading.Thread(target=kill_once, daemon=True).start()
    results = run_plan(out, plan, executor)
    names = [name for _, name in asked]
    assert len(names) == 4 and set(names) == {cell.name for cell in plan.cells}  # one of them twice
    assert sum(result.facts.get("interruptions", 0) for result in results) == 1
    assert decisive(out) == decisive(undisturbed)


def test_cells_on_ray_run_from_the_copy_and_fail_with_their_reason(executor: RayExecutor, tmp_path: Path):
    plan = opening.open_study(study(*ONE_SEED), Request(study="small"), tmp_path, jobs=1)
    copy = tmp_path / "source" / "anybatch" / "lab" / "studies" / "training.py"
    before = "def run_cell(out: Path, origin: Origin, cell: Cell) -> Result:\n"
    assert before in copy.read_text()
    dies = f'{before}    if cell.arm == "all":\n        __import__("os").abort()\n'
    copy.write_text(copy.read_text().replace(before, dies))
    results = run_plan(tmp_path, plan, executor)
    (failed,) = [result for result in results if result.failed]
    assert failed.cell.arm == "all" and "SIGABRT" in str(failed.failed) and len(results) == 3


def test_a_ray_worker_gives_a_cell_up_and_takes_the_next(executor: RayExecutor, tmp_path: Path):
    plan = opening.open_study(study(*ONE_SEED, ENDLESS), Request(study="small"), tmp_path, jobs=1)
    random_play, cell, *_ = plan.cells
    worker, origin = executor.worker(tmp_path, threads=1, named_envs=()), asdict(plan.origin)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(worker.ask, cell=cell.to_json(), origin=origin)
        wait_until(lambda: runner.newest_env_steps(tmp_path, cell) > 0)
        worker.give_up(cell.name)
        assert answer.result(timeout=120) == {"answer": "stopped"}
    assert worker.ask(cell=random_play.to_json(), origin=origin)["answer"] == "done"
    worker.close()


def test_a_folder_that_a_machine_of_ray_does_not_have_is_an_error(executor: RayExecutor, tmp_path: Path):
    worker = executor.worker(tmp_path / "elsewhere", threads=1, named_envs=())
    answer = worker.ask(cell={})
    worker.close()
    assert answer["answer"] == "error" and "needs a folder that all machines" in answer["reason"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_study_on_ray_that_is_stopped_or_killed_leaves_no_process(number: signal.Signals, tmp_path: Path):
    file, out = tmp_path / "small.toml", tmp_path / "out"
    file.write_text(changed_text(ONE_SEED[0], ENDLESS))
    command = [*COMMAND, "study", str(file), "--out", str(out), "--jobs", "1", "--on", "ray"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: process.poll() is not None or any(out.glob("runs/*/checkpoints/step_*")))
        assert process.poll() is None
        started = processes_below(process.pid)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert len(started) > 3  # the runner, Ray's own, the actor and its cell
    wait_until(lambda: not any(map(is_running, started)))
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number and f"Continue with: anybatch study {file}" in said
        (result,) = out.glob("runs/*/result.json")
        assert json.loads(result.read_text())["finished"] is False  # saved at the end of an iteration


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--on=ray", "--ray-address=127.0.0.1:1"], "at ray-address = 127.0.0.1:1: [Errno 111] Connection"),
        (["--on=ray", "--ray-address=ray://10.0.0.1:10001"], "it must be auto or host:port"),
        (["--ray-address=auto"], "--ray-address auto is for --on ray, but --on is local"),
        (["--on=slurm"], "--on slurm: must be one of local, ray"),
    ],
)
def test_a_wrong_place_for_cells_is_one_sentence(
    flags: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if ray.is_initialized():  # by the tests above
        ray.shutdown()
    assert_refused(flags, reason, tmp_path, capsys)


def test_a_ray_that_does_not_start_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def init(**_: Any) -> None:
        raise Exception("The current node timed out during startup.")  # after 30 seconds

    monkeypatch.setattr(ray, "init", init)
    said = f"no Ray of version {ray.__version__} could be used on this machine: The current node timed out"
    assert_refused(["--on=ray"], said, tmp_path, capsys)


def test_ray_that_is_not_installed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delitem(sys.modules, "anybatch.lab.studies.ray_executor")
    monkeypatch.setitem(sys.modules, "ray", None)
    said = "--on ray needs the package ray (import of ray halted; None in sys.modules); pip install"
    assert_refused(["--on=ray"], said, tmp_path, capsys)


def assert_refused(flags: list[str], reason: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["study", "invariance", "--scale=smoke", *flags, f"--out={folder / 'out'}"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert reason in said and len(said.splitlines()) == 1
    assert not list(folder.iterdir())
