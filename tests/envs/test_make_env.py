import os
import subprocess
import sys

import pytest

from anybatch.config import EnvConfig
from anybatch.envs import settings as env_settings
from anybatch.envs.ids import validate_id
from anybatch.errors import EnvError


@pytest.fixture
def without_envpool(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)  # how Python itself marks a module as absent


@pytest.mark.parametrize(
    ("env_id", "engine"),
    [
        ("CartPole-v1", "native"),
        ("CartPole-v0", "envpool"),
        ("envpool:CartPole-v1", "envpool"),
        ("ALE/Breakout-v5", "envpool"),
        ("gym:CartPole-v1", "gymnasium"),
        ("custom_envs:Vector-v0", "gymnasium"),
        ("gym:custom_envs:Vector-v0", "gymnasium"),
        ("HalfCheetah-v5", "envpool"),
        ("toy:Match", "toy"),
        ("minatar:Breakout", "native"),
    ],
)
def test_ids_find_their_engine(make, env_id, engine):
    assert make(env_id).spec.engine.split()[0] == engine


def test_an_id_that_only_gymnasium_has_goes_to_gymnasium(make):
    make("custom_envs:Vector-v0")  # registers it
    assert make("Vector-v0").spec.engine.startswith("gymnasium")


@pytest.mark.parametrize("engine", ["envpool", "gymnasium"])
def test_the_config_can_force_the_engine(make, engine):
    assert make("CartPole-v1", engine=engine).spec.engine.startswith(engine)


def test_an_engine_that_contradicts_the_id_is_refused(make):
    with pytest.raises(
        EnvError, match=r"^gym:CartPole-v1 names the engine gymnasium, but env-config.engine = envpool$"
    ):
        make("gym:CartPole-v1", engine="envpool")


@pytest.mark.usefixtures("without_envpool")
def test_envs_without_envpool_are_gymnasiums(make):
    assert make("CartPole-v0").spec.engine.startswith("gymnasium")


@pytest.mark.parametrize(
    ("env_id", "nearest"),
    [
        ("Cartpole-v9", "CartPole-v1, CartPole-v0"),
        ("Breakot-v5", "Breakout-v5"),
        ("CoinrunHrad-v0", "CoinrunHard-v0"),
        ("gym:CartPol-v1", "CartPole-v1, CartPole-v0"),
        ("envpool:Breakot-v5", "Breakout-v5"),
        ("custom_envs:Vectr-v0", "custom_envs:Vector-v0, custom_envs:"),
        ("toy:Pixel", "toy:Pixels, toy:Pixels84"),
    ],
)
def test_a_wrong_id_answers_with_the_three_nearest_names(make, env_id, nearest):
    with pytest.raises(EnvError) as refusal:
        make(env_id)
    sentence, _, names = str(refusal.value).partition("; the nearest names are ")
    assert sentence == f"there is no environment {env_id.removeprefix('gym:').removeprefix('envpool:')}"
    assert names.startswith(nearest) and names.count(", ") == 2


@pytest.mark.parametrize(
    "env_id",
    [
        *("CartPole-v9", "Breakot-v5", "gym:CartPol-v1", "gym:Breakout-v5", "envpool:Breakot-v5"),
        *("toy:Pixel", "minatar:Breakot", "native:CartPole-v9", "procgen:coinrunn", "custom_envs:Vectr-v0"),
    ],
)
def test_a_wrong_id_is_refused_as_by_make_but_without_building_an_env(make, env_id, monkeypatch):
    with pytest.raises(EnvError) as by_make:
        make(env_id)
    monkeypatch.setattr("gymnasium.make_vec", None)
    with pytest.raises(EnvError) as refusal:
        validate_id(env_id, EnvConfig())
    assert str(refusal.value) == str(by_make.value)


def test_what_may_exist_is_not_refused(monkeypatch):
    monkeypatch.delitem(sys.modules, "custom_envs", raising=False)
    for env_id in (
        *("CartPole-v1", "Breakout-v5", "AirRaid-v5", "LunarLander-v3", "gym:Walker2d-v5", "envpool:Pong-v5"),
        *("minatar:Breakout", "toy:Match", "native:Pendulum-v1", "procgen:coinrun", "MazeMemory-v0"),
        *("object:make_env", "custom_envs:AnyName-v0", "gym:custom_envs:AnyName-v0"),
    ):
        validate_id(env_id, EnvConfig())
    assert "custom_envs" not in sys.modules  # a module named by a record is not imported for it


@pytest.mark.usefixtures("without_envpool")
def test_without_envpool_only_versions_that_gymnasium_does_not_have_are_refused():
    for env_id in ("Breakout-v5", "AirRaid-v5", "envpool:AirRaid-v5", "CheetahRun-v1"):
        validate_id(env_id, EnvConfig())
    with pytest.raises(EnvError, match=r"^there is no environment CartPole-v9; .*; EnvPool has more"):
        validate_id("CartPole-v9", EnvConfig())


def test_a_wrong_gymnasium_id_is_not_answered_with_names_of_envpool(make):
    with pytest.raises(EnvError) as refusal:
        make("gym:Breakout-v5")
    assert "Breakout-v5," not in str(refusal.value).partition(";")[2]


@pytest.mark.usefixtures("without_envpool")
def test_without_envpool_a_wrong_id_says_what_would_provide_more(make):
    with pytest.raises(
        EnvError, match=r"^there is no environment Breakout-v5; the nearest .*; EnvPool has more \(pip"
    ):
        make("Breakout-v5")
    with pytest.raises(
        EnvError, match=r"^EnvPool is not installed; pip install 'anybatch\[envpool\]' installs it$"
    ):
        make("envpool:Breakout-v5")


def test_a_module_that_does_not_exist_is_named(make):
    with pytest.raises(
        EnvError, match=r"^no_such_module:MyEnv-v0: No module named 'no_such_module'; is it installed"
    ):
        make("no_such_module:MyEnv-v0")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "CoinrunHard-v0", "gym:CartPole-v1", "toy:Match"])
@pytest.mark.parametrize(
    ("field", "value"), [("episodic_life", True), ("reward_clip", True), ("sticky", 0.25)]
)
def test_atari_settings_are_refused_elsewhere(make, env_id, field, value):
    games = "EnvPool's Atari games" + (" or MinAtar's" if field == "sticky" else "")
    expected = f"env-config.{field.replace('_', '-')} = {value} needs one of {games}, and "
    with pytest.raises(EnvError, match=f"^{expected}.*{env_id.split(':')[-1]} is not one of them$"):
        make(env_id, **{field: value})


def test_spaces_that_envpool_has_and_we_do_not_are_refused_by_name(make):
    with pytest.raises(
        EnvError, match=r"^BinPack-v2 has actions Box\(0, \[39 19\], \(2,\), int32\); supported are"
    ):
        make("BinPack-v2")
    with pytest.raises(EnvError, match=r"^ConnectFour-v1 is a game of 2 players; only environments"):
        make("ConnectFour-v1")


def test_options_are_recognized_as_truth_values_and_numbers():
    parsed = env_settings.parse_options(
        {"a": "true", "b": "False", "c": "200", "d": "-1", "e": "1e-3", "f": "easy"}
    )
    assert parsed == {"a": True, "b": False, "c": 200, "d": -1, "e": 0.001, "f": "easy"}
    assert [type(parsed[name]) for name in "abcdef"] == [bool, bool, int, int, float, str]


def test_importing_envs_loads_no_engine():
    program = "import sys, anybatch.envs; print({'envpool', 'gymnasium', 'torch'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
