"""What a config determines before training: plan, encoder, threads."""

import os

import torch

from anybatch import envs, networks
from anybatch.batch.control import BatchControl
from anybatch.batch.plan import Plan
from anybatch.config import AnyConfig, PQNConfig
from anybatch.distributed import group
from anybatch.envs import procgen
from anybatch.envs.protocol import EnvSpec


def plan(config: AnyConfig) -> Plan:
    """The plan without training. One env is built if its observations must be known."""
    procgen.engine_id(config.env)  # refuses unknown games; other ids are known only to their engines
    obs_bytes = envs.observation_bytes(config.env, config.env_config) if config.algorithm == "ppg" else None
    return BatchControl(config, encoder=expected_encoder(config), obs_bytes=obs_bytes).plan


def expected_encoder(config: AnyConfig) -> str:
    """The encoder of a run. `auto` depends on the observations, so an environment is built to see them.

    If that fails this is mlp, and the run will be refused with the reason.
    """
    if config.network.encoder != "auto":
        return config.network.encoder
    spec = envs.spec_of_one(config.env, config.env_config)
    return "mlp" if spec is None else encoder_for(config, spec)


def encoder_for(config: AnyConfig, spec: EnvSpec) -> str:
    """The encoder of a run on the environment with this spec."""
    if isinstance(config, PQNConfig):
        return networks.q_encoder_name(config.network, layout=spec.obs_layout)
    return networks.encoder_name(config.network, layout=spec.obs_layout)


def set_threads(config: AnyConfig, encoder: str) -> None:
    """One thread for small networks, which lose more to waking threads than they gain; all cores for
    convolutions.

    Ranks on one machine share its cores.
    """
    every_core = max(1, (os.cpu_count() or 1) // group.local_ranks())
    torch.set_num_threads(config.threads or (every_core if encoder in ("nature", "impala") else 1))
