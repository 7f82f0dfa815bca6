"""`kill -9` at any moment leaves a checkpoint that loads, and a run that goes on.

tests/slow/soak_kills.py does the same with every algorithm, ranks, actors, studies and tunings.
"""

import random
import signal
import time
from pathlib import Path

import pytest
from forked_commands import Commands
from toy_runs import changed, newest_learner, resume

from anybatch.runs import log
from anybatch.runs.record import RunRecord

TRAIN = [
    "train",
    "--preset=cartpole-ppo",
    "--proximal.policy=ewma",
    "--env=toy:Match",
    "--num-envs=3",
    "--num-steps=5",
    "--normalize.observations=step",
    "--record.checkpoint-every-iterations=1",
    "--record.no-tensorboard",
]
FOREVER = ["--total-env-steps=1000000000"]
LONGEST_LIFE_SECONDS = 0.4


def newest_env_steps(folder: Path) -> int:
    names = [path.name for path in (folder / "checkpoints").glob("step_*")]
    return max((int(name.removeprefix("step_").removesuffix(".replaced")) for name in names), default=-1)


def kill_after_a_while(commands: Commands, arguments: list[str], runs: Path, rng: random.Random) -> None:
    """Start a run, wait for its first checkpoint of its own, and kill it some moment later."""
    before = max((newest_env_steps(folder) for folder in runs.glob("*")), default=-1)
    with commands.start(arguments) as command:
        deadline = time.monotonic() + 120
        while max((newest_env_steps(folder) for folder in runs.glob("*")), default=-1) <= before:
            assert command.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(rng.uniform(0, LONGEST_LIFE_SECONDS))
        command.send_signal(signal.SIGKILL)
    assert command.returncode == -signal.SIGKILL


@pytest.mark.timeout(900)
def test_ten_kills_leave_a_run_that_goes_on(commands: Commands, tmp_path: Path):
    rng = random.Random(7)
    arguments = [*TRAIN, f"--run-dir={tmp_path}"]
    for _ in range(10):
        kill_after_a_while(commands, arguments + FOREVER, tmp_path, rng)
        (folder,) = tmp_path.iterdir()
        arguments = ["resume", str(folder)]
        env_steps = newest_learner(folder)["env_steps"]
        config = changed(RunRecord(folder).config, total_env_steps=env_steps + 20)
        assert resume(folder, config).env_steps >= env_steps + 20
        steps = [row["env_steps"] for row in log.read(folder)]
        assert steps == sorted(set(steps))
        assert len(list((folder / "checkpoints").iterdir())) <= config.record.keep_checkpoints
