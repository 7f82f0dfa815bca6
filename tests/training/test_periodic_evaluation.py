"""Evaluations during training, the best checkpoint, and the choice of a checkpoint."""

import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from phase_runs import phase_config
from toy_runs import changed, cut_back, differences, newest_state, resume, toy_config, toy_pqn_config, train

from anybatch import envs, evaluating, training
from anybatch.acting import evaluation
from anybatch.cli import main
from anybatch.config import AnyConfig, EnvConfig
from anybatch.errors import CheckpointError, ConfigError, UserError
from anybatch.runs import log
from anybatch.runs import run as runs_run
from anybatch.runs.best import BestCheckpoint
from anybatch.runs.display import QUIET
from anybatch.runs.record import RunRecord
from anybatch.runs.run import Run
from anybatch.storage.checkpoint import Checkpoints
from anybatch.user_objects import UserObjects

OFTEN: dict[str, Any] = {"every_env_steps": 50, "num_envs": 2, "episodes_per_env": 2}
UNLIKE = ("wall_seconds", "charts/SPS", "time/", "evaluation/")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith(UNLIKE)}
        for row in RunRecord(folder).rows
    ]


def evaluated(folder: Path) -> dict[int, float]:
    """The mean return of each evaluation during training, by env steps."""
    found = RunRecord(folder).rows
    return {row["env_steps"]: row["evaluation/return"] for row in found if "evaluation/return" in row}


