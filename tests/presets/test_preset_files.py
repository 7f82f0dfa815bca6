"""Presets that extend others: what they inherit, what is refused, and one complete file of them."""

import json
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from anybatch import planning, presets
from anybatch.cli import main
from anybatch.config.serialization import config_to_dict
from anybatch.errors import ConfigError
from anybatch.presets.files import PresetFile, leaves, read


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def tuned_at(text: str) -> tuple[int, int, int, int]:
    batch = presets.parse("mine", text).config.tuned_at
    return batch.num_envs, batch.num_steps, batch.minibatches_per_epoch, batch.epochs


def complete_presets() -> list[PresetFile]:
    return [file for file in map(read, presets.names()) if file.extends is None]


def test_thirteen_presets_are_complete_and_the_others_state_less():
    complete = complete_presets()
    assert len(complete) == 13
    for file in complete:
        assert file.settings.keys() >= {"algorithm", "env", "num_envs", "num_steps", "total_env_steps"}
        assert file.settings["update"].keys() >= {"minibatches_per_epoch", "epochs"}
        assert file.settings.keys() >= {"objective", "optimizer", "network"}
    fewest = min(len(list(leaves(file.settings))) for file in complete)
    for name in set(presets.names()) - {file.name for file in complete}:
        assert len(list(leaves(read(name).settings))) < fewest


def test_no_preset_repeats_a_number_that_it_inherits():
    for name in presets.names():
        preset = presets.load(name)
        if not preset.extends:
            continue
        parent = presets.load(preset.extends[0])
        inherited = {
            path: value
            for path, value in leaves(config_to_dict(parent.config))
            if parent.origins()[path] != presets.DEFAULT_ORIGIN
        }
        repeated = [path for path, value in leaves(preset.files[-1].settings) if inherited.get(path) == value]
        assert not repeated, name


def test_every_file_of_a_chain_has_a_description_and_a_source():
    for name in presets.names():
        for file in presets.load(name).files:
            assert len(file.description) > 20 and len(file.source) > 20, file.name


@pytest.mark.parametrize("name", presets.names())
def test_every_built_in_preset_was_tuned_at_its_own_batch(name: str):
    config = presets.load(name).config
    assert asdict(config.tuned_at) == presets.own_batch(config_to_dict(config))


def test_a_preset_inherits_what_it_does_not_state_table_by_table():
    parent = presets.load("atari-pqn-abs").config
    child = presets.parse("mine", 'extends = "atari-pqn-abs"\nseed = 7\n[controller]\nmax_steps = 99').config
    expected = config_to_dict(parent)
    expected["seed"] = 7
    expected["controller"]["max_steps"] = 99
    assert config_to_dict(child) == expected and child.algorithm == "pqn"


def test_none_undoes_an_inherited_number():
    child = presets.parse("mine", 'extends = "atari-ppo"\n[objective]\nvalue_clip = "none"').config
    assert presets.load("atari-ppo").config.objective.value_clip == 0.1  # type: ignore[union-attr]
    assert child.objective.value_clip is None  # type: ignore[union-attr]


def test_a_chain_of_files_of_ones_own_ends_in_a_built_in_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "shared").mkdir()
    written(tmp_path / "shared", "base.toml", 'extends = "cartpole-ppo"\nseed = 3\nthreads = 2')
    mine = written(tmp_path, "mine.toml", 'extends = "shared/base.toml"\nseed = 4')
    monkeypatch.chdir("/")  # paths are relative to the file, not to the working folder
    preset = presets.load(mine)
    assert preset.name == "mine"
    assert preset.extends == [f"{tmp_path}/shared/base.toml", "cartpole-ppo"]
    assert (preset.config.seed, preset.config.threads, preset.config.num_envs) == (4, 2, 4)


def test_a_preset_that_changes_the_batch_was_tuned_where_its_numbers_were():
    assert tuned_at('extends = "cartpole-ppo"\nnum_envs = 64\n[update]\nepochs = 1') == (4, 128, 4, 4)
    config = presets.parse("mine", 'extends = "cartpole-ppo"\nnum_envs = 1').config
    assert planning.plan(config).hyperparameters.learning_rate == pytest.approx(2.5e-4 / 2)


def test_a_preset_may_say_that_it_was_tuned_at_its_own_batch():
    own = 'extends = "cartpole-ppo"\nnum_envs = 64\ntuned_at = "own batch"\n[update]\nepochs = 1'
    assert tuned_at(own) == (64, 128, 4, 1)


def test_a_preset_may_say_in_part_what_it_was_tuned_at():
    assert tuned_at('extends = "cartpole-ppo"\nnum_envs = 64\n[tuned_at]\nnum_envs = 32') == (32, 128, 4, 4)


