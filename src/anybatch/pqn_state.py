"""The state of PQN."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anybatch import networks
from anybatch.config import PQNConfig
from anybatch.envs.protocol import DiscreteActions, EnvSpec
from anybatch.errors import ConfigError
from anybatch.networks.q_network import QNetwork
from anybatch.rollout import rollout_bytes
from anybatch.runs import seeding
from anybatch.staleness import refuse_rollouts_beyond_memory
from anybatch.train_state import TrainState, load_network, make_env, shared_parts


@dataclass(kw_only=True)
class PQNState(TrainState[QNetwork]):
    """What training action values changes."""


def start(config: PQNConfig, *, say: Callable[[str], None], env_steps: int = 0) -> PQNState:
    """A fresh state. `env_steps` is what a run to be resumed had done: engines then get other seeds."""
    env = make_env(config, env_steps)
    refuse_rollouts_beyond_memory(0, rollout_bytes(env.spec, config.step_range[1]))
    encoder, network = make_network(config, env.spec)
    noise_of = {"action values": slice(None)}
    return PQNState(**shared_parts(config, env, encoder, network, noise_of=noise_of, say=say))


def make_network(config: PQNConfig, spec: EnvSpec) -> tuple[str, QNetwork]:
    """The encoder's name and the network: the same weights for the same seed, on every rank."""
    if not isinstance(spec.actions, DiscreteActions):
        raise ConfigError(
            f"PQN takes the best of several actions, which must be Discrete, but {spec.env_id} has actions "
            f"{spec.actions}"
        )
    generator = seeding.torch_generator(config.seed, role="network", rank=0)
    encoder = networks.q_encoder_name(config.network, layout=spec.obs_layout)
    return encoder, networks.make_q_network(
        config.network,
        layout=spec.obs_layout,
        num_actions=spec.actions.count,
        generator_seed=generator.initial_seed(),
    )


def for_playing(config: PQNConfig, spec: EnvSpec, saved: dict[str, Any]) -> tuple[QNetwork, None]:
    """The network of a checkpoint, exploring as little as at the end of a run where it is to explore."""
    _, network = make_network(config, spec)
    load_network(network, saved["network"])
    network.epsilon = config.exploration.end
    return network, None
