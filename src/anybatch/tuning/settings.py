"""Settings of trials and of the check: the preset at a batch, with the numbers for that batch."""

from collections.abc import Mapping
from typing import Any

from anybatch import presets
from anybatch.batch.plan import Plan, make_plan
from anybatch.batch.stale import proximal_follows_lag
from anybatch.config import AnyConfig, PPGConfig, PPOConfig
from anybatch.studies.configs import config_of, nested, plain
from anybatch.tuning.space import BY_NAME

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
    numbers = make_plan(config, encoder="mlp")  # the encoder decides the microbatch, which is not set here
    here = presets.overlaid(plain(settings, where), numbers_of(config, numbers))
    return plain(here | {"tuned_at": presets.own_batch(here)}, where)


def numbers_of(config: AnyConfig, plan: Plan) -> dict[str, Any]:
    """The numbers of a plan, at their places in the settings."""
    numbers = plan.hyperparameters
    optimizer = {name: getattr(numbers, name) for name in ("learning_rate", "beta1", "beta2")}
    found: dict[str, Any] = {
        "optimizer": optimizer,
        "update": {"minibatches_per_epoch": plan.batch.minibatches_per_epoch},
    }
    if isinstance(config, PPOConfig):
        if config.objective.advantage_normalization == "iteration":
            found["objective"] = {"advantage_decay": numbers.advantage_decay}
        if not proximal_follows_lag(config) and config.proximal.policy == "ewma":
            found["proximal"] = {"ewma_decay": numbers.proximal_decay}
        if not proximal_follows_lag(config) and config.proximal.policy == "periodic":
            found["proximal"] = {"copy_every": numbers.proximal_copy_every}
    if isinstance(config, PPGConfig) and plan.phase is not None:
        names = ("policy_iterations", "auxiliary_minibatch", "auxiliary_learning_rate")
        found["phase"] = {name: getattr(plan.phase, name) for name in names}
    return found
