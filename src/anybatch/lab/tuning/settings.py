"""Settings of trials and of the check: the preset at a batch, with the numbers for that batch."""

from collections.abc import Mapping
from typing import Any

from anybatch import presets
from anybatch.dial import make_plan
from anybatch.lab.studies.configs import config_of, nested, plain
from anybatch.lab.tuning.space import BY_NAME

THREADS = 1
"""Threads of each cell: cells run in parallel."""
EVALUATION_EPISODES = 10
"""Most episodes evaluated at the end of each cell. The search uses training episodes."""


def quiet(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a cell, without threads, logs or long evaluations that would slow other cells down."""
    slots = min(settings["evaluation"]["num_envs"], EVALUATION_EPISODES)
    return presets.overlaid(
        dict(settings),
        {
            "threads": THREADS,
            "env_config": {"engine_threads": THREADS},
            "evaluation": {"every_env_steps": 0, "num_envs": slots, "episodes_per_env": 1},
            "record": {"tensorboard": False, "wandb": False, "trackio": False},
        },
    )


def at_batch(settings: Mapping[str, Any], num_envs: int, where: str) -> dict[str, Any]:
    """The settings of a preset at another number of envs, with the numbers that the dial computes."""
    return stated(presets.overlaid(dict(settings), {"num_envs": num_envs}), where)


def with_point(base: Mapping[str, Any], point: Mapping[str, float], where: str) -> dict[str, Any]:
    """The settings of a trial.

    `base` is tuned at its own batch. If a point has another number of minibatches, the dial rescales the
    numbers that follow the minibatch: the searched learning rate refers to the base's minibatch, so that the
    two can be searched independently.
    """
    settings = dict(base)
    for name, number in point.items():
        dimension = BY_NAME[name]
        settings = presets.overlaid(settings, nested(dimension.setting, dimension.to_setting(number)))
    return stated(settings, where)


def stated(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same run, tuned at its own batch: the numbers of its plan become settings."""
    config = config_of(settings, where)
    plan = make_plan(config, encoder="mlp")  # the encoder decides the microbatch, which is not set here
    here = presets.overlaid(plain(settings, where), config.stated(plan))
    return plain(here | {"tuned_at": presets.own_batch(here)}, where)
