"""The plan of a config, without training. An environment is built only if its id does not tell enough."""

from collections.abc import Callable
from typing import TypeVar

from anybatch import envs
from anybatch.config import AnyConfig
from anybatch.config.planned import Plan
from anybatch.dial import BatchControl
from anybatch.envs.ids import procgen_id
from anybatch.presets.by_env import family_by_id
from anybatch.text import counted

Config = TypeVar("Config", bound=AnyConfig)


def plan(config: AnyConfig) -> Plan:
    """The plan of a run at its start."""
    procgen_id(config.env)  # refuses unknown games; other ids are known only to their engines
    obs_bytes = envs.observation_bytes(config.env, config.env_config) if config.stores_observations else None
    return BatchControl(config, encoder=expected_encoder(config), obs_bytes=obs_bytes).plan


def expected_encoder(config: AnyConfig) -> str:
    """The encoder of a run. `auto` depends on the observations, which most ids of environments tell.

    For other ids an environment is built. If that fails this is mlp, and the run will be refused with the
    reason.
    """
    network = config.network
    if network.encoder != "auto":
        return network.encoder
    # Options may change what an engine shows.
    family = family_by_id(config.env, config.env_config) if not config.env_config.options else None
    if family is not None:
        return network.encoder_for(family.obs_kind, family.image_size)
    spec = envs.spec_of_one(config.env, config.env_config)
    if spec is None:
        return "mlp"
    return network.encoder_for(spec.obs_layout.kind, spec.obs_layout.seen_shape[-2:])


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
