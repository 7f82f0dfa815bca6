"""The state of PQN."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from anybatch import networks, seeding
from anybatch.acting.rollout import rollout_bytes
from anybatch.acting.sources import refuse_rollouts_beyond_memory
from anybatch.algorithms.arithmetic import compile_choice, keep_arithmetic, native_threads
from anybatch.algorithms.state import (
    Environments,
    Learner,
    RankState,
    TrainState,
    load_network,
    saved_network,
)
from anybatch.config import PQNConfig
from anybatch.envs.protocol import DiscreteActions, EnvSpec
from anybatch.errors import ConfigError
from anybatch.kernels.choice import q_kernel
from anybatch.kernels.q import QKernel
from anybatch.networks.own import NetworkFactory, own_q_network
from anybatch.networks.q_network import QNetwork
from anybatch.runs.checkpoint import Snapshot


@dataclass(kw_only=True)
class PQNState(TrainState[QNetwork]):
    """The state that training action values changes."""

    learner: Learner[QNetwork]
    kernel: QKernel | None
    rank: RankState

    def metrics(self) -> dict[str, float | None]:
        """Current values, apart from this iteration's losses."""
        return self.learner.metrics() | self.source.metrics()

    def snapshot(self) -> Snapshot:
        return Snapshot(
            shared=self.shared(),
            own={"rank": self.rank.state_dict()},
            segments=self.source.segments(),
        )

    def shared(self) -> dict[str, Any]:
        """The part that all ranks share."""
        return {"learner": self.learner.state_dict(), "native": self.kernel is not None}


def start(
    config: PQNConfig,
    env: Environments,
    *,
    say: Callable[[str], None],
    factory: NetworkFactory | None = None,
) -> PQNState:
    """A fresh state. `factory` makes the user's own network."""
    refuse_rollouts_beyond_memory(config.lag, rollout_bytes(env.spec, config.step_range[1]))
    learner = Learner.fresh(
        config,
        make_network(config, env.spec, factory),
        encoder=networks.q_encoder_name(config.network, layout=env.spec.obs_layout),
        obs_bytes=env.spec.obs_bytes,
        noise_of={"action values": slice(None)},
        say=say,
    )
    kernel = q_kernel(
        compile_choice(config), learner.network, env.spec, threads=native_threads(config), say=say
    )
    if kernel is not None:
        learner.steps.use_native_code()
    return PQNState(learner=learner, kernel=kernel, rank=RankState.fresh(config, env, learner, kernel=kernel))


def restore(state: PQNState, saved: Snapshot, config: PQNConfig, say: Callable[[str], None]) -> None:
    """Continue from `saved`, possibly at another batch: numbers that depend on it follow this run's plan."""
    state.learner.load_state_dict(saved.shared["learner"], config, say)
    keep_arithmetic(state, config, was_native=saved.shared["native"], say=say)
    state.rank.load_state_dict(saved.own["rank"], saved.segments, plan=state.plan, say=say)


def make_network(config: PQNConfig, spec: EnvSpec, factory: NetworkFactory | None = None) -> QNetwork:
    """The network: the same weights for the same seed, on every rank."""
    if not isinstance(spec.actions, DiscreteActions):
        raise ConfigError(f"PQN needs one Discrete action, but {spec.env_id} has actions {spec.actions}")
    seed = seeding.torch_generator(config.seed, role="network").initial_seed()
    if factory is not None:
        return own_q_network(factory, config.network, spec, generator_seed=seed)
    return networks.make_q_network(
        config.network,
        layout=spec.obs_layout,
        num_actions=spec.actions.count,
        generator_seed=seed,
    )


def for_playing(
    config: PQNConfig, spec: EnvSpec, shared: Mapping[str, Any], factory: NetworkFactory | None = None
) -> tuple[QNetwork, None]:
    """The network of a checkpoint; if it explores, as little as at the end of a run."""
    network = make_network(config, spec, factory).to(getattr(torch, config.dtype))
    load_network(network, saved_network(shared))
    network.epsilon = config.exploration.end
    return network, None
