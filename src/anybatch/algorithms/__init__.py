"""The algorithms, each with its loop, loss and state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from anybatch.acting.collector import Actor
from anybatch.acting.observation_normalizer import ObservationNormalizer
from anybatch.algorithms.ppg import loop as ppg_loop
from anybatch.algorithms.ppg import state as ppg_state
from anybatch.algorithms.ppg.state import PPGState
from anybatch.algorithms.ppo import loop as ppo_loop
from anybatch.algorithms.ppo import state as ppo_state
from anybatch.algorithms.ppo.state import PPOState
from anybatch.algorithms.pqn import loop as pqn_loop
from anybatch.algorithms.pqn import state as pqn_state
from anybatch.algorithms.pqn.state import PQNState
from anybatch.config import AnyConfig, PPGConfig, PPOConfig, PQNConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.networks.own import NetworkFactory
from anybatch.runs.checkpoint import Snapshot
from anybatch.runs.run import Run

AnyState = PPOState | PPGState | PQNState
Config = TypeVar("Config", bound=AnyConfig)
State = TypeVar("State", bound=AnyState)


@dataclass(frozen=True, kw_only=True)
class Algorithm(Generic[Config, State]):
    """What a run needs from an algorithm."""

    start: Callable[..., State]
    """`start(config, env, say=…, factory=…)`: a fresh state."""
    restore: Callable[[State, Snapshot, Config, Callable[[str], None]], None]
    """Continue a fresh state from a snapshot, at the batch of the config."""
    train: Callable[[Config, State, Run], None]
    """Train a state in place until the run is over or a stop is requested."""
    for_playing: Callable[
        [Config, EnvSpec, Mapping[str, Any], NetworkFactory | None],
        tuple[Actor, ObservationNormalizer | None],
    ]
    """The network of a checkpoint's shared state and its view of observations."""


PPO: Algorithm[PPOConfig, PPOState] = Algorithm(
    start=ppo_state.start,
    restore=ppo_state.restore,
    train=ppo_loop.train,
    for_playing=ppo_state.for_playing,
)
PPG: Algorithm[PPGConfig, PPGState] = Algorithm(
    start=ppg_state.start,
    restore=ppg_state.restore,
    train=ppg_loop.train,
    for_playing=ppo_state.for_playing,
)
PQN: Algorithm[PQNConfig, PQNState] = Algorithm(
    start=pqn_state.start,
    restore=pqn_state.restore,
    train=pqn_loop.train,
    for_playing=pqn_state.for_playing,
)


def algorithm_of(config: AnyConfig) -> Algorithm[Any, Any]:
    """The algorithm of a config."""
    return {"ppo": PPO, "ppg": PPG, "pqn": PQN}[config.algorithm]


__all__ = ["PPG", "PPO", "PQN", "Algorithm", "AnyState", "algorithm_of"]
