"""The preset of an environment where none is named, and what is said about it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import anybatch
from anybatch import envs, presets
from anybatch.cli import main
from anybatch.config import EnvConfig
from anybatch.errors import EnvError
from anybatch.presets.by_env import FAMILIES
from anybatch.runs import folder as run_folder

BY_ID = {
    "Breakout-v5": "atari-ppo-ewma",
    "envpool:Pong-v5": "atari-ppo-ewma",
    "ALE/Breakout-v5": "atari-ppo-ewma",
    "procgen:coinrun": "procgen-ppo-ewma",
    "procgen-easy:coinrun": "procgen-small-ppo-ewma",
    "CoinrunHard-v0": "procgen-ppo-ewma",
    "envpool:StarpilotEasy-v0": "procgen-small-ppo-ewma",
    "MazeMemory-v0": "procgen-ppo-ewma",
    "minatar:Breakout": "minatar-ppo-ewma",
    "HalfCheetah-v4": "mujoco-ppo-ewma",
    "gym:Walker2d-v5": "mujoco-ppo-ewma",
    "CartPole-v1": "classic-ppo-ewma",
    "gym:Acrobot-v1": "classic-ppo-ewma",
    "MountainCarContinuous-v0": "classic-ppo-ewma",
    "LunarLander-v3": "box2d-ppo-ewma",
}
SHORT = ["--num-envs=3", "--num-steps=8", "--total-env-steps=24", "--evaluation.num-envs=1", "--threads=1"]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    main(words)
    return capsys.readouterr().out


def test_every_choice_is_a_preset_that_fits_its_kind():
    assert len({family.all for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert presets.load(family.preset).config.algorithm == "ppo"


def test_the_id_tells_without_an_env_and_without_envpool():
    code = (
        "import sys; from anybatch import envs, presets; from anybatch.config import EnvConfig\n"
        "from anybatch.envs.ids import validate_id\n"
        "def refuse(*_, **__): raise AssertionError('an env was built')\n"
        "envs.make = refuse\n"
        "for env_id in sys.argv[1:]: print(presets.for_env(env_id, EnvConfig()).preset)\n"
        "for env_id in set(sys.argv[1:]) - {'MazeMemory-v0'}: validate_id(env_id, EnvConfig())\n"
        "assert 'envpool' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, *BY_ID], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert dict(zip(BY_ID, done.stdout.split(), strict=True)) == BY_ID


@pytest.mark.parametrize(
    ("env_id", "preset"),
    [
        ("toy:Match", "vector-ppo-ewma"),  # discrete actions
        ("toy:Target", "vector-ppo-ewma"),  # continuous ones
        ("toy:Pixels", "image-ppo-ewma"),
        ("broken_envs:Sound-v0", "vector-ppo-ewma"),
        ("AirRaid-v5", "atari-ppo-ewma"),  # not one of the 57 games
    ],
)
def test_where_the_id_does_not_tell_one_env_is_built(env_id: str, preset: str):
    choice = presets.for_env(env_id, EnvConfig())
    assert choice.preset == preset and choice.reason.startswith(f"{env_id} ")


def test_the_engine_and_its_options_are_heeded():
    assert presets.for_env("Breakout", EnvConfig(engine="minatar")).preset == "minatar-ppo-ewma"
    pixels = EnvConfig(options={"from_pixels": "true"})
    assert presets.for_env("HalfCheetah-v4", pixels).preset == "image-ppo-ewma"
    with pytest.raises(EnvError, match="no environment Breakout-v5"):
        presets.for_env("Breakout-v5", EnvConfig(engine="gymnasium"))


def test_a_module_of_ones_own_is_not_taken_for_what_its_env_is_named_after():
    with pytest.raises(EnvError, match="no_such_module"):
        presets.for_env("no_such_module:HalfCheetah-v4", EnvConfig())


def test_an_env_that_was_built_already_is_chosen_for_by_its_observations():
    spec = envs.spec_of_one("toy:Pixels", EnvConfig())
    assert spec is not None
    assert presets.for_spec(spec).preset == "image-ppo-ewma"


@pytest.mark.parametrize(
    ("env_id", "preset"), [("Breakout-v5", "atari-ppo-ewma"), ("HalfCheetah-v4", "mujoco-ppo-ewma")]
)
def test_the_plan_of_an_environment_is_that_of_its_preset(
    env_id: str, preset: str, capsys: pytest.CaptureFixture[str]
):
    main(["plan", "--env", env_id, "--json"])
    chosen = capsys.readouterr()
    main(["plan", f"--preset={preset}", "--env", env_id, "--json"])
    named = capsys.readouterr()
    assert json.loads(chosen.out) == json.loads(named.out)
    # JSON is alone on the standard output.
    assert chosen.err.startswith(f"preset {preset}: {env_id} is a") and named.err == ""


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--env", "CartPole-v9"],
        ["plan", "--env", "CartPole-v9", "--preset", "cartpole-ppo"],
        ["plan", "--env", "CartPole-v9", "--json"],
        ["train", "--env", "CartPole-v9"],
    ],
)
def test_an_environment_that_does_not_exist_gets_no_plan(
    words: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as exit_:
        main(words)
    captured = capsys.readouterr()
    assert exit_.value.code == 2 and captured.out == ""  # neither a preset nor a plan for it
    near = "the nearest names are CartPole-v1, CartPole-v0"
    assert captured.err.startswith(f"anybatch {words[0]}: there is no environment CartPole-v9; {near}")


def test_an_environment_of_a_preset_file_must_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "cartpole-ppo"\nenv = "CartPole-v9"\n')
    with pytest.raises(SystemExit):
        main(["plan", "--preset", str(file)])
    assert "there is no environment CartPole-v9" in capsys.readouterr().err
    with pytest.raises(EnvError, match="there is no environment CartPole-v9"):
        anybatch.plan(file)


def test_which_preset_and_why_is_one_sentence(capsys: pytest.CaptureFixture[str]):
    first, second, *_ = said(capsys, "plan", "--env=Breakout-v5").splitlines()
    assert first == "preset atari-ppo-ewma: Breakout-v5 is an Atari game; --preset selects another"
    assert second.startswith("iteration batch")


def test_the_sentence_about_the_preset_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any output for a terminal
    monkeypatch.setenv("COLUMNS", "60")
    first, second, *_ = said(capsys, "plan", "--env=Acrobot-v1").splitlines()
    assert max(len(first), len(second)) <= 60
    assert f"{first} {second}".endswith("classic control task; --preset selects another")


def test_a_preset_that_is_named_wins_and_nothing_is_said(capsys: pytest.CaptureFixture[str]):
    for flag in (["--preset=procgen-small-ppo"], ["--preset", "procgen-small-ppo"]):
        out = said(capsys, "plan", *flag, "--env=Breakout-v5")
        assert out.startswith("iteration batch  64 envs × 256 steps")


def test_without_an_environment_the_default_is_trained(capsys: pytest.CaptureFixture[str]):
    assert said(capsys, "plan") == said(capsys, "plan", f"--preset={presets.DEFAULT}")


@pytest.mark.parametrize("env_id", ["toy:Target", "toy:Pixels"])
def test_own_environments_train_with_a_preset_for_what_they_show(
    env_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    short = [*SHORT, "--num-steps=32", "--total-env-steps=96"]
    out = said(capsys, "train", f"--env={env_id}", f"--run-dir={tmp_path}", *short)
    kind = {"toy:Target": "vector", "toy:Pixels": "image"}[env_id]
    assert f"preset {kind}-ppo-ewma: {env_id} has {kind} observations" in out
    (folder,) = tmp_path.iterdir()
    assert f"__{kind}-ppo-ewma__" in folder.name
    config = json.loads((folder / run_folder.CONFIG_FILE).read_text())
    assert config["env_config"]["time_limit"] == "bootstrap"
    assert config["normalize"]["observations"] == ("iteration" if kind == "vector" else "none")


def test_help_shows_the_numbers_of_the_preset_chosen(capsys: pytest.CaptureFixture[str]):
    main(["train", "--env=HalfCheetah-v4", "--help"])
    out = capsys.readouterr().out
    assert "[mujoco-ppo-ewma]" in out and "[256]" in out and "selects another" not in out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as refusal:
        main(words)
    captured = capsys.readouterr()
    assert refusal.value.code == 2 and captured.out == ""
    return captured.err


@pytest.mark.parametrize("command", ["train", "plan"])
def test_an_environment_that_is_not_there_is_answered_with_near_ones(
    command: str, capsys: pytest.CaptureFixture[str]
):
    assert "the nearest names are CartPole-v1" in refused(capsys, command, "--env=CartPol-v1")
    assert "procgen:maze" in refused(capsys, command, "--env=procgen:maz")


def test_a_wrong_flag_is_said_before_a_wrong_environment(capsys: pytest.CaptureFixture[str]):
    assert "--num-env" in refused(capsys, "plan", "--env=CartPol-v1", "--num-env=3")
    main(["plan", "--env=CartPol-v1", "--help"])
    assert "usage: anybatch plan" in capsys.readouterr().out


def test_a_flag_of_the_environment_that_cannot_be_read_is_refused(capsys: pytest.CaptureFixture[str]):
    said = refused(capsys, "plan", "--env=toy:Match", "--env-config.sticky=much")
    assert said == "anybatch plan: --env-config.sticky much: must be a number\n"
