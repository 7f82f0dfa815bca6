"""The settings that a command offers as flags: those that have an effect on it, and no others."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from plain_commands import said
from toy_runs import changed, toy_config, toy_pqn_config, train

from anybatch.cli import main, playing
from anybatch.cli.flags import (
    PLAYING,
    WATCHING,
    EvaluateFlags,
    ExportFlags,
    PushFlags,
    RunFlags,
    SettingsFlags,
    WatchFlags,
)
from anybatch.cli.parser import Argv, flag_table
from anybatch.cli.run_flags import with_run
from anybatch.config import CONFIGS, AnyConfig
from anybatch.export import video
from anybatch.runs.record import RunRecord

COMMANDS = ("evaluate", "watch", "export", "push")
OF_THE_POLICY = ("network.", "normalize.", "env-config.actions", "env-config.log-infos")
"""Settings that fix what was trained, or what its metrics are: read, but not to be changed afterwards."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(toy_config(env="CartPole-v1"), base=tmp_path_factory.mktemp("runs")).folder


@pytest.fixture(scope="module")
def pqn_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(toy_pqn_config(env="CartPole-v1"), base=tmp_path_factory.mktemp("runs")).folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "--help-all"])
def test_help_lists_no_settings_of_training(
    command: str, flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    main([command, flag])
    out = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert "--env " in out and "--evaluation." in out and "greedy" in out
    assert not [name for name in ("--num-envs ", "--update.", "--optimizer.", "--record.") if name in out]


@pytest.mark.parametrize("kind", [EvaluateFlags, WatchFlags, ExportFlags, PushFlags])
@pytest.mark.parametrize("algorithm", CONFIGS)
def test_every_other_setting_is_refused_in_one_sentence(
    kind: type[RunFlags],
    algorithm: str,
    run: Path,
    pqn_run: Path,
    capsys: pytest.CaptureFixture[str],
):
    name, config = kind.__name__.removesuffix("Flags").lower(), CONFIGS[algorithm]().pinned()
    unused = setting_names(config) - flag_table(kind(config=config)).keys()
    assert {"num-envs", "update.epochs", "evaluation.every-env-steps", "env-config.time-limit"} <= unused
    folder = pqn_run if algorithm == "pqn" else run
    known = setting_names(RunRecord(folder).config)
    for setting in sorted(unused & known)[::7]:
        assert failing(capsys, name, str(folder), f"--{setting}=3").startswith(
            f"anybatch {name}: --{setting} is a setting of training and has no effect here; "
        )


@pytest.mark.parametrize("switch", ["--no-overlap", "--record.no-tensorboard", "--optimizer.learning_rate"])
def test_other_ways_to_write_a_setting_of_training_are_refused_too(
    switch: str, run: Path, capsys: pytest.CaptureFixture[str]
):
    said = failing(capsys, "evaluate", str(run), switch, "1")
    assert said.endswith(
        f"{switch} is a setting of training and has no effect here; --help lists the flags that have one\n"
    )


def test_a_setting_of_training_is_answered_with_the_evaluations_own(
    run: Path, capsys: pytest.CaptureFixture[str]
):
    assert "did you mean --evaluation.num-envs?" in failing(capsys, "evaluate", str(run), "--num-envs=4")


def test_settings_that_are_not_offered_stay_as_recorded(run: Path):
    flags = with_run(EvaluateFlags, Argv([str(run), "--evaluation.num-envs=5", "--seed=9"]))
    assert flags.config == changed(RunRecord(run).config, evaluation={"num_envs": 5}, seed=9)


def test_the_exploration_of_pqn_is_offered_to_evaluations(pqn_run: Path, capsys: pytest.CaptureFixture[str]):
    returns = [
        json.loads(said(capsys, "evaluate", str(pqn_run), f"--exploration.end={end}", "--json"))["returns"]
        for end in (0, 1)
    ]
    assert returns[0] != returns[1]


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_what_evaluating_and_watching_read_is_offered(
    algorithm: str, run: Path, pqn_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    record = RunRecord(run if algorithm == "ppo" else pqn_run)
    config = record.config
    with monkeypatch.context() as patch:
        reads = recorded_reads(config, patch)
        playing.play(EvaluateFlags(run=record.folder, config=config))
        evaluated = set(reads)
        reads.clear()
        video.watch(record, config, tmp_path / "play.gif", steps=3, frames_per_second=9)
    for read, offered in ((evaluated, PLAYING), (reads, WATCHING)):
        missing = read - offered
        assert not [name for name in missing if not name.startswith(OF_THE_POLICY)]
    common = {"seed", "device", "threads", "env", "evaluation.greedy"}
    assert common <= reads
    assert common | {"evaluation.episodes-per-env", "evaluation.max-episode-steps"} <= evaluated


def recorded_reads(config: AnyConfig, patch: pytest.MonkeyPatch) -> set[str]:
    """The names of settings, as flags, that code outside the config package reads from now on."""
    reads: set[str] = set()
    groups = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    kinds = {type(value): f"{name}." for name, value in groups.items() if dataclasses.is_dataclass(value)}
    for kind, prefix in {type(config): "", **kinds}.items():
        names = {field.name for field in dataclasses.fields(kind)} - {
            name for name in groups if not prefix and dataclasses.is_dataclass(groups[name])
        }

        def read(self: Any, name: str, names: set[str] = names, prefix: str = prefix) -> Any:
            module = sys._getframe(1).f_globals["__name__"]
            if name in names and module != "dataclasses" and not module.startswith("anybatch.config"):
                reads.add(f"{prefix}{name}".replace("_", "-"))
            return object.__getattribute__(self, name)

        patch.setattr(kind, "__getattribute__", read)
    return reads


def setting_names(config: AnyConfig) -> set[str]:
    return set(flag_table(SettingsFlags(config=config)))


def failing(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as refusal:
        main(list(words))
    assert refusal.value.code == 2
    return capsys.readouterr().err
