"""The examples run as they stand, learn, and refuse bad input in one sentence."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anybatch.algorithms import ALGORITHMS
from anybatch.config import CONFIGS

EXAMPLES = Path(__file__).parents[1] / "examples"
LONGEST = 250
"""Lines of an example that is meant to be read as a whole."""
LEARNS = {
    # Example, arguments, and a return that random play does not reach: 22, 0.5, 2.5 and 22.
    "ppo_ewma.py": (("--num-envs", "4", "--total-env-steps", "20000"), 60),
    "abs_pqn.py": (("--total-env-steps", "30000"), 1.2),
    "custom_env_and_network.py": (("--total-env-steps", "16000"), 10),
    "new_algorithm.py": (("--total-env-steps", "20000"), 60),
}
REFUSED = [
    ("ppo_ewma", "--env", "Nope-v0", "Nope"),
    ("ppo_ewma", "--env", "Pendulum-v1", "Pendulum-v1 has no discrete actions"),
    ("abs_pqn", "--game", "nope", "invalid choice: 'nope'"),
    ("new_algorithm", "--env", "Nope-v0", "Nope-v0"),
    *((name, "--num-envs", "0", "num-envs") for name in ("ppo_ewma", "abs_pqn", "new_algorithm")),
    ("custom_env_and_network", "--num-envs", "0", "num-envs = 0"),
]


def run(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == LEARNS.keys()


@pytest.mark.parametrize("name", LEARNS)
def test_an_example_learns(name: str, tmp_path: Path):
    arguments, least = LEARNS[name]
    done = run(name, *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("return ")]
    assert float(said.split()[1]) > least, done.stdout


@pytest.mark.parametrize(("name", "flag", "value", "said"), REFUSED)
def test_an_example_refuses_bad_input(
    name: str,
    flag: str,
    value: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, flag, value])
    for table in (ALGORITHMS, CONFIGS):  # so that what is registered does not outlast the test
        monkeypatch.setitem(table, "reinforce", None)
        del table["reinforce"]
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(name).main()
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path):
    assert len(path.read_text().splitlines()) <= LONGEST
