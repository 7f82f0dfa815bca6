"""The examples run as they stand, and refuse bad input in one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
LONGEST = 250
"""Lines of an example that is meant to be read as a whole."""


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_ppo_ewma_learns_with_another_number_of_envs_than_it_was_tuned_at():
    done = run("ppo_ewma.py", "--num-envs", "4", "--total-env-steps", "20000")
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert float(last.split()[1]) > 60, done.stdout  # random play: 22


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--num-envs", "0"), "--num-envs and --total-env-steps must be positive"),
        (("--env", "Nope-v0"), "Environment `Nope` doesn't exist"),
        (("--env", "Pendulum-v1"), "Pendulum-v1 has no discrete actions"),
    ],
)
def test_ppo_ewma_refuses_bad_input(arguments: tuple[str, ...], said: str):
    done = run("ppo_ewma.py", *arguments)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path):
    assert len(path.read_text().splitlines()) <= LONGEST