class Clock:
    """The time that a run sees."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


class Evaluated(NamedTuple):
    """A train state, as far as recording it goes."""

    env_steps: int
    iterations: int = 1

    def snapshot(self) -> None:
        return None


def test_the_speed_of_training_does_not_count_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(runs_run, "time", clock)

    def evaluate(*_: object) -> dict[str, float]:
        clock.now += 1000
        return {"evaluation/return": 1.0}

    with Run.silent(tmp_path) as run:
        run.evaluate = evaluate
        run.begin(Evaluated(0))
        for env_steps in (50, 100, 150):
            clock.now += 5
            run.record(Evaluated(env_steps), [], {})
    assert [row["charts/SPS"] for row in log.read(tmp_path)] == [10, 10, 10]


def test_the_speed_of_a_resumed_run_is_that_of_its_own_env_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    monkeypatch.setattr(runs_run, "time", clock)
    with Run.silent(tmp_path) as run:
        run.begin(Evaluated(1_000_000))
        clock.now += 5
        run.record(Evaluated(1_000_050), [], {})
    assert [row["charts/SPS"] for row in log.read(tmp_path)] == [10]


def with_evaluations(config: AnyConfig) -> AnyConfig:
    return changed(config, evaluation=OFTEN)


@pytest.mark.parametrize(
    "config",
    [
        toy_config(total_env_steps=200, normalize={"observations": "step", "rewards": "step"}),
        toy_config(total_env_steps=200, env="gym:CartPole-v1"),
        phase_config(total_env_steps=200),
        phase_config(total_env_steps=200, phase={"save_data": False}),
        toy_pqn_config(total_env_steps=200),
    ],
    ids=["ppo", "ppo-gymnasium", "ppg", "ppg-unsaved", "pqn"],
)
def test_a_run_with_evaluations_is_the_run_without(config: AnyConfig, tmp_path: Path):
    plain = train(config, tmp_path)
    watched = train(with_evaluations(config), tmp_path)
    assert rows(watched.folder) == rows(plain.folder)
    assert not differences(newest_state(plain.folder), newest_state(watched.folder))
    assert not evaluated(plain.folder) and plain.best is None
    steps = list(evaluated(watched.folder))
    # At the first iteration beyond each multiple, and at the end.
    assert [count // 50 for count in steps] == [1, 2, 3, 4] and steps[-1] == watched.env_steps
    assert watched.evaluation is not None and watched.best is not None
    assert watched.best.score == max(evaluated(watched.folder).values())


def test_the_best_checkpoint_is_the_policy_that_was_evaluated(tmp_path: Path):
    """Also of PQN, whose evaluation explores as at the end of a run whatever the training does."""
    for config in (toy_config(total_env_steps=150), toy_pqn_config(total_env_steps=150)):
        config = changed(
            with_evaluations(config), record={"checkpoint_every_iterations": 1, "keep_checkpoints": 99}
        )
        outcome = train(config, tmp_path)
        record = RunRecord(outcome.folder)
        for env_steps, mean_return in evaluated(outcome.folder).items():
            again = evaluating.evaluate_run(record, config, output=QUIET, checkpoint=str(env_steps))
            assert (again.evaluation.mean_return, again.env_steps) == (mean_return, env_steps)
        best = evaluating.evaluate_run(record, config, output=QUIET, checkpoint="best")
        assert best.evaluation.mean_return == max(evaluated(outcome.folder).values())
        assert record.result is not None
        assert record.result["best"] == {
            "mean_return": best.evaluation.mean_return,
            "env_steps": best.env_steps,
        }


def test_the_last_evaluation_of_the_training_is_that_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    played: list[object] = []
    original = evaluation.evaluate

    def counted(*arguments: Any, **settings: Any) -> Any:
        played.append(original(*arguments, **settings))
        return played[-1]

    monkeypatch.setattr(evaluation, "evaluate", counted)
    outcome = train(with_evaluations(toy_config()), tmp_path)
    assert len(played) == len(evaluated(outcome.folder)) == 2 and outcome.evaluation is played[-1]


def test_a_resume_evaluates_when_the_whole_run_does(tmp_path: Path):
    config = changed(
        with_evaluations(toy_config(total_env_steps=300)),
        record={"checkpoint_every_iterations": 1, "keep_checkpoints": 99},
    )
    whole = train(config, tmp_path)
    done = [row["env_steps"] for row in RunRecord(whole.folder).rows]
    first = next(iter(evaluated(whole.folder)))
    for env_steps in (done[0], first, done[done.index(first) + 1]):
        folder = cut_back(whole.folder, tmp_path / f"cut-{env_steps}", env_steps)
        shutil.rmtree(folder / "checkpoints" / "best")  # it would be from later
        resumed = resume(folder, config)
        assert evaluated(folder) == evaluated(whole.folder)
        assert resumed.evaluation == whole.evaluation


def test_a_stop_within_an_evaluation_ends_it_and_a_resume_makes_up_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = with_evaluations(toy_config(total_env_steps=150))
    whole = train(config, tmp_path / "whole")
    original, calls = evaluation.Slots.update, [0]

    def signalled(slots: evaluation.Slots, step: Any) -> None:
        original(slots, step)
        calls[0] += 1
        if calls[0] == 3:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(evaluation.Slots, "update", signalled)
    stopped = train(config, tmp_path / "stopped")
    assert stopped.stopped_by == signal.SIGTERM and not stopped.finished
    first, *later = evaluated(whole.folder)
    assert stopped.env_steps == stopped.saved_env_steps == first and not evaluated(stopped.folder)
    resumed = resume(stopped.folder, config)
    assert resumed.finished and not differences(newest_state(whole.folder), newest_state(stopped.folder))
    made_up, *others = evaluated(stopped.folder)
    assert first < made_up < later[0] and others == later


def test_an_evaluation_that_a_resume_makes_up_for_at_the_end_can_be_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = with_evaluations(toy_config(total_env_steps=50))
    with monkeypatch.context() as patch:
        patch.setattr(evaluation.Slots, "update", lambda *_: signal.raise_signal(signal.SIGTERM))
        stopped = train(config, tmp_path)
    assert stopped.finished and stopped.stopped_by == signal.SIGTERM
    assert BestCheckpoint(stopped.folder).env_steps is None
    resumed = resume(stopped.folder, config)
    assert resumed.evaluation is not None and resumed.best is not None
    assert (resumed.best.score, resumed.best.env_steps) == (resumed.evaluation.mean_return, stopped.env_steps)


def test_only_a_better_one_replaces_the_best(tmp_path: Path):
    best = BestCheckpoint(tmp_path)
    assert best.env_steps is None and best.load() is None
    for score, env_steps in ((1.0, 10), (0.5, 20), (1.0, 30), (float("nan"), 40), (float("inf"), 50)):
        best.offer(score, env_steps, {"network": torch.tensor([score])})
    assert (best.score, best.env_steps) == (1.0, 10)
    again = BestCheckpoint(tmp_path)  # a resume, from before
    again.offer(2.0, 5, {"network": torch.tensor([2.0])})
    again.offer(1.5, 60, {"network": torch.tensor([1.5])})
    assert [path.name for path in (tmp_path / "checkpoints" / "best").iterdir()] == ["step_000000000005"]
    loaded = BestCheckpoint(tmp_path).load()
    assert loaded is not None and loaded.env_steps == 5 and loaded.tree["shared"]["network"] == 2.0


def test_a_kill_between_two_best_ones_leaves_the_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    best = BestCheckpoint(tmp_path)
    best.offer(1.0, 60, {})
    monkeypatch.setattr(Checkpoints, "remove_all_but", lambda *_: None)
    best.offer(2.0, 30, {})  # of a resume from an earlier checkpoint
    there = BestCheckpoint(tmp_path)
    loaded = there.load()
    assert loaded is not None and loaded.env_steps == there.env_steps == 30


def test_the_best_one_is_none_of_the_kept_and_leaves_their_data(tmp_path: Path):
    config = changed(
        with_evaluations(phase_config(total_env_steps=200)),
        record={"keep_checkpoints": 2, "checkpoint_every_iterations": 1},
    )
    folder = train(config, tmp_path).folder
    kept = Checkpoints(folder, keep=2).newest_first()
    assert len(kept) == 2 and BestCheckpoint(folder).env_steps is not None
    assert Checkpoints(folder, keep=2).load_latest() is not None


def test_an_env_object_cannot_be_evaluated_while_it_trains(tmp_path: Path):
    own = UserObjects.of(env=envs.make("toy:Match", EnvConfig(), seeds=range(3)))
    config = own.named_in(toy_config(evaluation=OFTEN))
    with pytest.raises(ConfigError, match=r"evaluation.every-env-steps = 50 .* is one object"):
        training.train(config, preset="test", base=tmp_path, output=QUIET, custom=own)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_is_absent_is_named_with_those_that_are_there(tmp_path: Path):
    folder = train(with_evaluations(toy_config()), tmp_path).folder
    record = RunRecord(folder)
    best, last = BestCheckpoint(folder).env_steps, RunRecord(folder).rows[-1]["env_steps"]
    listed = f"there are checkpoints at 0, {last} env steps and the best one, at {best}$"
    with pytest.raises(CheckpointError, match=f"at 77 env steps; {listed}"):
        record.load_checkpoint("77")
    with pytest.raises(UserError, match="checkpoint = wurst: must be newest, best or a number"):
        record.load_checkpoint("wurst")
    assert record.load_checkpoint("0").env_steps == 0
    assert record.load_checkpoint().env_steps == last
    plain = train(toy_config(), tmp_path).folder
    with pytest.raises(
        CheckpointError, match=r"a run keeps one only if evaluation.every-env-steps is above 0"
    ):
        RunRecord(plain).load_checkpoint("best")


def test_the_command_line_chooses_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = changed(with_evaluations(toy_config()), env="gym:CartPole-v1")
    folder = train(config, tmp_path).folder
    capsys.readouterr()
    main(["evaluate", str(folder), "--checkpoint", "0"])
    assert "0 env steps" in capsys.readouterr().out
    main(["watch", str(folder), "--checkpoint=0", "--steps=3", f"--out={tmp_path / 'video.gif'}"])
    assert "after 0 env steps" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(folder), "--checkpoint", "1"])
    assert ended.value.code == 2 and "no checkpoint at 1 env steps" in capsys.readouterr().err
