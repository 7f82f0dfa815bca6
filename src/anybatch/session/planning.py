"""What a config determines before training: plan, encoder, threads."""

import torch

from anybatch import envs
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.backends.threads import own_cores
from anybatch.batch.control import BatchControl
from anybatch.batch.plan import Plan
from anybatch.config import AnyConfig
from anybatch.envs import procgen


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
    return "mlp" if spec is None else algorithm_of(config).encoder_name(config, spec)


def set_threads(config: AnyConfig, encoder: str) -> None:
    """Threads of torch: one for small networks, which lose more to waking threads than they gain; all cores
    for convolutions."""
    torch.set_num_threads(config.threads or (own_cores() if encoder in ("nature", "impala") else 1))


def leave_cores_to_native_code(state: AnyState) -> None:
    """One thread of torch beside native code: further ones would keep the cores busy that it needs.

    PPG's auxiliary phase has those that were asked for (`NativeBackend.torch_threads`).
    """
    if state.backend.is_native:
        torch.set_num_threads(1)
