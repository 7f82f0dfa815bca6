"""The wheel and the source archive: built, installed afresh, and used from outside the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from anybatch import __version__

ROOT = Path(__file__).parents[1]
TINY = ("--total-env-steps", "300", "--num-steps", "16", "--evaluation.num-envs", "2")


def run(*words: str | Path, folder: Path) -> str:
    """What a command prints, without the checkout on its path."""
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(word) for word in words]
    environment = without | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive, and a wheel made of nothing but that archive."""
    out, copy = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("copy")
    for file in ROOT.iterdir():  # building leaves files in the checkout
        if file.is_file():
            shutil.copy(file, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy, folder=out)
    return out


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment, which sees this one's packages but for anybatch."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=False)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    (wheel,) = dist.glob("*.whl")
    options = ("--quiet", "--no-deps", "--no-index", "--target", purelib)
    run(sys.executable, "-m", "pip", "install", *options, wheel, folder=place)
    # After the wheel's own folder on the path. A checkout that is installed there as editable is behind it.
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def anybatch(installed: Path, *words: str, folder: Path) -> str:
    return run(installed / "python", "-m", "anybatch", *words, folder=folder)


def test_everything_that_is_no_python_is_in_the_wheel(dist: Path):
    (wheel,) = dist.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src"
    wanted = {
        str(path.relative_to(package))
        for path in (package / "anybatch").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= packed
    assert any(name.endswith("/presets/cartpole-ppo-ewma.toml") for name in packed)


def test_an_installed_wheel_works_outside_of_the_checkout(installed: Path, tmp_path: Path):
    where = run(installed / "python", "-c", "import anybatch; print(anybatch.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert anybatch(installed, "--version", folder=tmp_path).strip() == __version__
    assert "cartpole-ppo-ewma" in anybatch(installed, "presets", folder=tmp_path)
    assert "8 envs × 64 steps" in anybatch(installed, "plan", folder=tmp_path)
    said = anybatch(installed, "train", "--env", "toy:Match", *TINY, folder=tmp_path)
    assert "mean return over 2 episodes" in said
    assert "index.html" in anybatch(installed, "report", "runs/", folder=tmp_path)


def test_an_installed_wheel_runs_a_study(installed: Path, tmp_path: Path):
    said = anybatch(installed, "study", "invariance", "--scale", "smoke", "--seeds", "1", folder=tmp_path)
    assert "invariance" in said and (tmp_path / "studies").is_dir()
