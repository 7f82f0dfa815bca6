"""Sizes that nothing can compute with are refused in one sentence, before anything is built."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_runs import evaluate, toy_config, train

from anybatch import envs, presets
from anybatch.cli import main
from anybatch.envs.protocol import VectorEnv
from anybatch.errors import ConfigError, EnvError


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tuned-at.epochs", str(2**63)], f"tuned-at.epochs = {2**63}: must not exceed 1,000,000,000,000"),
        (["--tuned-at.num-envs", str(10**11)], "must be within a factor of 1,000,000"),
        (["--num-steps", str(10**11)], "must be within a factor of 1,000,000"),
        (["--microbatch", str(10**30)], "microbatch = 1000000000000000000000000000000: must not exceed"),
        (["--update.epochs", str(10**20)], "update.epochs = 100000000000000000000: must not exceed"),
        (
            ["--evaluation.num-envs", str(10**9)],
            "evaluation.num-envs = 1000000000: must be from 1 to 1,048,576",
        ),
        (
            ["--evaluation.episodes-per-env", str(10**20)],
            "episodes-per-env = 100000000000000000000: must not",
        ),
        (["--objective.kl-penalty=1e308"], "objective.kl-penalty = 1e+308: must not exceed 3.4e+38"),
        (["--network.hidden-sizes", str(10**9)], "hidden-sizes = 1000000000: must be from 1 to 16,384"),
        (
            ["--preset=cartpole-pqn", "--network.hidden-sizes", str(10**9)],
            "hidden-sizes = 1000000000: must be from 1 to 16,384",
        ),
    ],
)
def test_numbers_beyond_sense_are_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as refusal:
        main(["plan", *words])
    assert refusal.value.code == 2 and sentence in " ".join(capsys.readouterr().err.split())


def test_every_seed_is_taken(tmp_path: Path):
    assert train(toy_config(seed=10**30), tmp_path).finished


def test_a_whole_number_is_taken_where_a_fraction_may_be(tmp_path: Path):
    """Torch refuses a beta of 0 that is an int."""
    text = 'env = "toy:Match"\nnum_envs = 3\nnum_steps = 7\ntotal_env_steps = 50\n[optimizer]\nbeta1 = 0'
    config = presets.parse("mine", text).config
    assert type(config.optimizer.beta1) is float
    assert train(config, tmp_path).finished
    assert train(replace(config, optimizer=replace(config.optimizer, beta1=0)), tmp_path).finished
    with pytest.raises(ConfigError, match=r"optimizer\.eps = 10{400}: must not exceed"):
        presets.parse("mine", f"[optimizer]\neps = 1{'0' * 400}")


@pytest.mark.parametrize("preset", ["atari-ppo", "cartpole-ppo"])
def test_a_million_envs_that_memory_cannot_hold_are_refused_before_they_are_built(
    preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = ["--num-envs=1000000", "--num-steps=20000", f"--run-dir={tmp_path}"]
    with pytest.raises(SystemExit) as refusal:
        main(["train", f"--preset={preset}", *flags])
    assert refusal.value.code == 2 and "need 2 rollouts of" in capsys.readouterr().err


@pytest.mark.parametrize("overlap", [False, True])
def test_data_that_memory_cannot_hold_is_refused_after_building_a_single_env(
    overlap: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    built: list[int] = []
    make = envs.make

    def counted(*arguments: Any, seeds: Sequence[int], **settings: Any) -> VectorEnv:
        built.append(len(seeds))
        return make(*arguments, seeds=seeds, **settings)

    monkeypatch.setattr(envs, "make", counted)
    monkeypatch.setattr("anybatch.algorithms.actors.make_transport", pytest.fail)
    config = toy_config(num_envs=2048, num_steps=10**8, overlap=overlap)
    with pytest.raises(ConfigError, match=r"rollouts of .* in memory"):
        train(config, tmp_path)
    assert set(built) == {1}


def test_a_million_envs_of_images_are_refused_by_an_evaluation_too(tmp_path: Path):
    network = {"encoder": "impala", "impala_channels": [2], "impala_features": 7}
    config = toy_config(env="Breakout-v5", num_envs=2, total_env_steps=14, network=network, threads=1)
    folder = train(config, tmp_path).folder
    many = replace(config, evaluation=replace(config.evaluation, num_envs=1_000_000))
    with pytest.raises(EnvError, match=r"1,000,000 envs of Breakout-v5 need 56\.4 GB for their observations"):
        evaluate(folder, many)
