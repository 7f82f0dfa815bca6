"""Actors of a run: the recipe that the learner sends them, and how they build it."""

import sys
from collections.abc import Sequence
from typing import Any

import torch

from anybatch import backends, envs, seeding, user_modules
from anybatch.acting.actors.local_transport import LocalTransport
from anybatch.acting.actors.source import ActorPool
from anybatch.acting.actors.transport import Transport
from anybatch.acting.actors.worker import ActorWorker
from anybatch.algorithms import algorithm_of
from anybatch.algorithms.state import make_collector, place_network
from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.dial import automatic_microbatch
from anybatch.distributed import collectives, ray_connection
from anybatch.distributed.shard import Shard
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.machine import device_name
from anybatch.networks.custom import import_factory
from anybatch.storage import state_tree


def start_actors(
    config: AnyConfig,
    spec: EnvSpec,
    *,
    env_factory: str | None,
    network_factory: str | None,
    env_steps: int,
) -> ActorPool:
    """The actors that the config requests, which have built the environments of this rank.

    `spec` describes all of them; factories are names of functions that an actor can import.
    """
    collection = config.collection
    assert collection is not None

    def recipe(shard: Shard, env_steps: int) -> dict[str, Any]:
        return {
            "sys_path": list(sys.path),
            "algorithm": config.algorithm,
            "config": config_to_dict(config),
            "env_factory": env_factory,
            "network_factory": network_factory,
            "env_steps": env_steps,
            "shard": [shard.first, shard.count, shard.total],
            "threads": torch.get_num_threads(),
        }

    shard = collectives.local_shard(config.num_envs)
    return ActorPool(make_transport(config), spec, shard, collection.actors, recipe, env_steps=env_steps)


def make_transport(config: AnyConfig) -> Transport:
    collection = config.collection
    assert collection is not None
    if collection.engine == "local":
        return LocalTransport(collection.actors, timeout_seconds=config.actor_timeout)
    with ray_connection.needed_for(f"actors = {config.actors}", address=config.ray_address):
        from anybatch.acting.actors.ray_transport import RayTransport
    return RayTransport(
        collection.actors, build, address=config.ray_address, timeout_seconds=config.actor_timeout
    )


def build(recipe: bytes) -> ActorWorker:
    """The worker that a recipe describes, in an actor."""
    described = state_tree.unpack(recipe)
    sys.path[:] = described["sys_path"]  # so that this process can import what the learner can
    return build_worker(described)


def build_worker(recipe: dict[str, Any]) -> ActorWorker:
    """Build, in an actor, what a recipe describes: environments, a network and a collector."""
    config = config_from_dict(CONFIGS[recipe["algorithm"]], recipe["config"])
    torch.set_num_threads(recipe["threads"])
    shard = Shard(*recipe["shard"])
    env_steps = recipe["env_steps"]
    seeds = seeding.env_seeds(config.seed, role="train", num_envs=shard.total, env_steps=env_steps)
    env = make_env(config, recipe["env_factory"], seeds[shard.envs], shard.first)
    path = recipe["network_factory"]
    factory = None if path is None else import_factory(path, trusted=False)
    algorithm = algorithm_of(config)
    network = algorithm.make_network(config, env.spec, factory)
    encoder = algorithm.encoder_name(config, env.spec)
    device = place_network(config, network)
    collector = make_collector(
        config,
        env,
        shard=shard,
        normalizer=algorithm.make_observation_normalizer(config, env.spec),
        chunk=config.microbatch or automatic_microbatch(encoder, device_name(config.device)),
        device=device,
        acting=backends.acting_for(config, network, env.spec, device),
    )
    return ActorWorker(collector, network)


def make_env(config: AnyConfig, factory: str | None, seeds: Sequence[int], first_env: int = 0) -> VectorEnv:
    """Environments by the config's id, or by the name of a function that makes one."""
    if factory is None:
        return envs.make(config.env, config.env_config, seeds=seeds, first_env=first_env)
    from anybatch.envs import custom  # imports gymnasium

    return custom.custom_env(user_modules.named_object(factory)).make(config.env_config, seeds, first_env)
