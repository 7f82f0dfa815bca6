"""What starts without torch, numpy and engines: the rules, the dial, plans, presets and every --help."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anybatch import envs, presets
from anybatch.cli.main import COMMANDS
from anybatch.config import EnvConfig
from anybatch.envs import classic_control, gymnasium_adapter, ids, minatar, toy
from anybatch.planning import expected_encoder
from anybatch.presets.by_env import family_by_id

HEAVY = {"torch", "numpy", "gymnasium", "matplotlib", "envpool", "tensorboard", "optuna", "safetensors"}
MODULES = ("rules", "text", "config", "dial", "dial.controllers", "dial.other_plans", "presets", "planning")
LIGHT_COMMANDS = [
    *([name, "--help"] for name in COMMANDS),
    ["train", "--preset", "minatar-pqn-abs", "--help"],
    ["train", "--env", "Breakout-v5", "--help-all"],
    ["plan", "--from", "sb3", "--help"],
    ["plan"],
    ["plan", "--num-envs", "64", "--json"],
    ["plan", "--env", "Pong-v5"],
    ["plan", "--env", "procgen:coinrun"],
    ["plan", "--env", "gym:HalfCheetah-v5"],
    ["plan", "--env", "minatar:Seaquest", "--network.encoder", "auto"],
    ["plan", "--from", "sb3", "n_envs=8", "--num-envs", "64"],
    *(["plan", "--preset", name] for name in presets.names()),
    ["presets"],
    ["presets", "atari"],
    ["presets", "procgen-ppg", "--json"],
]
RUN_ALL = """
import contextlib, io, json, sys
from anybatch.cli import main

found = []
for words in json.loads(sys.argv[1]):
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said):
        try:
            main(words)
        except SystemExit as exit:
            code = exit.code
    found.append([code, len(said.getvalue()), sorted(sys.modules)])
print(json.dumps(found))
"""


def loaded_by(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_plans_presets_and_help_import_no_heavy_library():
    for words, (code, length, loaded) in zip(
        LIGHT_COMMANDS, json.loads(loaded_by(RUN_ALL, json.dumps(LIGHT_COMMANDS))), strict=True
    ):
        assert code in (0, None) and length > 50, words
        assert not HEAVY & set(loaded), words
        others = {f"anybatch.cli.{module}" for module, _ in COMMANDS.values()} - {
            "anybatch.cli.plan",
            "anybatch.cli.preset_list",
        }
        assert not others & set(loaded), words


def test_training_and_playing_import_nothing_of_the_lab(tmp_path: Path):
    folder = str(tmp_path)
    sizes = ["--total-env-steps=128", "--evaluation.num-envs=2"]
    commands = [
        ["train", "--env=toy:Match", *sizes, f"--run-dir={folder}"],
        ["evaluate", folder, "--evaluation.num-envs=2"],
        ["advise", folder],
        ["check-env", "toy:Match"],
        ["resume", folder, "--total-env-steps=2000"],
    ]
    for words, (code, _, loaded) in zip(
        commands, json.loads(loaded_by(RUN_ALL, json.dumps(commands)).splitlines()[-1]), strict=True
    ):
        assert code == 0 and "torch" in loaded, words
        assert not [name for name in loaded if name.startswith("anybatch.lab")], words


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_the_dial_need_the_standard_library_only(name: str):
    loaded = loaded_by(f"import sys, anybatch.{name}; print(*sys.modules)").split()
    assert f"anybatch.{name}" in loaded
    assert not {*HEAVY, "rich"} & set(loaded)


def test_the_rules_are_one_file():
    loaded = loaded_by("import sys, anybatch.rules; print(*sys.modules)").split()
    assert [name for name in loaded if name.startswith("anybatch")] == ["anybatch", "anybatch.rules"]


def test_the_names_of_environments_are_those_of_their_engines():
    assert set(ids.GAMES["native"]) == set(classic_control.GAMES)
    assert set(ids.GAMES["minatar"]) == set(minatar.GAMES)
    assert set(ids.GAMES["toy"]) == set(toy.GAMES)
    assert set(gymnasium_adapter.known_ids()) >= ids.OF_GYMNASIUM


@pytest.mark.parametrize(
    "env", ["CartPole-v1", "gym:Pendulum-v1", "HalfCheetah-v4", "minatar:Freeway", "Breakout-v5"]
)
@pytest.mark.parametrize("preset", ["cartpole-ppo", "cartpole-pqn"])
def test_an_id_tells_the_same_encoder_as_the_environment(env: str, preset: str):
    spec, family = envs.spec_of_one(env, EnvConfig()), family_by_id(env, EnvConfig())
    assert spec is not None and family is not None
    assert family.obs_kind == spec.obs_layout.kind
    if family.image_size is not None:
        assert spec.obs_layout.seen_shape[-2:] == family.image_size
    network = presets.load(preset).config.network
    told = network.encoder_for(family.obs_kind, family.image_size)
    assert told == network.encoder_for(spec.obs_layout.kind, spec.obs_layout.seen_shape[-2:])


def test_an_environment_is_built_where_its_id_does_not_tell_what_it_shows():
    assert family_by_id("toy:Pixels84", EnvConfig()) is None
    text = 'extends = "image-ppo-ewma"\nenv = "toy:Pixels84"\nnetwork.encoder = "auto"'
    assert expected_encoder(presets.parse("own", text).config) == "nature"
