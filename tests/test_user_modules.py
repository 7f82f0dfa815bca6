"""Modules are imported from the working folder where the command line names them, never where a run does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from toy_runs import toy_config, train

from anybatch import user_modules
from anybatch.cli import main
from anybatch.errors import UserError

MODULE = """
from pathlib import Path
Path(__file__).with_name("was-imported").touch()
import gymnasium, neighbor
gymnasium.register("Mine-v0", entry_point=neighbor.Sound)
"""
NEIGHBOR = "from broken_envs import Misbehaving as Sound"
FLAGS = ["--num-envs=3", "--num-steps=7", "--total-env-steps=60", "--evaluation.num-envs=2"]
SEARCH = os.pathsep.join([str(Path(__file__).parent / "support"), *filter(None, sys.path)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder of a process that searches what is installed, with a package of the user's in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(user_modules, "_of_working_folder", set())
    (tmp_path / "my_envs.py").write_text(MODULE)
    (tmp_path / "neighbor.py").write_text(NEIGHBOR)
    yield tmp_path
    for name in ("my_envs", "neighbor"):
        sys.modules.pop(name, None)
    gymnasium.registry.pop("Mine-v0", None)


def was_imported(folder: Path) -> bool:
    return (folder / "was-imported").exists()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_what_the_command_line_names_is_found_in_the_working_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    main(["train", "--env=my_envs:Mine-v0", *FLAGS, "--run-dir=runs"])
    (run,) = (folder / "runs").iterdir()
    again = f"anybatch evaluate {run.relative_to(folder)} --env my_envs:Mine-v0"
    assert again in capsys.readouterr().out  # the next command must name it again, and works
    main([*again.split()[1:], "--evaluation.greedy"])


@pytest.mark.parametrize("command", ["resume", "evaluate", "watch"])
def test_what_a_run_names_is_not_found_in_the_working_folder(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    """Else `cd RUN && anybatch evaluate .` on a folder from elsewhere would execute what lies in it."""
    run = train(toy_config(), folder / "runs").folder
    config = run / "config.json"
    config.write_text(config.read_text().replace("toy:Match", "my_envs:Mine-v0"))
    (run / "result.json").unlink()
    for path in ("", "."):
        sys.path.insert(0, path)  # as `python -c` and a notebook have it
        said = refused(capsys, command, str(run))
        assert "my_envs is not installed" in said and "--env my_envs:Mine-v0" in said
        assert sys.path.pop(0) == path
    assert not was_imported(folder)


def test_what_a_preset_file_names_is_not_found_in_the_working_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "mine.toml").write_text('env = "my_envs:Mine-v0"')
    assert "--env my_envs:Mine-v0" in refused(capsys, "train", "--preset=mine.toml", *FLAGS)
    assert not was_imported(folder)


def test_installed_modules_come_before_those_of_the_working_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "cloudpickle.py").write_text("raise SystemExit('the wrong one')")
    for trusted in (True, False):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "cloudpickle", raising=False)
            module = user_modules.import_named("cloudpickle", naming="--env x", trusted=trusted)
        assert module.__file__ != str(folder / "cloudpickle.py")
    assert str(folder) not in sys.path


def test_a_module_that_was_imported_already_is_taken(folder: Path):
    """As in a notebook: `import my_envs`, then a run that names it."""
    first = user_modules.import_named("my_envs", naming="", trusted=True)
    assert user_modules.import_named("my_envs", naming="", trusted=False) is first
    assert was_imported(folder)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("no_such_module", "No module named 'no_such_module'; is it installed"),
        ("my_envs.inner", "No module named 'my_envs.inner'"),
        (".x", ".x is not a module"),
        ("broken", "No module named 'no_dependency'; is it installed"),
    ],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_what_is_missing_is_named(module: str, sentence: str, trusted: bool, folder: Path):
    (folder / "installed").mkdir()
    (folder / "installed" / "broken.py").write_text("import no_dependency")
    sys.path.append(str(folder / "installed"))
    if module == "my_envs.inner" and not trusted:
        sentence = "my_envs.inner is not installed, and the one in this folder"
    with pytest.raises(UserError) as error:
        user_modules.import_named(module, naming="--env x", trusted=trusted)
    assert sentence in str(error.value)


@pytest.mark.parametrize("start", ["script", "-m"])
def test_no_command_imports_what_lies_in_the_working_folder(start: str, tmp_path: Path):
    script = tmp_path / "bin" / "start.py"
    script.parent.mkdir()
    script.write_text("from anybatch.cli import main; main()")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("random", "torch", "gymnasium", "rich"):
        (here / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    words = [str(script)] if start == "script" else ["-m", "anybatch"]
    done = subprocess.run(
        [sys.executable, *words, "plan", "--env=toy:Match"],
        cwd=here, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": SEARCH},
    )  # fmt: skip
    assert done.returncode == 0 and "iteration batch" in done.stdout, done.stderr
