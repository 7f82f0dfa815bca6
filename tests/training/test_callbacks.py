"""A program's own callback after each iteration: what it sees, its metrics, its stop and its errors."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from toy_runs import differences, newest_state, toy_config

import anybatch
from anybatch import ConfigError, Iteration, UserError
from anybatch.config import EnvConfig
from anybatch.envs.custom import custom_env
from anybatch.envs.protocol import InfoEnv
from anybatch.runs import iteration
from anybatch.runs.record import RunRecord

CONFIG = toy_config(total_env_steps=84, record={"checkpoint_every_iterations": 1})


def test_a_callback_sees_every_iteration_and_its_policy(tmp_path: Path):
    seen: list[Iteration] = []
    run = anybatch.train(CONFIG, run_dir=tmp_path, on_iteration=seen.append)
    rows = RunRecord(run.folder).rows
    assert [view.env_steps for view in seen] == [row["env_steps"] for row in rows]
    assert [view.iteration for view in seen] == [1, 2, 3, 4, 5]
    for view, row in zip(seen, rows, strict=True):
        assert view.metrics["losses/entropy"] == row["losses/entropy"]
    assert isinstance(seen[-1].policy, torch.nn.Module)
    assert all(row["time/callback"] >= 0 for row in rows)


def test_its_own_metrics_are_recorded_and_do_not_change_the_run(tmp_path: Path):
    plain = anybatch.train(CONFIG, run_dir=tmp_path / "plain")

    def log(view: Iteration) -> None:
        view.log({"twice": torch.tensor(2.0) * view.iteration, "steps": view.env_steps})

    run = anybatch.train(CONFIG, run_dir=tmp_path / "logged", on_iteration=log)
    assert run.metric("custom/twice").values.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert run.metric("custom/steps").values.tolist() == run.metric("custom/steps").env_steps.tolist()
    assert not differences(newest_state(plain.folder), newest_state(run.folder))


def test_a_stop_saves_and_a_resume_continues_to_the_same_end(tmp_path: Path):
    whole = anybatch.train(CONFIG, run_dir=tmp_path / "whole")

    def stop_after_two(view: Iteration) -> None:
        if view.iteration == 2:
            view.stop()

    stopped = anybatch.train(CONFIG, run_dir=tmp_path / "stopped", on_iteration=stop_after_two)
    assert not stopped.finished and len(RunRecord(stopped.folder).rows) == 2
    iterations: list[int] = []
    resumed = anybatch.resume(stopped.folder, on_iteration=lambda view: iterations.append(view.iteration))
    assert resumed.finished and iterations == [3, 4, 5]
    assert not differences(newest_state(whole.folder), newest_state(resumed.folder))


def test_an_error_of_a_callback_keeps_its_traceback_and_loses_nothing(tmp_path: Path):
    rare = toy_config(total_env_steps=84)  # no checkpoint is due before the end

    def fail_at_two(view: Iteration) -> None:
        if view.iteration == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as failure:
        anybatch.train(rare, run_dir=tmp_path / "failed", on_iteration=fail_at_two)
    (note,) = [note for note in failure.value.__notes__ if "ended the run" in note]
    assert "in on_iteration" in note and "anybatch resume" in note
    (folder,) = (tmp_path / "failed").iterdir()
    rows = RunRecord(folder).rows
    assert len(rows) == 2 and f"saved at {rows[-1]['env_steps']} env steps" in note
    resumed = anybatch.resume(folder)
    whole = anybatch.train(rare, run_dir=tmp_path / "whole")
    assert not differences(newest_state(whole.folder), newest_state(resumed.folder))
    assert [row["env_steps"] for row in RunRecord(folder).rows] == list(whole.returns().env_steps)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "12", None, [1.0, 2.0], torch.ones(2)])
def test_a_metric_that_is_no_finite_number_is_one_sentence(value: Any, tmp_path: Path):
    with pytest.raises(ConfigError, match="the metric speed in on_iteration must be a finite number"):
        anybatch.train(CONFIG, run_dir=tmp_path, on_iteration=lambda view: view.log({"speed": value}))


def test_a_quiet_run_logs_and_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, logger="anybatch"):
        anybatch.train(env="toy:Match", run_dir=tmp_path, num_envs=3, total_env_steps=100)
    assert capsys.readouterr() == ("", "")
    assert any("preset" in record.message and record.name.startswith("anybatch") for record in caplog.records)


def test_the_metrics_of_an_iteration_are_read_only_and_logged_tensors_lose_their_gradient():
    seen = iteration.of_run(SimpleNamespace(env_steps=1, iterations=1, network=None), {"a": 1.0}, print)
    with pytest.raises(TypeError):
        seen.metrics["a"] = 2.0  # type: ignore[index]
    torch.set_warn_always(True)  # otherwise a warning comes once per process, perhaps in another test
    try:
        seen.log({"loss": torch.ones((), requires_grad=True)})
    finally:
        torch.set_warn_always(False)
    assert seen.custom == {"custom/loss": 1.0}


class Speedometer(gymnasium.Env[Any, Any]):
    """Tells a number in its infos: 1 in the first step of an episode, 2 in the second, and so on."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.steps = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += int(action in (0, 1))
        infos = {"speed": self.steps} if self.steps != 3 else {}
        return np.zeros(1, dtype=np.float32), 0.0, self.steps == 4, False, infos


def test_numbers_in_infos_are_averaged_into_the_log(tmp_path: Path):
    config = toy_config(
        num_envs=3, num_steps=5, total_env_steps=24, env_config={"log_infos": ["speed", "wind"]}
    )
    run = anybatch.train(config, env=Speedometer, run_dir=tmp_path)
    # Four steps and the reset of an ended episode; a step that does not tell its speed does not count.
    assert run.metric("custom/speed").values.tolist() == pytest.approx([(1 + 2 + 4) / 3] * 2)
    assert not any("custom/wind" in row for row in RunRecord(run.folder).rows)


def test_an_env_that_does_not_tell_a_number_does_not_count():
    made: list[Speedometer] = []

    def make() -> Speedometer:
        made.append(Speedometer())
        return made[-1]

    env = custom_env(make).make(EnvConfig(log_infos=("speed",)), [1, 2])
    env.reset()
    made[1].steps = 2  # its next step is the third, which tells nothing
    env.step(np.zeros(2, dtype=np.int64))
    assert isinstance(env, InfoEnv) and env.take_info_means() == {"speed": 1.0}
    assert env.take_info_means() == {}


def test_numbers_in_infos_need_gymnasium_and_no_actors(tmp_path: Path):
    infos = {"env_config": {"log_infos": ["speed"]}}
    with pytest.raises(UserError, match=r"log-infos = speed needs a Gymnasium environment; toy:Match"):
        anybatch.train(toy_config(**infos), run_dir=tmp_path)
    with pytest.raises(UserError, match=r"log-infos needs .* actors"):
        toy_config(**infos, num_envs=2, actors="local:2")
