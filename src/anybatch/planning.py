"""From what a person asks for to the config and the plan of a run, without training and without torch."""

import logging
from collections.abc import Container
from typing import TypeVar

from anybatch import envs, presets, user_modules
from anybatch.config import AnyConfig, EnvConfig
from anybatch.config.planned import Plan
from anybatch.dial import BatchControl
from anybatch.envs.ids import procgen_id, validate_id
from anybatch.errors import UserError
from anybatch.presets import Choice
from anybatch.presets.by_env import family_by_id
from anybatch.text import counted

logger = logging.getLogger(__name__)

Config = TypeVar("Config", bound=AnyConfig)
NAMEABLE = ("env", "num_envs", "network.factory", "proximal.policy", "ray_address")
"""The settings for which it matters that a person named them, instead of a preset or the record of a run."""


def choose_preset(env: str, env_config: EnvConfig) -> Choice:
    """The preset for an environment that a person named."""
    envs.import_as_named(env)
    validate_id(env, env_config)
    return presets.for_env(env, env_config)


def import_named(config: AnyConfig, named: Container[str]) -> None:
    """Import, or allow, what a person named: a record alone must not choose the code that runs."""
    if "env" in named:
        envs.import_as_named(config.env)
    if "network.factory" in named and config.network.factory is not None:
        from anybatch.networks import custom  # imports torch

        custom.import_as_named(config.network.factory)
    if "ray_address" in named and config.ray_address is not None:
        user_modules.name("ray_address", config.ray_address)


def decided(config: Config, named: Container[str], *, recorded: AnyConfig | None = None) -> Config:
    """The config that a run trains with. `recorded` is that of a run which is resumed.

    A run with actors gets the decoupled objective, unless a person chose the proximal policy, the preset has
    another one than PPO's, or the run had actors before and keeps the choice made then.
    """
    if "num_envs" in named:
        config.validate_num_envs()
    had_actors = recorded is not None and recorded.collection is not None
    if config.collection is None or had_actors or "proximal.policy" in named:
        return config
    decoupled = config.decoupled()
    if decoupled is None:
        return config
    logger.info(
        "proximal.policy is iteration_start: data collected while the learner learns is "
        f"{counted(config.lag, 'iteration')} old, and the decoupled objective holds the update near the "
        "current policy instead of the older one that acted; --proximal.policy selects another."
    )
    return decoupled


def plan(config: AnyConfig) -> Plan:
    """The plan of a run at its start. An environment is built only if its id does not tell enough."""
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


def notes_on_ranks(config: AnyConfig, ranks: int) -> list[str]:
    """A note if so many ranks on this machine would be slower than threads.

    A single process takes many steps of a small network in one call of native code, while ranks exchange
    gradients at every step.
    """
    if ranks == 1 or not runs_natively(config):
        return []
    per_rank = config.envs_per_rank
    ranked = f"--ranks {ranks}" + (f" --envs-per-rank {per_rank}" if per_rank else "")
    threaded = f"--threads {ranks}" + (f" --num-envs {config.num_envs}" if per_rank else "")
    return [
        "Native code runs this network, and on one machine it is faster with threads than with ranks: use "
        f"{threaded} instead of {ranked}."
    ]


def runs_natively(config: AnyConfig) -> bool:
    """Whether native code would run the network of a config; one env and the network are built to know."""
    from anybatch import machine, native  # the imports below load torch
    from anybatch.algorithms import algorithm_of
    from anybatch.backends import why_not_native
    from anybatch.user_objects import NO_OBJECTS

    spec = envs.spec_of_one(config.env, config.env_config)
    if spec is None or machine.device_name(config.device) != "cpu" or not native.available():
        return False
    try:
        network = algorithm_of(config).make_network(config, spec, NO_OBJECTS.network_factory(config))
        return why_not_native(config, network, spec) is None
    except UserError:  # the run will be refused with the reason
        return False
