"""The objective of data that is collected while the learner learns."""

from collections.abc import Callable
from typing import TypeVar

from anybatch.config import AnyConfig
from anybatch.text import counted

Config = TypeVar("Config", bound=AnyConfig)


def decoupled_by_default(config: Config, say: Callable[[str], None], *, policy_is_chosen: bool) -> Config:
    """The config of a run with actors, switched to the decoupled objective, and a sentence with the reason.

    Unchanged if a person chose the proximal policy, or the preset has another one than PPO's.
    """
    decoupled = None if policy_is_chosen or config.collection is None else config.decoupled()
    if decoupled is None:
        return config
    say(
        "proximal.policy is iteration_start: data collected while the learner learns is "
        f"{counted(config.lag, 'iteration')} old, and the decoupled objective holds the update near the "
        "current policy instead of the older one that acted; --proximal.policy selects another."
    )
    return decoupled
