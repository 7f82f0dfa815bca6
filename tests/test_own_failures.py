"""Errors of the user's own code: the traceback stays, and a note says whose it is and how to continue."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import anybatch
from anybatch.config import EvaluationConfig, PPOConfig
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.runs.record import RunRecord
from anybatch.session.evaluating import evaluation_env
from anybatch.session.own import OwnParts

SMALL: dict[str, Any] = {
    "num_envs": 3,
    "num_steps": 8,
    "total_env_steps": 96,
    "update": {"minibatches_per_epoch": 2, "noise_scale_every": 0},
    "evaluation": {"num_envs": 2},
    "record": {"tensorboard": False, "checkpoint_every_iterations": 1},
    "compile": "off",
}


class Fragile(gymnasium.Env[Any, Any]):
    """Breaks where it is told to: `made` counts instances, `steps` those of each."""

    observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)
    made = closed = 0
    breaks: tuple[str, int, int] = ("", 0, 0)
    """The method, the number of the instance and its step."""
    error: type[Exception] = ZeroDivisionError

    def __init__(self) -> None:
        self.number, self.steps = Fragile.made, 0
        Fragile.made += 1
        self._break_in("__init__")

    def _break_in(self, method: str) -> None:
        if self.breaks == (method, self.number, self.steps):
            raise self.error("the door is locked")

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self._break_in("reset")
        return np.zeros(2, dtype=np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self._break_in("step")
        return np.zeros(2, dtype=np.float32), 1.0, self.steps % 5 == 0, False, {}

    def close(self) -> None:
        Fragile.closed += 1


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch):
    for name in ("made", "closed", "breaks", "error"):
        monkeypatch.setattr(Fragile, name, getattr(Fragile, name))


def notes_of(tmp_path: Path, kind: type[Exception], **changes: Any) -> list[str]:
    with pytest.raises(kind) as failure:
        anybatch.train("cartpole-ppo", run_dir=tmp_path, **SMALL | changes)
    return failure.value.__notes__


def test_a_step_that_fails_names_its_env_and_the_checkpoint(tmp_path: Path):
    Fragile.breaks = ("step", 1, 19)  # the third iteration has steps 17 to 24
    whose, how = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert whose == "This error was raised by environment 1 of object:Fragile, in its step."
    folder = RunRecord(tmp_path).folder
    saved = RunRecord(tmp_path).load_checkpoint(print).env_steps
    assert saved > 0
    assert how == (
        f"This error ended the run at {saved} env steps, while it collected. "
        f"Continue with: anybatch.resume({str(folder)!r}, env=…) (saved at {saved} env steps)."
    )
    Fragile.breaks = ("", 0, 0)
    assert anybatch.resume(folder, env=Fragile).finished


def test_a_reset_within_a_step_is_named_as_such(tmp_path: Path):
    Fragile.breaks = ("reset", 2, 5)
    whose, _ = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert whose == "This error was raised by environment 2 of object:Fragile, in its reset."


@pytest.mark.parametrize("method", ["__init__", "reset"])
def test_an_env_that_fails_before_the_run_is_named_too(method: str, tmp_path: Path):
    Fragile.breaks = (method, 1, 0)
    (note,) = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert (
        note
        == {
            "__init__": "This error was raised while object:Fragile was being made.",
            "reset": "This error was raised by environment 1 of object:Fragile, in its reset.",
        }[method]
    )
    assert not list(tmp_path.iterdir())


def test_an_evaluation_that_fails_says_that_the_training_is_complete(tmp_path: Path):
    Fragile.breaks = ("step", 4, 2)  # three envs are trained on
    whose, how = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert whose == "This error was raised by environment 1 of object:Fragile, in its step."
    folder = RunRecord(tmp_path).folder
    assert how == (
        "This error ended the evaluation after the training, which is complete and saved. "
        f"Evaluate again with: anybatch.resume({str(folder)!r}, env=…)"
    )
    Fragile.breaks = ("", 0, 0)
    assert anybatch.resume(folder, env=Fragile).result["evaluation"] is not None


@pytest.mark.parametrize("role", ["training", "evaluation"])
def test_environments_are_numbered_over_all_ranks(role: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collectives, "own_shard", lambda total: Shard.part(total, index=1, parts=2))
    own = OwnParts.of(env=Fragile)
    config = own.named_in(PPOConfig(env="toy:Match", num_envs=6, evaluation=EvaluationConfig(num_envs=6)))
    env = own.training_env(config, env_steps=0) if role == "training" else evaluation_env(config, own)
    Fragile.breaks = ("step", 1, 1)
    env.reset()
    with pytest.raises(ZeroDivisionError) as failure:
        env.step(np.zeros(3, dtype=np.int64))
    assert failure.value.__notes__ == [
        "This error was raised by environment 4 of object:Fragile, in its step."
    ]


def test_environments_are_closed_when_a_run_fails(tmp_path: Path):
    Fragile.breaks = ("step", 1, 19)
    notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert Fragile.closed == Fragile.made


def test_environments_are_closed_when_a_run_cannot_start(tmp_path: Path):
    with pytest.raises(IndexError, match="no such module"):
        anybatch.train("cartpole-ppo", run_dir=tmp_path, env=Fragile, network=refusing, **SMALL)
    assert Fragile.closed == Fragile.made > 0


def refusing(_: object) -> nn.Module:
    raise IndexError("no such module")


class Fading(nn.Module):
    """An encoder that fails in its first call with a gradient, or in a later one without."""

    def __init__(self, *, learning: bool) -> None:
        super().__init__()
        self.layer, self.learning, self.calls = nn.Linear(5, 4), learning, 0

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 3 and torch.is_grad_enabled() == self.learning:
            raise IndexError("no such feature")
        return self.layer(obs)


@pytest.mark.parametrize(("learning", "stage"), [(True, "while it learned"), (False, "while it collected")])
def test_a_network_that_fails_says_what_the_run_was_doing(learning: bool, stage: str, tmp_path: Path):
    network = Fading(learning=learning)
    (note,) = notes_of(tmp_path, IndexError, env="toy:Match", network=lambda _: network)
    assert re.fullmatch(
        rf"This error ended the run at 0 env steps, {stage}\. Continue with: "
        r"anybatch\.resume\('.*', network=…\) \(saved at 0 env steps\)\.",
        note,
    )


def test_errors_with_a_sentence_of_their_own_get_no_note(tmp_path: Path):
    Fragile.breaks, Fragile.error = ("step", 1, 3), anybatch.EnvError
    with pytest.raises(anybatch.EnvError) as failure:
        anybatch.train("cartpole-ppo", run_dir=tmp_path, env=Fragile, **SMALL)
    assert not hasattr(failure.value, "__notes__")


@pytest.mark.parametrize("error", ["ZeroDivisionError('oops')", "FileNotFoundError(2, 'oops', 'level.txt')"])
def test_the_command_line_shows_the_traceback_and_then_the_notes(error: str, tmp_path: Path):
    (tmp_path / "my_envs.py").write_text(
        textwrap.dedent(
            f"""
            import gymnasium
            from gymnasium.envs.classic_control import CartPoleEnv

            class Mine(CartPoleEnv):
                def step(self, action):
                    self.done = getattr(self, "done", 0) + 1
                    if self.done == 20:
                        raise {error}
                    return super().step(action)

            gymnasium.register("Mine-v0", Mine)
            """
        )
    )
    words = ["train", "--env=my_envs:Mine-v0", "--num-envs=2", "--num-steps=16", "--name=mine"]
    done = subprocess.run(
        [sys.executable, "-m", "anybatch", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *_, raised, whose, how = done.stderr.strip().splitlines()
    assert "Traceback (most recent call last)" in done.stderr and 'my_envs.py", line' in done.stderr
    assert raised.startswith(error.partition("(")[0]) and "oops" in raised
    assert whose == "This error was raised by environment 0 of my_envs:Mine-v0, in its step."
    assert re.fullmatch(
        r"This error ended the run at \d+ env steps, while it collected\. Continue with: "
        r"anybatch resume runs/mine --env my_envs:Mine-v0 \(saved at \d+ env steps\)\.",
        how,
    )
