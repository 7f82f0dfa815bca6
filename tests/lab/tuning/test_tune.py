"""Whole tunings on a toy environment, with Optuna itself."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_tunings import SEED, TRIALS, decisive, recorded, request, run_trials, run_tuning, words

import anybatch
from anybatch import planning, presets
from anybatch.api import changed
from anybatch.cli import main
from anybatch.cli.reporting import made_of
from anybatch.errors import UserError
from anybatch.lab.studies import cells
from anybatch.lab.studies import recorded as recorded_files
from anybatch.lab.tuning import outcome as outcomes
from anybatch.lab.tuning.outcome import Outcome
from anybatch.lab.tuning.plan import RANDOM_TRIALS, TuningPlan
from anybatch.runs import folder as run_folder

COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tunings")


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Outcome:
    """A tuning that ran to its end with one job."""
    return run_tuning(request(folder), folder / "undisturbed")


def test_every_trial_comes_to_an_end_and_the_first_is_the_preset(undisturbed: Outcome):
    assert [trial.number for trial in undisturbed.trials] == list(range(TRIALS))
    assert {trial.state for trial in undisturbed.trials} <= {"finished", "pruned"}
    first, plan = undisturbed.trials[0], undisturbed.plan
    assert first.point == pytest.approx({one.name: one.center for one in plan.ranges}, rel=1e-3)
    # A quarter of the preset's 16 envs: the learning rate that the dial gives there.
    assert plan.num_envs == 4 and plan.train_at == 16
    assert first.point["learning-rate"] == pytest.approx(5e-4 * math.sqrt(1 / 4))
    finished = [trial for trial in undisturbed.trials if trial.is_finished]
    assert undisturbed.best.value == max(trial.value or 0 for trial in finished)


def test_a_trial_is_worth_the_mean_area_of_its_seeds(folder: Path, undisturbed: Outcome):
    for trial in undisturbed.trials:
        if trial.is_finished:
            result = cells.read(undisturbed.folder, f"trial-{trial.number:04}__s{SEED}")
            assert result is not None and trial.value == result.area
    (trial,) = run_trials(request(folder, seeds=(31, 32)), folder / "two seeds", only=1)
    areas = [cells.read(folder / "two seeds", f"trial-0000__s{seed}") for seed in (31, 32)]
    assert trial.value == pytest.approx(sum(result.area or 0 for result in areas if result) / 2)


def test_what_falls_behind_is_pruned_and_leaves_no_run(undisturbed: Outcome):
    pruned = [trial for trial in undisturbed.trials if trial.state == "pruned"]
    assert pruned
    for trial in pruned:
        newest = max(trial.reports)
        others = [
            one.reports[newest] for one in undisturbed.trials if one.is_finished and one.number < trial.number
        ]
        assert max(trial.reports.values()) < sorted(others)[len(others) // 2]
        assert trial.value == trial.reports[newest]
    assert not list(undisturbed.folder.glob("runs/*"))


@pytest.mark.timeout(900)  # a process that imports torch, and its worker
def test_a_tuning_that_is_killed_tries_the_same_numbers(folder: Path, undisturbed: Outcome):
    out = folder / "killed"
    command = [*COMMAND, *words(request(folder), out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for_trials(out, process, more_than=4)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    plan = TuningPlan.read(out)
    assert plan is not None
    cut = recorded(out, plan)
    assert 4 < len(cut) < TRIALS and cut[-1].state == "running"
    run_tuning(request(folder), out)
    assert recorded(out, plan) == list(undisturbed.trials)
    finished = {
        name: cell for name, cell in decisive(undisturbed.folder).items() if wanted(undisturbed, name)
    }
    assert {name: cell for name, cell in decisive(out).items() if name in finished} == finished
    assert (out / "tuned.toml").read_text() == undisturbed.preset_file.read_text()


def test_a_trial_whose_process_somebody_stops_is_run_again(folder: Path, undisturbed: Outcome):
    out = folder / "stopped"
    (trial,) = run_trials(request(folder), out, only=1, stops=1)
    assert trial == undisturbed.trials[0]
    (result,) = out.glob("cells/*.json")
    assert json.loads(result.read_text())["facts"]["interruptions"] == 1


def test_a_trial_whose_process_is_stopped_again_and_again_fails(folder: Path):
    with pytest.raises(UserError, match="its process was stopped from outside, 5 times in a row"):
        run_trials(request(folder), folder / "always stopped", only=1, stops=5)


def wanted(outcome: Outcome, name: str) -> bool:
    """Whether a cell is that of a finished trial or of the check: a pruned one may have come to its end."""
    number = int(name[6:10]) if name.startswith("trial-") else None
    return number is None or outcome.trials[number].is_finished


def wait_for_trials(out: Path, process: subprocess.Popen[bytes], more_than: int) -> None:
    """Wait until so many cells are done and another one is being trained."""
    deadline = time.monotonic() + 250
    while len(list(out.glob("cells/*.json"))) <= more_than or not list(out.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)


def test_two_jobs_begin_with_the_same_trials_and_lose_or_repeat_none(folder: Path, undisturbed: Outcome):
    both = run_trials(request(folder), folder / "two jobs", jobs=2)
    assert [trial.number for trial in both] == list(range(TRIALS))
    for one, other in zip(undisturbed.trials[:RANDOM_TRIALS], both[:RANDOM_TRIALS], strict=True):
        assert one.point == other.point
        if one.is_finished and other.is_finished:  # what is pruned depends on what has finished by then
            assert one.value == other.value
    assert not [trial for trial in both if trial.state in ("running", "failed")]


def test_the_check_has_seeds_of_its_own_and_compares_both_at_the_batch_wanted(undisturbed: Outcome):
    tried = {cell.seed for trial in undisturbed.trials for cell in trial.cells(undisturbed.plan)}
    checked = {result.cell.seed for result in undisturbed.results if result.cell.arm != "random"}
    assert tried == {SEED} and len(checked) == 2 and not tried & checked
    arms = {result.cell.arm: result for result in undisturbed.results}
    assert arms.keys() == {"random", "original", "tuned"}
    assert arms["original"].plan["batch"]["num_envs"] == arms["tuned"].plan["batch"]["num_envs"] == 16
    assert arms["original"].cell.total_env_steps == arms["tuned"].cell.total_env_steps == 1024
    assert undisturbed.verdict.state in ("holds", "fails", "undecided")
    (comparison,) = undisturbed.verdict.comparisons
    assert comparison.interval is not None and comparison.details["margin"] == undisturbed.plan.margin


def test_what_was_found_is_a_preset_that_means_the_same_at_another_batch(undisturbed: Outcome):
    found = presets.load(str(undisturbed.preset_file))
    best = undisturbed.plan.settings_of(undisturbed.best.point, "best")
    assert found.config.tuned_at is not None and found.config.tuned_at.num_envs == 4
    assert found.config.env == "toy:Match" and found.config.num_envs == 16
    assert found.config.optimizer.learning_rate == best["optimizer"]["learning_rate"]
    assert "trial" in found.source and "Final check" in found.source and found.description
    for num_envs in (1, 4, 16):  # above the tuned batch, minibatch and learning rate are kept
        config = changed(found.config, {"num_envs": num_envs})
        rate = planning.plan(config).hyperparameters.learning_rate
        assert rate == pytest.approx(best["optimizer"]["learning_rate"] * math.sqrt(min(1, num_envs / 4)))
    # Only what differs from the preset is stated.
    stated = found.files[-1].settings
    assert "num_steps" not in stated and "network" not in stated and "total_env_steps" not in stated


def test_what_was_found_can_be_trained_by_the_command_that_is_printed(undisturbed: Outcome, tmp_path: Path):
    asked = [*undisturbed.train_words()[1:], "--total-env-steps", "256", "--run-dir", str(tmp_path)]
    main(asked)
    (config,) = tmp_path.glob("*/config.json")
    recorded_config = json.loads(config.read_text())
    assert recorded_config["num_envs"] == 16 and recorded_config["tuned_at"]["num_envs"] == 4


def test_a_second_call_continues_and_runs_nothing_again(folder: Path, undisturbed: Outcome, tmp_path: Path):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed.folder, out)
    before = {path.name: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    asked = request(folder)
    search = {"learning-rate": (1e-6, 0.05), "clip": None, "minibatches": (1, 8)}
    again = anybatch.tune(
        asked.preset, trials=asked.trials, seeds=asked.seeds, check_seeds=2, search=search, out=out
    )
    assert {path.name: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == before
    assert list(again.trials) == list(undisturbed.trials) and again.verdict == undisturbed.verdict
    (out / "plan.json").unlink()
    (out / "cells" / "check-tuned__s22.json").unlink()
    again = run_tuning(asked, out)
    assert again.verdict == undisturbed.verdict


def test_a_report_needs_no_lock_and_leaves_the_folder_as_it_is(undisturbed: Outcome, tmp_path: Path):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed.folder, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    with run_folder.lock(out):
        assert list(outcomes.read(out).trials) == list(undisturbed.trials)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    for name, said in (("trials.journal", "it holds the trials"), ("plan.json", "plan of the final check")):
        (out / name).rename(tmp_path / name)
        with pytest.raises(UserError, match=f"{name} is missing: .*{said}"):
            outcomes.read(out)
        assert not (out / name).exists()
        (tmp_path / name).rename(out / name)


def test_the_report_shows_what_mattered(undisturbed: Outcome):
    assert undisturbed.importances.keys() == {one.name for one in undisturbed.plan.ranges}
    assert sum(undisturbed.importances.values()) == pytest.approx(1)
    report = undisturbed.folder / "report"
    page = (report / "index.html").read_text()
    for name in ("importance", "area-by-number"):
        assert f"figure-{name}" in page
        assert (report / "figures" / f"{name}.png").stat().st_size > 5_000
        assert (report / "figures" / f"{name}.svg").stat().st_size > 5_000
    rows = (report / "data" / "trials.csv").read_text().splitlines()
    assert len(rows) == TRIALS + 1 and rows[0].startswith("trial,state,area,learning-rate")
    assert made_of((undisturbed.folder,), None)[1].page == page  # `anybatch report` makes the same
    result = json.loads((undisturbed.folder / "result.json").read_text())
    assert result["best"]["number"] == undisturbed.best.number and result["verdict"]["state"]


def test_a_recorded_tuning_has_the_trials_with_their_runs_and_the_report_of_its_folder(
    undisturbed: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "tuning.jsonl.gz"
    main(["report", str(undisturbed.folder), "--record", str(path)])
    rows = recorded_files.read(path).rows
    trials = [row for row in rows if isinstance(row["seed"], list)]
    runs = {row["name"]: row for row in rows if row["arm"] == "trial" and row not in trials}
    assert [row["point"] for row in trials] == [dict(trial.point) for trial in undisturbed.trials]
    for trial, row in zip(undisturbed.trials, trials, strict=True):
        if trial.is_finished:
            run = runs[f"{trial.name}__s{SEED}"]
            assert run["area"] == row["area"] == trial.value and run["config"] == row["config"] | {
                "seed": SEED
            }
    _, of_folder = made_of((undisturbed.folder,), None)
    monkeypatch.setitem(sys.modules, "optuna", None)  # the file can be read without it
    _, of_file = made_of((path,), None)
    assert of_file == of_folder
