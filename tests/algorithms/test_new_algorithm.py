"""An algorithm from outside the package: one file with a config class, registered by one call."""

import types
from collections.abc import Iterator
from pathlib import Path

import new_algorithm
import numpy as np
import pytest
from new_algorithm import ReinforceConfig
from toy_runs import differences, newest_learner

import anybatch
from anybatch import algorithms
from anybatch.config import CONFIGS, NetworkConfig, RecordConfig, UpdateConfig
from anybatch.errors import ConfigError

CONFIG = ReinforceConfig(
    env="toy:Match",
    num_envs=8,
    num_steps=16,
    total_env_steps=1_024,
    discount=0.0,
    network=NetworkConfig(hidden_sizes=(16,)),
    update=UpdateConfig(epochs=1, minibatches_per_epoch=2),
    record=RecordConfig(tensorboard=False, checkpoint_every_iterations=1),
)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    algorithms.register(ReinforceConfig, new_algorithm)
    yield
    del algorithms.ALGORITHMS["reinforce"], CONFIGS["reinforce"]


def test_it_is_short():
    assert new_algorithm.__file__ is not None
    lines = Path(new_algorithm.__file__).read_text().splitlines()
    assert sum(1 for line in lines if line.strip()) <= 120


def test_it_learns_resumes_and_is_evaluated(tmp_path: Path):
    trained = anybatch.train(
        CONFIG, run_dir=tmp_path, total_env_steps=12_000, optimizer={"learning_rate": 1e-2}
    )
    evaluation = trained.evaluate(episodes=20)
    per_step = evaluation.mean_return / evaluation.mean_length
    assert per_step > 0.6  # chance is 0.2
    agent = anybatch.load(trained.folder)
    shown = np.eye(5, dtype=np.float32)  # the action that is shown is the right one
    assert (agent.act(shown, greedy=True) == np.arange(5)).mean() > 0.6


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path):
    whole = anybatch.train(CONFIG, run_dir=tmp_path / "whole")
    half = anybatch.train(CONFIG, run_dir=tmp_path / "half", total_env_steps=512)
    resumed = anybatch.resume(half.folder, total_env_steps=1_024)
    there, here = newest_learner(whole.folder), newest_learner(resumed.folder)
    assert not differences(there["network"], here["network"])


def test_it_has_a_plan_that_follows_the_batch():
    plan = anybatch.plan(CONFIG, num_envs=2)
    assert "learning rate" in str(plan)


def test_native_code_does_not_compute_a_loss_that_it_does_not_know(tmp_path: Path):
    with pytest.raises(ConfigError, match="only the losses of PPO and PQN"):
        anybatch.train(CONFIG, run_dir=tmp_path, native="on")


def test_a_missing_function_is_named():
    lacking = types.SimpleNamespace(
        **{name: getattr(new_algorithm, name) for name in algorithms.FUNCTIONS if name != "restore"}
    )
    with pytest.raises(ConfigError, match="the algorithm reinforce has no function restore"):
        algorithms.register(ReinforceConfig, lacking)
