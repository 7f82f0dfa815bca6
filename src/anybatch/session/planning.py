"""What follows from a config before anything is trained: its plan, its encoder, its threads."""

import os

import torch

from anybatch import envs, networks
from anybatch.batch.control import BatchControl
from anybatch.batch.plan import Plan
from anybatch.config import AnyConfig, PQNConfig
from anybatch.envs import procgen


def plan(config: AnyConfig) -> Plan:
    """The plan without training. One env is built where only it knows what an observation is."""
    procgen.engine_id(config.env)  # refuses games that do not exist; other ids only their engines know
    obs_bytes = envs.observation_bytes(config.env, config.env_config) if config.algorithm == "ppg" else None
    return BatchControl(config, encoder=encoder_of(config), obs_bytes=obs_bytes).plan


def encoder_of(config: AnyConfig) -> str:
    """The encoder of a run. An automatic one depends on the observations: an environment is built for it.

    Where that fails this is mlp, and the run will be refused with the reason.
    """
    if config.network.encoder != "auto":
        return config.network.encoder
    spec = envs.spec_of_one(config.env, config.env_config)
    if spec is None:
        return "mlp"
    if isinstance(config, PQNConfig):
        return networks.q_encoder_name(config.network, layout=spec.obs_layout)
    return networks.encoder_name(config.network, layout=spec.obs_layout)


def set_threads(config: AnyConfig) -> None:
    """Small networks lose more to waking threads than they gain; convolutions use every core."""
    if config.threads:
        torch.set_num_threads(config.threads)
        return
    convolutions = encoder_of(config) in ("nature", "impala")
    torch.set_num_threads((os.cpu_count() or 1) if convolutions else 1)
