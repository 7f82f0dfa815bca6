"""The code blocks of the README run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.M | re.S)
PYTHON_BLOCKS = [block for language, block in BLOCKS if language == "python"]
SHELL_BLOCKS = [block for language, block in BLOCKS if language == ""]


def run(code: list[str], folder: Path) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(code, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=lambda block: block.splitlines()[0])
def test_a_python_block_runs(block: str, tmp_path: Path):
    said = run([sys.executable, "-c", block], tmp_path)
    for number in re.findall(r"print\(.*# (tensor\(.*|0\.\d+)", block):
        assert number.rstrip("….") in said


@pytest.mark.parametrize("block", [block for block in SHELL_BLOCKS if block.startswith("$ anybatch plan")])
def test_a_plan_is_what_the_readme_shows(block: str, tmp_path: Path):
    command, shown = block.split("\n", 1)
    words = command.removeprefix("$ anybatch ").split()
    said = run([sys.executable, "-m", "anybatch", *words], tmp_path)
    lines = [line.rstrip() for line in said.splitlines()]
    assert [line.rstrip() for line in shown.strip().splitlines()] == [
        line for line in lines if not line.startswith("note:")
    ][: len(shown.strip().splitlines())]


def commands() -> list[list[str]]:
    lines = [line.partition("#")[0].split() for block in SHELL_BLOCKS for line in block.splitlines()]
    return [words for words in lines if words[:1] == ["anybatch"]]


@pytest.mark.parametrize("words", [words for words in commands() if words[1] == "train"], ids=" ".join)
def test_the_flags_of_every_training_command_exist(words: list[str], tmp_path: Path):
    (tmp_path / "my_package.py").write_text(
        next(block for block in PYTHON_BLOCKS if "my_package.py" in block)
    )
    if "--help" not in words:
        flags = [word for word in words[2:] if word != "--total-env-steps" and word != "20000"]
        run([sys.executable, "-m", "anybatch", "plan", *flags], tmp_path)


def test_there_is_a_block_of_every_kind():
    assert len(PYTHON_BLOCKS) >= 5 and len(commands()) >= 10
