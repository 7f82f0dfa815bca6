import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anybatch.cli import main
from anybatch.config import EnvConfig, NetworkConfig, OptimizerConfig, PPOConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.errors import ConfigError

CONFIG = PPOConfig(
    seed=17,
    network=NetworkConfig(hidden_sizes=(5, 7, 3)),
    optimizer=OptimizerConfig(max_grad_norm=0.5, learning_rate=1),
    env_config=EnvConfig(options={"num_levels": "200"}, max_episode_steps=11),
)


def recorded() -> dict[str, Any]:
    return json.loads(json.dumps(config_to_dict(CONFIG)))


def test_a_config_comes_back_from_json_as_it_was():
    assert config_from_dict(PPOConfig, recorded()) == CONFIG
    assert config_from_dict(PPOConfig, recorded()) != replace(CONFIG, seed=18)


def test_unknown_and_missing_settings_are_both_named_with_their_place():
    data = recorded()
    data["optimizer"]["momentum"] = 0.9
    del data["optimizer"]["beta1"]
    with pytest.raises(ConfigError, match="optimizer: unknown momentum; missing beta1"):
        config_from_dict(PPOConfig, data)
    data = recorded()
    del data["seed"]
    with pytest.raises(ConfigError, match=r"PPOConfig: missing seed$"):
        config_from_dict(PPOConfig, data)


def test_a_record_of_an_earlier_version_gets_the_defaults_of_what_it_lacks():
    data = recorded()
    del data["evaluation"]["max_episode_steps"], data["seed"], data["update"]
    config = config_from_dict(PPOConfig, data, may_lack_settings=True)
    assert config == replace(CONFIG, seed=PPOConfig().seed)
    data["tuned_at"] = config_to_dict(config.tuned_batch())
    del data["tuned_at"]["num_envs"]
    with pytest.raises(ConfigError, match=r"tuned_at .*: missing num_envs$"):  # it has no default
        config_from_dict(PPOConfig, data, may_lack_settings=True)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("num_envs", "8", "num_envs = '8': must be a whole number"),
        ("num_envs", True, "num_envs = True: must be a whole number"),
        ("optimizer.learning_rate", "fast", "optimizer.learning_rate = 'fast': must be a number"),
        ("optimizer.name", "lion", "optimizer.name = 'lion': must be one of adam, radam, sgd"),
        ("optimizer.max_grad_norm", [1], "optimizer.max_grad_norm = [1]: must be a number or none"),
        (
            "network.hidden_sizes",
            ["64"],
            "network.hidden_sizes = ('64',): must be a list, each entry a whole number",
        ),
        (
            "env_config.options",
            {"a": 1},
            "env_config.options = {'a': 1}: must be a table, each entry a string",
        ),
        ("optimizer", None, "optimizer = None: must be a table of settings"),
        ("optimizer.learning_rate", -1.0, "optimizer.learning-rate = -1.0: must be positive"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_is_wanted(path: str, value: object, sentence: str):
    data = recorded()
    *parents, name = path.split(".")
    table = data
    for parent in parents:
        table = table[parent]
    table[name] = value
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        config_from_dict(PPOConfig, data)


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "RUN"],
        ["advise", "RUN"],
        ["resume", "RUN", "--total-env-steps=100"],
        ["watch", "RUN"],
        ["export", "RUN", "--onnx=x.onnx"],
        ["report", "RUN"],
        ["plot", "RUN", "--out=x.png"],
    ],
    ids=lambda words: words[0],
)
def test_a_record_with_settings_of_another_version_is_refused_in_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "old"
    (folder / "checkpoints").mkdir(parents=True)
    data = {"algorithm": "ppo"} | recorded()
    data["dtype"] = data.pop("precision")
    (folder / "config.json").write_text(json.dumps(data))
    (folder / "metrics.jsonl").write_text('{"env_steps": 8, "wall_seconds": 1}\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([str(folder) if word == "RUN" else word for word in words])
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.count("\n") == 1
    assert "old do not fit this version" in said and "dtype" in said
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
