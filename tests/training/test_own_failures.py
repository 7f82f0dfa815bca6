"""Errors of the user's own code: the traceback stays, and a note says whose it is and how to continue."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode
from torch import nn

import anybatch
from anybatch.acting.actors.worker import ActorFailed, packed_error, raise_if_error
from anybatch.config import EnvConfig, EvaluationConfig, PPOConfig
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.envs.toy import ToyEnv
from anybatch.errors import own_line
from anybatch.evaluating import evaluation_env
from anybatch.runs.record import RunRecord
from anybatch.storage import state_tree
from anybatch.user_objects import UserObjects

SMALL: dict[str, Any] = {
    "num_envs": 3,
    "num_steps": 8,
    "total_env_steps": 96,
    "update": {"minibatches_per_epoch": 2, "noise_scale_every": 0},
    "evaluation": {"num_envs": 2},
    "record": {"tensorboard": False, "checkpoint_every_iterations": 1},
    "native": "off",
}


class Fragile(gymnasium.Env[Any, Any]):
    """Breaks where it is told to: `made` counts instances, `steps` those of each."""

    observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)
    made = closed = 0
    breaks: tuple[str, int, int] = ("", 0, 0)
    """The method, the number of the instance and its step."""
    error: type[BaseException] = ZeroDivisionError

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


def look_at(code: str, function: str) -> str:
    """The note that names the line of this file with some code, as seen from the working folder."""
    lines = enumerate(Path(__file__).read_text().splitlines(), 1)
    number = next(number for number, line in lines if code in line and "raise" in line)
    here, file = Path.cwd(), Path(__file__)
    return f"Look first at line {number} of {file.relative_to(here)}, in {function}."


def notes_of(tmp_path: Path, kind: type[Exception], **changes: Any) -> list[str]:
    with pytest.raises(kind) as failure:
        anybatch.train("cartpole-ppo", run_dir=tmp_path, **SMALL | changes)
    return failure.value.__notes__


def test_a_step_that_fails_names_its_env_and_the_checkpoint(tmp_path: Path):
    Fragile.breaks = ("step", 1, 19)  # the third iteration has steps 17 to 24
    whose, line, how = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert whose == "This error was raised by environment 1 of object:Fragile, in its step."
    assert line == look_at("raise self.error(", "_break_in")
    folder = RunRecord(tmp_path).folder
    saved = RunRecord(tmp_path).load_checkpoint().env_steps
    assert saved > 0
    assert how == (
        f"This error ended the run at {saved} env steps, while it collected. "
        f"Continue with: anybatch.resume({str(folder)!r}, env=…) (saved at {saved} env steps)."
    )
    Fragile.breaks = ("", 0, 0)
    assert anybatch.resume(folder, env=Fragile).finished


def test_a_step_that_ends_the_program_is_refused(tmp_path: Path):
    Fragile.breaks, Fragile.error = ("step", 1, 19), SystemExit
    with pytest.raises(anybatch.EnvError, match="object:Fragile ended the program: it called exit"):
        anybatch.train("cartpole-ppo", run_dir=tmp_path, **SMALL, env=Fragile)


def test_a_reset_within_a_step_is_named_as_such(tmp_path: Path):
    Fragile.breaks = ("reset", 2, 5)
    whose, *_ = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert whose == "This error was raised by environment 2 of object:Fragile, in its reset."


@pytest.mark.parametrize("method", ["__init__", "reset"])
def test_an_env_that_fails_before_the_run_is_named_too(method: str, tmp_path: Path):
    Fragile.breaks = (method, 1, 0)
    note, line = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert line == look_at("raise self.error(", "_break_in")
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
    whose, _, how = notes_of(tmp_path, ZeroDivisionError, env=Fragile)
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
    monkeypatch.setattr(collectives, "local_shard", lambda total: Shard.part(total, index=1, parts=2))
    own = UserObjects.of(env=Fragile)
    config = own.named_in(PPOConfig(env="toy:Match", num_envs=6, evaluation=EvaluationConfig(num_envs=6)))
    env = own.training_env(config, env_steps=0) if role == "training" else evaluation_env(config, own)
    Fragile.breaks = ("step", 1, 1)
    env.reset()
    with pytest.raises(ZeroDivisionError) as failure:
        env.step(np.zeros(3, dtype=np.int64))
    whose, _ = failure.value.__notes__
    assert whose == "This error was raised by environment 4 of object:Fragile, in its step."


def test_environments_are_closed_when_a_run_fails(tmp_path: Path):
    Fragile.breaks = ("step", 1, 19)
    notes_of(tmp_path, ZeroDivisionError, env=Fragile)
    assert Fragile.closed == Fragile.made


def test_environments_are_closed_when_a_run_cannot_start(tmp_path: Path):
    notes = notes_of(tmp_path, IndexError, env=Fragile, network=refusing)
    assert Fragile.closed == Fragile.made > 0
    assert notes == [
        "This error was raised while the network object:refusing was being made.",
        look_at("no such module", "refusing"),
    ]


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
    line, note = notes_of(tmp_path, IndexError, env="toy:Match", network=lambda _: network)
    assert line == look_at("no such feature", "forward")
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
    *_, raised, whose, line, how = done.stderr.strip().splitlines()
    assert "Traceback (most recent call last)" in done.stderr and 'my_envs.py", line' in done.stderr
    assert raised.startswith(error.partition("(")[0]) and "oops" in raised
    assert whose == "This error was raised by environment 0 of my_envs:Mine-v0, in its step."
    assert line == "Look first at line 9 of my_envs.py, in step."
    assert re.fullmatch(
        r"This error ended the run at \d+ env steps, while it collected\. Continue with: "
        r"anybatch resume runs/mine --env my_envs:Mine-v0 \(saved at \d+ env steps\)\.",
        how,
    )


def test_an_evaluation_and_an_agent_name_the_line_of_a_network_too(tmp_path: Path):
    network = Fading(learning=False)
    network.calls = -1000
    made = {"env": "toy:Match", "network": lambda _: network}
    run = anybatch.train("cartpole-ppo", run_dir=tmp_path, **SMALL | made)
    agent = anybatch.load(run.folder, network=lambda _: network)

    def notes(act: Callable[[], object]) -> list[str]:
        with pytest.raises(IndexError) as failure:
            act()
        return failure.value.__notes__

    network.calls = 3
    line = look_at("no such feature", "forward")
    assert notes(lambda: agent.act(np.eye(5)[2])) == [line]
    network.calls = 1  # it is called twice when the network is made
    assert notes(run.evaluate) == [line]


def test_files_that_a_network_lacks_are_not_taken_for_ours(tmp_path: Path):
    class Reading(nn.Linear):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            if torch.is_grad_enabled():
                raise FileNotFoundError(2, "no such file", "weights.bin")
            return super().forward(obs)

    line, how = notes_of(tmp_path, FileNotFoundError, env="toy:Match", network=Reading(5, 4))
    assert line == look_at('"weights.bin"', "forward") and "while it learned" in how


def test_the_line_is_part_of_what_an_actor_reports():
    try:
        refusing(None)
    except IndexError as error:
        answer = state_tree.unpack(packed_error(error))
    with pytest.raises(ActorFailed) as failure:
        raise_if_error(answer)
    assert str(failure.value).splitlines()[-1].startswith("Look first at line ")


@pytest.mark.parametrize(
    ("filename", "is_own"),
    [
        ("<stdin>", True),
        ("/tmp/ipykernel_7/123.py", True),
        ("<string>", False),
        ("/elsewhere/site-packages/package.py", False),
        (os.__file__, False),
        (anybatch.__file__, False),
    ],
)
def test_what_is_typed_at_a_prompt_is_the_users_own_and_libraries_are_not(filename: str, is_own: bool):
    names: dict[str, Any] = {}
    exec(compile("def fail():\n    1 / 0", filename, "exec"), names)
    try:
        names["fail"]()
    except ZeroDivisionError as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next  # without this test's own line
        assert own_line(error) == (f"line 2 of {filename}, in fail" if is_own else None)


class Misfit(Fragile):
    """Returns an observation that is not of its space, from its second step or at once."""

    given: Any = np.zeros(3, dtype=np.float32)
    at_once = False

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.given if self.at_once else np.zeros(2, dtype=np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.given if self.steps == 2 else np.zeros(2, dtype=np.float32), 1.0, False, False, {}


GYMNASIUM_WARNS = pytest.mark.filterwarnings("ignore::UserWarning")
"""Its own messages about such observations, and about errors of envs in processes of their own."""
WRONG = "returned an observation of shape (3,), but its space has shape (2,)"


@pytest.mark.parametrize("at_once", [True, False])
def test_observations_of_the_wrong_shape_are_refused_with_got_and_expected(
    at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Misfit, "at_once", at_once)
    with pytest.raises(anybatch.EnvError) as failure:
        anybatch.train("cartpole-ppo", run_dir=tmp_path, env=Misfit, **SMALL)
    assert str(failure.value) == f"environment 0 of object:Misfit {WRONG}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            np.zeros((2, 1), np.float32),
            "returned an observation of shape (2, 1), but its space has shape (2,)",
        ),
        (np.float32(0), "returned an observation of shape (), but its space has shape (2,)"),
        (
            [[1], [2, 3]],
            "returned an observation with rows of different lengths, but its space has shape (2,)",
        ),
        (["a", "b"], "returned an observation of type <U1, but its space has type float32"),
        (np.zeros(2, complex), "returned an observation of type complex128, but its space has type float32"),
    ],
)
def test_other_observations_that_do_not_fit_are_refused_too(
    given: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Misfit, "given", given)
    with pytest.raises(anybatch.EnvError) as failure:
        anybatch.train("cartpole-ppo", run_dir=tmp_path, env=Misfit, **SMALL)
    assert str(failure.value) == f"environment 0 of object:Misfit {said}"


@GYMNASIUM_WARNS
@pytest.mark.parametrize("given", [np.zeros(3, np.float32), np.zeros(1, np.float32)])
def test_envs_in_processes_of_their_own_refuse_them_too(
    given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One number would be repeated without an error."""
    monkeypatch.setattr(Misfit, "given", given)
    changes = SMALL | {"env_config": {"vectorization": "async"}}
    with pytest.raises(anybatch.EnvError) as failure:
        anybatch.train("cartpole-ppo", run_dir=tmp_path, env=Misfit, **changes)
    assert str(failure.value) == (
        f"an environment of object:Misfit returned an observation of shape {given.shape}, but its space has "
        "shape (2,), from its step"
    )


