"""Steps on few samples form the gradients of large matrices instead of storing them, and equal torch's."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anybatch import presets
from anybatch.config import PPOConfig
from tests.support.toy_runs import changed, newest_state, train


@pytest.mark.parametrize("minibatch", [1, 2, 3, 8])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_steps_on_few_samples_equal_torch(minibatch: int, clip: float | None, tmp_path: Path):
    preset = presets.load("minatar-ppo-ewma").config
    assert isinstance(preset, PPOConfig)
    config = changed(
        replace(preset, num_envs=1, num_steps=24, total_env_steps=48, threads=1),
        rescale="none",
        precision="float64",
        update={"minibatches_per_epoch": 24 // minibatch},
        optimizer={"max_grad_norm": clip},
        evaluation={"num_envs": 1, "max_episode_steps": 10},
        record={"tensorboard": False},
    )
    weights = {
        native: newest_state(train(changed(config, native=native), tmp_path / native).folder)["shared"]
        for native in ("on", "off")
    }
    for part in (["learner", "network"], ["ewma", "policy"]):
        there, here = weights["off"], weights["on"]
        for name in part:
            there, here = there[name], here[name]
        for name, tensor in there.items():
            torch.testing.assert_close(here[name], tensor, rtol=1e-8, atol=1e-9)
