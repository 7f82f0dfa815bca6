"""Which code a run folder or a file can run: SECURITY.md, sentence by sentence."""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import pytest
from small_studies import STUDY, run_study
from toy_runs import toy_config, train

import anybatch
from anybatch import user_modules
from anybatch.cli import main
from anybatch.lab.studies.cells import RANDOM_ARM, Result
from anybatch.lab.studies.executor import LocalWorker, naming_words
from anybatch.networks import custom as custom_networks

SECURITY = Path(__file__).parents[2] / "SECURITY.md"
HEADING = "## Which code a run folder or a file can run\n"
SIZES = ["--num-envs=3", "--num-steps=7", "--total-env-steps=60", "--evaluation.num-envs=2"]
FLAGS = ["--env=toy:Match", *SIZES]
CALLED = "was-called"
MODULE = f"""
from pathlib import Path
from custom_networks import TwoLayers

def wide(spec):
    Path({CALLED!r}).touch()
    return TwoLayers(spec)

class Wide(TwoLayers):
    pass
"""
HELD: set[str] = set()
Test = TypeVar("Test", bound=Callable[..., None])


def holds(*sentences: str) -> Callable[[Test], Test]:
    """Mark a test as the one that fails if sentences of SECURITY.md are not true."""
    HELD.update(sentences)
    return lambda test: test


def test_each_sentence_is_held_by_a_test():
    text = SECURITY.read_text()
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    section += "\n- **A study" + text.partition("\n- **A study")[2].partition("\n- ")[0]
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\n(?:- )?|\n- ", section))
    parts = (part for paragraph in paragraphs for part in re.split(r"(?<=[.:*]) (?=[A-Z`])", paragraph))
    assert {re.sub(r"[*`]", "", part) for part in parts} - {""} == HELD


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder of a process in which nothing was named yet; it has an installed package my_nets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*(entry for entry in sys.path if entry), str(tmp_path / "installed")])
    monkeypatch.setattr(user_modules, "_of_working_folder", set())
    monkeypatch.setattr(user_modules, "_named", {})
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "my_nets.py").write_text(MODULE)
    yield tmp_path
    for name in ("my_nets", "nearby"):
        sys.modules.pop(name, None)


def naming(folder: Path, trained_on: str = "toy:Match", **settings: Any) -> Path:
    """A run folder whose config names what it was not trained with."""
    run = train(toy_config(env=trained_on), folder / "runs").folder
    (run / "result.json").unlink()
    config = json.loads((run / "config.json").read_text())
    for name, value in settings.items():
        if isinstance(value, dict):
            config[name] |= value
        else:
            config[name] = value
    (run / "config.json").write_text(json.dumps(config))
    return run


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1
    return said.err


@holds(
    "Run folders, published policies, presets and study files can name an environment, a network and a Ray "
    "cluster.",
    "Someone else may have written them, so these names count only as far as this:",
    "Functions are not called.",
    "The error message says what to type.",
)
@pytest.mark.parametrize("factory", ["builtins:print", "sys:exit", "unittest:main", "my_nets:wide"])
@pytest.mark.parametrize("words", [["resume"], ["evaluate"], ["watch"], ["export", "--hub=policy"]])
def test_a_function_that_a_run_folder_names_is_not_called(
    words: list[str], factory: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    command, *flags = words
    run = naming(folder, "CartPole-v1", network={"factory": factory})
    said = refused(capsys, command, str(run), *flags)
    assert f"network.factory = {factory} is not a class of torch modules" in said
    assert said.endswith(f"name it: --network.factory {factory} (from Python: network='{factory}')\n")
    assert not (folder / CALLED).exists()


@pytest.mark.parametrize("env", ["", 'env = "toy:Match"\n'])
def test_a_function_that_a_preset_names_is_not_called(
    env: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "mine.toml").write_text(f'extends = "cartpole-ppo"\n{env}[network]\nfactory = "my_nets:wide"\n')
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["train", "--preset=mine.toml", *SIZES])
    assert stop.value.code == 2 and "--network.factory my_nets:wide" in capsys.readouterr().err
    assert not (folder / CALLED).exists()
    main(["train", "--preset=mine.toml", *SIZES, "--network.factory=my_nets:wide"])
    assert (folder / CALLED).exists()


def test_a_function_that_a_study_file_names_is_called_in_its_workers_only_if_it_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    changes = [
        ("seeds = [1, 2]", "seeds = [1]"),
        ('ratios = ["1", "1/4"]', 'ratios = ["1"]'),
        ('arms = ["all", "none"]', 'arms = ["all"]'),
        ("network = { hidden_sizes = [8] }", 'network = { factory = "my_nets:wide" }'),
    ]

    def trained(**options: Any) -> Result:
        results = run_study(folder / "study", *changes, **options)
        (cell,) = [result for result in results if result.cell.arm != RANDOM_ARM]
        return cell

    failed = trained().failed
    assert failed is not None and "--network.factory my_nets:wide" in failed
    assert not (folder / CALLED).exists()
    custom_networks.import_as_named("my_nets:wide")
    assert trained(retry_failed=True).failed is None
    assert (folder / CALLED).exists()


