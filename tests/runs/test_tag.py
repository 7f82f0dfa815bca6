"""The short form of what differs from a preset."""

from typing import Any

import pytest
from toy_runs import changed

from anybatch import presets
from anybatch.runs.tag import MOST_CHARACTERS, tag_of

PRESET = presets.load(presets.DEFAULT).config


@pytest.mark.parametrize(
    ("changes", "tag"),
    [
        ({}, ""),
        ({"seed": 9, "total_env_steps": 10, "env": "toy:Match", "microbatch": 7}, ""),
        ({"record": {"tensorboard": False}, "evaluation": {"num_envs": 3}}, ""),
        ({"num_envs": 16, "optimizer": {"learning_rate": 0.003}}, "n16-lr0.003"),
        ({"optimizer": {"name": "sgd", "max_grad_norm": 0.5}}, "sgd-max_grad_norm0.5"),
        (
            {"network": {"hidden_sizes": [32, 16]}, "normalize": {"observations": "step"}},
            "hidden_sizes32x16-observations=step",
        ),
        ({"env_config": {"options": {"num_levels": "200"}}}, "num_levels=200"),
    ],
)
def test_a_tag_names_what_curves_depend_on(changes: dict[str, Any], tag: str):
    assert tag_of(changed(PRESET, **changes), PRESET) == tag


def test_what_has_no_room_is_counted():
    config = changed(
        PRESET,
        num_envs=3,
        update={"epochs": 7, "target_kl_check": "minibatch", "noise_scale_every": 9},
        normalize={"observation_clip": 2.5, "reward_clip": 3.5, "reward_discount": 0.9},
    )
    tag = tag_of(config, PRESET)
    assert tag.startswith("n3-") and tag.endswith("=minibatch+4") and len(tag) <= MOST_CHARACTERS
