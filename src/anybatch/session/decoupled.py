"""The objective of data that is collected while the learner learns."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from anybatch.batch.number_text import counted
from anybatch.config import AnyConfig, PPOConfig

Config = TypeVar("Config", bound=AnyConfig)


def decoupled_by_default(config: Config, say: Callable[[str], None], *, policy_is_chosen: bool) -> Config:
    """The config of a run with actors, switched to the decoupled objective, and a sentence with the reason.

    Unchanged if a person chose the proximal policy, or the preset has another one than PPO's.
    """
    if (
        policy_is_chosen
        or config.collection is None
        or not isinstance(config, PPOConfig)
        or config.proximal.policy != "behavior"
    ):
        return config
    say(
        "proximal.policy is iteration_start: data collected while the learner learns is "
        f"{counted(config.lag, 'iteration')} old, and the decoupled objective holds the update near the "
        "current policy instead of the older one that acted; --proximal.policy selects another."
    )
    return replace(config, proximal=replace(config.proximal, policy="iteration_start"))