@pytest.mark.parametrize("words", [["study", "study.toml", "--plan"], ["tune", "--trials=1"]])
def test_studies_and_tunings_tell_their_workers_what_their_command_line_names(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "study.toml").write_text(STUDY)
    with contextlib.suppress(SystemExit):  # one trial is too few
        main([*words, "--network.factory=my_nets:wide"])
    assert naming_words(["toy:Match"]) == ["toy:Match", "--network.factory=my_nets:wide"], capsys.readouterr()


@holds(
    "A network, such as my_package:MyNetwork, is built if it is a class derived from torch.nn.Module in an "
    "installed package."
)
def test_a_class_of_torch_modules_in_an_installed_package_is_built(folder: Path):
    main(["train", *FLAGS, "--network.factory=my_nets:Wide", "--name=own"])
    user_modules._named.clear()
    main(["evaluate", "runs/own"])
    assert anybatch.load("runs/own").act([0, 0, 1, 0, 0]) in range(5)
    assert folder == Path.cwd()


@holds(
    "An environment, such as my_package:MyEnv-v0, is built if an installed package registers it with "
    "Gymnasium.",
    "The package is imported to find out.",
    "Options of the environment are passed to it as text, numbers, true and false.",
)
def test_an_environment_of_an_installed_package_is_built_with_its_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "installed" / "my_envs.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Mine(CartPoleEnv):\n"
        "    given = []\n"
        "    def __init__(self, **options):\n"
        "        self.given.append(options)\n"
        "        super().__init__()\n"
        "gymnasium.register('Mine-v0', entry_point=Mine)\n"
    )
    options = {"text": "__import__('os').abort()", "number": "0.5", "truth": "true"}
    run = train(toy_config(env="native:CartPole-v1"), folder / "runs").folder
    config = json.loads((run / "config.json").read_text())
    config |= {"env": "my_envs:Mine-v0", "env_config": config["env_config"] | {"options": options}}
    (run / "config.json").write_text(json.dumps(config))
    monkeypatch.delitem(sys.modules, "my_envs", raising=False)
    main(["evaluate", str(run)])
    given = sys.modules["my_envs"].Mine.given[-1]
    assert given == {"text": options["text"], "number": 0.5, "truth": True}
    config["env"] = "my_nets:Mine-v1"  # which that package does not register
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit):
        main(["evaluate", str(run)])
    del sys.modules["my_envs"], gymnasium.registry["Mine-v0"]