def test_its_own_batch_is_inherited_as_numbers(tmp_path: Path):
    written(tmp_path, "own.toml", 'extends = "cartpole-ppo"\nnum_envs = 64\ntuned_at = "own batch"')
    mine = written(tmp_path, "mine.toml", 'extends = "own.toml"\nnum_envs = 256')
    assert presets.load(mine).config.tuned_at.num_envs == 64


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_preset_that_extends_itself_is_refused(length: int, tmp_path: Path):
    for number in range(length):
        written(tmp_path, f"{number}.toml", f'extends = "{(number + 1) % length}.toml"')
    circle = " → ".join(f"{tmp_path}/{number % length}.toml" for number in range(length + 1))
    with pytest.raises(ConfigError) as refusal:
        presets.load(f"{tmp_path}/0.toml")
    assert str(refusal.value) == f"preset {tmp_path}/0.toml extends itself: {circle}"


def test_a_file_that_extends_itself_by_another_path_is_refused(tmp_path: Path):
    mine = written(tmp_path, "mine.toml", f'extends = "../{tmp_path.name}/mine.toml"')
    with pytest.raises(ConfigError, match="extends itself"):
        presets.load(mine)


def test_a_file_may_extend_the_preset_of_its_own_name(tmp_path: Path):
    mine = written(tmp_path, "cartpole-ppo.toml", 'extends = "cartpole-ppo"\nseed = 9')
    assert presets.load(mine).config.seed == 9


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'extends = "cartpol-ppo"',
            "extends 'cartpol-ppo': there is no preset 'cartpol-ppo'; did you mean cartpole-ppo,",
        ),
        ('extends = "cartpol-ppo"', "cartpole-ppo-ewma"),
        ('extends = "nowhere/base.toml"', "extends 'nowhere/base.toml': there is no preset file"),
        ('extends = "broken.toml"', "broken.toml: Invalid value"),
        ("extends = 3", "extends = 3 must be a string"),
        ("description = 3", "description = 3 must be a string"),
        ('extends = "atari-pqn"\nalgorithm = "ppo"', "unknown exploration"),
        (
            'tuned_at = "elsewhere"',
            """tuned_at = 'elsewhere' must be a table, [tuned_at], or the words "own""",
        ),
        (f"seed = {'[' * 100_000}", "nested too deeply"),
        (f"seed = {'9' * 5_000}", "digits"),
    ],
)
def test_a_file_that_cannot_be_merged_is_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path):
    written(tmp_path, "broken.toml", "seed = ")
    mine = written(tmp_path, "mine.toml", text)
    with pytest.raises(ConfigError) as refusal:
        presets.load(mine)
    assert f"preset {mine}" in str(refusal.value) and sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_every_number_has_an_origin():
    origins = presets.load("atari-pqn-xl-abs").origins()
    expected = {
        "algorithm": "atari-pqn",
        "env": "atari-pqn",
        "seed": "default",
        "optimizer.learning_rate": "atari-pqn",
        "optimizer.beta1": "default",
        "controller.kind": "atari-pqn-abs",
        "controller.max_steps": "atari-pqn-l-abs",
        "network.channels": "atari-pqn-l-abs",
        "network.blocks": "atari-pqn-xl-abs",
        "tuned_at.num_envs": "atari-pqn",
    }
    assert {path: origins[path] for path in expected} == expected


def test_what_was_tuned_at_has_the_origin_of_the_file_that_says_so():
    origins = presets.load("procgen-small-ppo-ewma").origins()
    assert origins["tuned_at.num_steps"] == origins["tuned_at.epochs"] == "procgen-small-ppo"
    in_part = presets.parse("mine", 'extends = "cartpole-ppo"\n[tuned_at]\nnum_envs = 32').origins()
    assert (in_part["tuned_at.num_envs"], in_part["tuned_at.epochs"]) == ("mine", "cartpole-ppo")


def test_options_of_an_engine_have_origins_too():
    preset = presets.parse("mine", 'extends = "atari-pqn-sticky"\n[env_config.options]\n"odd key" = "1"')
    assert preset.config.env_config.options == {"full_action_space": "true", "odd key": "1"}
    assert preset.origins()["env_config.options.full_action_space"] == "atari-pqn-sticky"
    assert preset.origins()["env_config.options.odd key"] == "mine"
    assert presets.parse("again", presets.as_toml(preset)).config == preset.config


@pytest.mark.parametrize("name", presets.names())
def test_the_complete_file_of_a_preset_is_the_same_preset(name: str):
    preset = presets.load(name)
    text = presets.as_toml(preset)
    again = presets.parse("again", text)
    assert again.config == preset.config and not again.extends
    assert again.description == preset.description
    assert all(file.source in again.source for file in preset.files)
    assert set(again.origins().values()) == {"again"}  # nothing is left to defaults
    assert max(map(len, text.splitlines())) <= 80


