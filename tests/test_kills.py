"""`kill -9` at any moment leaves a checkpoint that loads, and a run that goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_runs import changed, newest_state, resume, toy_config

from anybatch import session
from anybatch.runs import log
from anybatch.runs.checkpoint import Checkpoints

COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
TRAIN = [
    "train",
    "--preset=cartpole-ppo-ewma",
    "--env=toy:Match",
    "--num-envs=3",
    "--num-steps=5",
    "--normalize.observations",
    "--record.checkpoint-every-iterations=1",
    "--record.no-tensorboard",
]
FOREVER = ["--total-env-steps=1000000000"]
LONGEST_LIFE_SECONDS = 0.4


def newest_env_steps(folder: Path) -> int:
    names = [path.name for path in (folder / "checkpoints").glob("step_*")]
    return max((int(name.removeprefix("step_").removesuffix(".replaced")) for name in names), default=-1)


def kill_after_a_while(arguments: list[str], runs: Path, rng: random.Random) -> None:
    """Start a run, wait for its first checkpoint of its own, and kill it some moment later."""
    before = max((newest_env_steps(folder) for folder in runs.glob("*")), default=-1)
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while max((newest_env_steps(folder) for folder in runs.glob("*")), default=-1) <= before:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(rng.uniform(0, LONGEST_LIFE_SECONDS))
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def survives_kills(runs: Path, kills: int) -> None:
    rng = random.Random(7)
    for kill in range(kills):
        arguments = ["resume", str(folder)] if kill else [*TRAIN, f"--run-dir={runs}"]  # noqa: F821
        kill_after_a_while(arguments + FOREVER, runs, rng)
        (folder,) = runs.iterdir()
        env_steps = newest_state(folder)["train"]["env_steps"]
        config = changed(session.recorded_config(folder), total_env_steps=env_steps + 20)
        assert resume(folder, config).env_steps >= env_steps + 20
        steps = [row["env_steps"] for row in log.read(folder)]
        assert steps == sorted(set(steps))
        assert len(list((folder / "checkpoints").iterdir())) <= config.record.keep_checkpoints


@pytest.mark.timeout(120)
def test_ten_kills_leave_a_run_that_goes_on(tmp_path: Path):
    survives_kills(tmp_path, 10)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_kills_leave_a_run_that_goes_on(tmp_path: Path):
    survives_kills(tmp_path, 100)


def test_a_kill_between_any_two_file_operations_leaves_a_checkpoint_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The moments that a random kill hardly meets: each rename and each sync of a save."""

    class Killed(BaseException):
        pass

    config = toy_config(record={"checkpoint_every_iterations": 1, "keep_checkpoints": 2})
    folder = session.train(config, preset="test", base=tmp_path, show_plan=lambda _: None).folder
    tree = newest_state(folder)
    env_steps = tree["train"]["env_steps"]
    operations, survived = ("rename", "mkdir", "write_text"), 0
    for die_at in range(1, 20):
        calls = 0
        with monkeypatch.context() as patch:
            for name in operations:

                def or_die(self: Path, *arguments: object, _call=getattr(Path, name), **keywords: object):
                    nonlocal calls
                    calls += 1
                    if calls == die_at:
                        raise Killed
                    return _call(self, *arguments, **keywords)

                patch.setattr(Path, name, or_die)
            try:
                Checkpoints(folder, keep=2).save(env_steps, tree)
                survived += 1
            except Killed:
                pass
        assert newest_state(folder)["train"]["env_steps"] == env_steps
    assert 0 < survived < 15
