"""Actors of a run: the recipe that the learner sends them, and how they build it."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anybatch import envs, networks, seeding, user_modules
from anybatch.acting.actors.engine import Engine
from anybatch.acting.actors.local import LocalEngine
from anybatch.acting.actors.source import ActorPool
from anybatch.acting.actors.worker import ActorWorker
from anybatch.acting.collector import Actor
from anybatch.acting.observation_normalizer import ObservationNormalizer
from anybatch.algorithms.arithmetic import compile_choice, native_threads
from anybatch.algorithms.ppo import state as ppo_state
from anybatch.algorithms.pqn import state as pqn_state
from anybatch.algorithms.state import make_collector, place_network
from anybatch.config import CONFIGS, AnyConfig, PPGConfig, PQNConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.dial import automatic_microbatch
from anybatch.distributed import collectives, ray_package
from anybatch.distributed.shard import Shard
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.kernels.choice import policy_kernel, q_kernel
from anybatch.kernels.policy import PolicyKernel
from anybatch.kernels.q import QKernel
from anybatch.machine import device_name
from anybatch.networks.flat import FlatParameters
from anybatch.networks.own import NetworkFactory, import_factory
from anybatch.networks.q_network import QNetwork

BUILDER = f"{__name__}:build_worker"


def start_actors(
    config: AnyConfig,
    spec: EnvSpec,
    *,
    env_factory: str | None,
    network_factory: str | None,
    env_steps: int,
    say: Callable[[str], None],
) -> ActorPool:
    """The actors that the config requests, which have built the environments of this rank.

    `spec` describes all of them; factories are names of functions that an actor can import.
    """
    collection = config.collection
    assert collection is not None

    def recipe(shard: Shard, env_steps: int) -> dict[str, Any]:
        return {
            "builder": BUILDER,
            "sys_path": list(sys.path),
            "algorithm": config.algorithm,
            "config": config_to_dict(config),
            "env_factory": env_factory,
            "network_factory": network_factory,
            "env_steps": env_steps,
            "shard": [shard.first, shard.count, shard.total],
            "threads": torch.get_num_threads(),
        }

    shard = collectives.own_shard(config.num_envs)
    return ActorPool(
        make_engine(config), spec, shard, collection.actors, recipe, env_steps=env_steps, say=say
    )


def make_engine(config: AnyConfig) -> Engine:
    collection = config.collection
    assert collection is not None
    if collection.engine == "local":
        return LocalEngine(collection.actors, timeout_seconds=config.actor_timeout)
    with ray_package.needed_for(f"actors = {config.actors}", address=config.ray_address):
        from anybatch.acting.actors.ray_engine import RayEngine
    return RayEngine(collection.actors, address=config.ray_address, timeout_seconds=config.actor_timeout)


def build_worker(recipe: dict[str, Any]) -> ActorWorker:
    """Build, in an actor, what a recipe describes: environments, a network and a collector."""
    config = config_from_dict(CONFIGS[recipe["algorithm"]], recipe["config"])
    torch.set_num_threads(recipe["threads"])
    shard = Shard(*recipe["shard"])
    env_steps = recipe["env_steps"]
    seeds = seeding.env_seeds(config.seed, role="train", num_envs=shard.total, env_steps=env_steps)
    env = make_env(config, recipe["env_factory"], seeds[shard.envs], shard.first)
    path = recipe["network_factory"]
    network = make_network(config, env.spec, None if path is None else import_factory(path, trusted=False))
    encoder = encoder_for(config, env.spec)
    device = place_network(config, network)
    FlatParameters(network)  # native code reads parameters from there
    collector = make_collector(
        config,
        env,
        shard=shard,
        normalizer=make_normalizer(config, env.spec),
        chunk=config.microbatch or automatic_microbatch(encoder, device_name(config.device)),
        device=device,
        kernel=make_kernel(config, network, env.spec),
    )
    return ActorWorker(collector, network)


def make_env(config: AnyConfig, factory: str | None, seeds: Sequence[int], first_env: int = 0) -> VectorEnv:
    """Environments by the config's id, or by the name of a function that makes one."""
    if factory is None:
        return envs.make(config.env, config.env_config, seeds=seeds, first_env=first_env)
    from anybatch.envs import own  # imports gymnasium

    return own.own_env(user_modules.named_object(factory)).make(config.env_config, seeds, first_env)


def make_network(config: AnyConfig, spec: EnvSpec, factory: NetworkFactory | None) -> Actor:
    if isinstance(config, PQNConfig):
        return pqn_state.make_network(config, spec, factory)
    return ppo_state.make_network(config, spec, factory, auxiliary=isinstance(config, PPGConfig))


def encoder_for(config: AnyConfig, spec: EnvSpec) -> str:
    """The name of the encoder, which determines the automatic microbatch and the threads of torch."""
    if isinstance(config, PQNConfig):
        return networks.q_encoder_name(config.network, layout=spec.obs_layout)
    return networks.encoder_name(config.network, layout=spec.obs_layout)


def make_normalizer(config: AnyConfig, spec: EnvSpec) -> ObservationNormalizer | None:
    return None if isinstance(config, PQNConfig) else ppo_state.make_observation_normalizer(config, spec)


def make_kernel(config: AnyConfig, network: Actor, spec: EnvSpec) -> PolicyKernel | QKernel | None:
    """Native code to act with, if the learner could use it; each request says whether it does."""

    def unsaid(sentence: str) -> None:
        """The learner has said it, for all actors."""
        del sentence

    choice, threads = compile_choice(config), native_threads(config)
    if isinstance(network, QNetwork):
        return q_kernel(choice, network, spec, threads=threads, say=unsaid)
    return policy_kernel(choice, network, None, spec, threads=threads, say=unsaid)