@GYMNASIUM_WARNS
@pytest.mark.parametrize("name", ["Misfit-v0", "Parts-v0"])
@pytest.mark.parametrize("options", [{}, {"reset": "same_step"}, {"vectorization_mode": "async"}])
def test_registered_environments_refuse_them_too(name: str, options: dict[str, str], tmp_path: Path):
    changes = SMALL | {"env_config": {"options": options}}
    with pytest.raises(anybatch.EnvError) as failure:
        anybatch.train("cartpole-ppo", env=f"broken_envs:{name}", run_dir=tmp_path, **changes)
    part = " in its part place.x" if name == "Parts-v0" else ""
    assert f"returned an observation of shape (3,){part}, but its space has shape (2,)" in str(failure.value)
    assert f"of broken_envs:{name}" in str(failure.value)


class WholeVector(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector env of a kind of its own, whose third step has another shape."""

    num_envs, metadata = 3, {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space, single_action_space = Box(-1, 1, (2,)), Discrete(2)
    observation_space, action_space = Box(-1, 1, (3, 2)), MultiDiscrete([2, 2, 2])

    def __init__(self, given: tuple[int, ...]) -> None:
        self.given, self.steps = given, 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros((3, 2)), {}

    def step(self, _: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.steps += 1
        ends = np.zeros(3, dtype=np.bool_)
        return np.zeros(self.given if self.steps == 3 else (3, 2)), np.ones(3), ends, ends, {}


@pytest.mark.parametrize("given", [(3, 1), (2,), (1, 2), (3, 2, 1)])
def test_a_vector_environment_of_its_own_kind_refuses_them_too(given: tuple[int, ...], tmp_path: Path):
    """numpy would repeat most of these until they fit."""
    with pytest.raises(anybatch.EnvError) as failure:
        anybatch.train("cartpole-ppo", run_dir=tmp_path, env=WholeVector(given), **SMALL)
    assert str(failure.value) == (
        f"object:WholeVector returned an observation of shape {given}, but its space has shape (3, 2)"
    )


def test_an_object_of_our_protocol_with_the_wrong_shape_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    env = ToyEnv("Match", EnvConfig(), seeds=[1, 2, 3])
    monkeypatch.setattr(env, "reset", lambda: np.zeros((1, 5), dtype=np.float32))
    with pytest.raises(anybatch.EnvError, match=re.escape("of shape (1, 5), but its spec has (3, 5)")):
        anybatch.train("cartpole-ppo", run_dir=tmp_path, env=env, **SMALL)