def test_the_complete_file_names_origins_and_what_it_extends():
    text = presets.as_toml(presets.load("cartpole-ppo-ewma"))
    assert "#   cartpole-ppo: PPO on CartPole-v1 and other classic control tasks" in text
    lines = {tuple(line.split()) for line in text.splitlines()}
    assert ("learning_rate", "=", "0.0005", "#", "cartpole-ppo-ewma") in lines
    assert ("gae_lambda", "=", "0.95", "#", "cartpole-ppo") in lines
    assert ("value_clip", "=", '"none"', "#", "cartpole-ppo-ewma") in lines
    assert ("beta2", "=", "0.999", "#", "default") in lines


@pytest.mark.parametrize(
    "text",
    [
        'He said "no"',
        'three quotes """ and one at the end "',
        "a \\ backslash and a \\",
        "ε ≤ ½, × 日本語",
        "a control character \x7f and \x01",
        "two\nparagraphs",
        "long " * 40 + "words",
        "",
    ],
)
def test_any_prose_survives(text: str):
    for extends in ("", 'extends = "cartpole-ppo"\n'):
        # JSON's escapes are TOML's.
        quoted = json.dumps(text).replace("\x7f", "\\u007f")
        preset = presets.parse("mine", f"{extends}description = {quoted}\nsource = {quoted}\n")
        complete = tomllib.loads(presets.as_toml(preset))
        assert complete["description"] == text
        assert all(line in complete["source"] for line in text.split("\n"))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(["presets", *words])
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as refusal:
        main(["presets", *words])
    assert refusal.value.code == 2
    return capsys.readouterr().err


def test_the_command_prints_a_preset_that_can_be_saved_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = written(tmp_path, "saved.toml", said(capsys, "atari-pqn-gns"))
    assert presets.load(path).config == presets.load("atari-pqn-gns").config
    # And so it does for a file.
    mine = written(tmp_path, "mine.toml", 'extends = "saved.toml"\nseed = 5')
    out = said(capsys, mine)
    assert f"# {mine}" in out and f"# {path}" in out
    assert presets.parse("again", out).config.seed == 5


def test_the_command_lists_the_presets_with_a_word_in_their_names(capsys: pytest.CaptureFixture[str]):
    for words in (["atari"], ["ATARI"], ["pqn-l"], []):
        first = [line.split()[0] for line in said(capsys, *words).splitlines() if line]
        listed = [word for word in first if word in presets.names()]
        assert sorted(listed) == [name for name in presets.names() if not words or words[0].lower() in name]


def test_the_list_says_what_environments_select_and_describes_the_other_presets(
    capsys: pytest.CaptureFixture[str],
):
    selected, others = said(capsys, "tari-ppo").split("Others")
    assert "atari-ppo-ewma  Atari games" in selected
    assert "atari-ppo  PPO on Atari with CleanRL's hyperparameters" in others and "ewma" not in others


def test_a_word_in_no_name_is_answered_with_the_nearest_names(capsys: pytest.CaptureFixture[str]):
    assert "there is no preset 'atri'; did you mean atari-" in refused(capsys, "atri")
    assert "there is no preset 'foo'; `anybatch presets` lists them" in refused(capsys, "foo")
    assert "no preset file" in refused(capsys, "missing.toml")
    assert "ppo" in refused(capsys, "atari", "ppo")
    assert "--fast" in refused(capsys, "--fast")


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]):
    listed = json.loads(said(capsys, "--json"))
    assert [entry["name"] for entry in listed] == presets.names()
    by_name = {entry["name"]: entry for entry in listed}
    assert by_name["procgen-small-ppo-ewma"]["chosen_for"] == ["Procgen games in easy mode"]
    entry = by_name["procgen-easy-ppo-ewma"]
    assert entry["extends"] == ["procgen-easy-ppo", "procgen-ppo"]
    assert list(entry["sources"]) == ["procgen-easy-ppo-ewma", "procgen-easy-ppo", "procgen-ppo"]
    assert (entry["algorithm"], entry["num_envs"]) == ("ppo", 64)
    assert entry["chosen_for"] == []
    assert len(json.loads(said(capsys, "minatar", "--json"))) == 4


def test_a_preset_as_json(capsys: pytest.CaptureFixture[str]):
    entry = json.loads(said(capsys, "mujoco-ppo-abs", "--json"))
    preset = presets.load("mujoco-ppo-abs")
    assert entry["config"] == config_to_dict(preset.config) and entry["origins"] == preset.origins()