@holds("Nothing is imported from the working folder, from Python's own library or from a __main__ module.")
@pytest.mark.parametrize("module", ["nearby", "this", "unittest.__main__", "packaging.__main__"])
@pytest.mark.parametrize("part", ["env", "network"])
def test_a_run_folder_imports_nothing_that_is_not_an_installed_package(
    module: str, part: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    (folder / "nearby.py").write_text("class Wide: pass")
    name = f"{module}:Wide"
    run = naming(folder, **({"env": name} if part == "env" else {"network": {"factory": name}}))
    said = refused(capsys, "evaluate", str(run))
    flag = "--env" if part == "env" else "--network.factory"
    assert f"is imported only if you name it: {flag} {name}" in said
    assert module not in sys.modules


@holds(
    "A Ray cluster on another machine is not connected to, because what it answers can run code here.",
)
@pytest.mark.timeout(90)  # Ray would wait for an answer
def test_a_cluster_that_a_run_folder_names_is_not_connected_to(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        run = naming(folder, actors="ray:1", ray_address=address)
        said = refused(capsys, "resume", str(run))
        assert said.endswith(f"name it: --ray-address {address} (from Python: ray_address='{address}')\n")
        with pytest.raises(anybatch.ConfigError, match="--ray-address"):
            anybatch.resume(run)
        with pytest.raises(BlockingIOError):
            server.accept()
    # Named, it is connected to, where nobody listens any more.
    with pytest.raises(SystemExit):
        main(["resume", str(run), "--ray-address", address])
    assert f"could be used at ray-address = {address}" in capsys.readouterr().err


@holds(
    "For anything else, you have to name it too: on the command line with --env, --network.factory or "
    "--ray-address, in a program with env=, network= or ray_address=.",
)
def test_what_must_be_named_again_is_part_of_the_suggested_commands(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "nearby.py").write_text(MODULE)
    main(["train", *FLAGS, "--network.factory=nearby:wide", "--name=own"])
    (suggested,) = re.findall(r"^  anybatch (evaluate .*)$", capsys.readouterr().out, re.MULTILINE)
    assert suggested == "evaluate runs/own --network.factory nearby:wide --evaluation.greedy"
    user_modules._named.clear()
    assert "--network.factory nearby:wide" in refused(capsys, "evaluate", "runs/own")
    main(shlex.split(suggested))
    user_modules._named.clear()
    for opened in (anybatch.load, anybatch.resume):
        with pytest.raises(anybatch.ConfigError, match="network='nearby:wide'"):
            opened("runs/own", **({"total_env_steps": 99} if opened is anybatch.resume else {}))
    assert anybatch.load("runs/own", network="nearby:wide").act([0, 0, 1, 0, 0]) in range(5)
    assert anybatch.resume("runs/own", network="nearby:wide", total_env_steps=99).finished


@holds("What you name is looked for in installed packages first, then in the working folder.")
def test_what_a_program_names_is_found_in_the_working_folder_after_installed_packages(folder: Path):
    (folder / "nearby.py").write_text(MODULE)
    (folder / "my_nets.py").write_text("raise SystemExit('the wrong one')")
    settings: dict[str, Any] = {"env": "toy:Match", "num_envs": 3, "num_steps": 7, "total_env_steps": 60}
    for name in ("nearby:wide", "my_nets:wide"):
        (folder / CALLED).unlink(missing_ok=True)
        anybatch.train("cartpole-ppo", network=name, evaluation={"num_envs": 2}, **settings)
        assert (folder / CALLED).exists()


@holds("A config that your program passes on does not count as naming what is in it.")
def test_a_config_that_is_passed_on_names_nothing(folder: Path):
    config = anybatch.TrainedRun(naming(folder, network={"factory": "my_nets:wide"})).config
    with pytest.raises(anybatch.ConfigError, match=r"--network\.factory my_nets:wide"):
        anybatch.train(config)
    assert not (folder / CALLED).exists()
    anybatch.train(config, network="my_nets:wide")
    assert (folder / CALLED).exists()


@holds(
    "A package counts as installed if Python finds it outside the working folder, including in PYTHONPATH "
    "and beside the program that you run."
)
@pytest.mark.parametrize("where", ["PYTHONPATH", "beside", "nowhere"])
def test_a_package_is_installed_where_python_finds_it(where: str, folder: Path):
    run = naming(folder, network={"factory": "nearby:Wide"})
    place = folder / "elsewhere"
    place.mkdir()
    (place / "program.py").write_text("import sys, anybatch; anybatch.TrainedRun(sys.argv[1]).evaluate(2)")
    ((folder if where == "nowhere" else place) / "nearby.py").write_text(MODULE)
    program = ["-c", (place / "program.py").read_text()] if where != "beside" else [str(place / "program.py")]
    path = [*sys.path, *([str(place)] if where == "PYTHONPATH" else [])]
    done = subprocess.run(
        [sys.executable, *program, str(run)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = "nearby is not installed" not in done.stderr
    assert found == (where != "nowhere"), done.stderr


def test_a_model_card_says_how_to_name_what_its_folder_may_not(folder: Path):
    (folder / "nearby.py").write_text(MODULE)
    main(["train", *FLAGS, "--network.factory=nearby:wide", "--name=own"])
    main(["export", "runs/own", "--hub=policy", "--no-video", "--network.factory=nearby:wide"])
    card = (folder / "policy" / "README.md").read_text()
    assert "\nanybatch evaluate NAME --network.factory nearby:wide\n" in card
    assert "\nagent = anybatch.load(\"NAME\", network='nearby:wide')\n" in card


@holds(
    "A study or a tuning folder, if you continue it.",
    "Its cells run from the copy of the package inside it.",
    "anybatch report runs nothing from the folder.",
)
def test_the_copy_of_the_package_in_a_study_runs_its_cells_but_not_its_report(folder: Path):
    """The copy is one that says of every cell that it is done, and leaves a file behind."""
    out = folder / "study"
    run_study(out, ("seeds = [1, 2]", "seeds = [1]"))
    copy = out / "source" / "anybatch"
    shutil.rmtree(copy)
    (copy / "lab" / "studies").mkdir(parents=True)
    (copy / "__init__.py").write_text(f"open({CALLED!r}, 'w').close()\n")
    (copy / "lab" / "__init__.py").touch()
    (copy / "lab" / "studies" / "__init__.py").touch()
    (copy / "lab" / "studies" / "worker.py").write_text(
        "import sys\n"
        "def main():\n"
        "    for _ in sys.stdin:\n"
        '        print(\'{"answer": "done"}\', flush=True)\n'
    )
    main(["report", str(out)])
    assert not (folder / CALLED).exists()
    worker = LocalWorker(out, threads=1)
    assert worker.ask(cell={}) == {"answer": "done"}
    worker.close()
    assert (folder / CALLED).exists()
