"""The algorithms, one file each, and what a run needs from any of them."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.algorithms import ppg, ppo, pqn
from anybatch.algorithms.state import Environments, TrainState
from anybatch.backends import Actor
from anybatch.config import CONFIGS, AnyConfig, RunConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError
from anybatch.networks.custom import NetworkFactory
from anybatch.runs.run import Run
from anybatch.storage.checkpoint import Snapshot

AnyState = TrainState[Any]


class Algorithm(Protocol):
    """A module with these functions. Each gets a config of the algorithm's own class."""

    @property
    def start(self) -> "Start":
        """`start(config, env, factory=…, was_native=…)`: a fresh state."""
        ...

    @property
    def restore(self) -> Callable[[Any, Snapshot, Any], None]:
        """`restore(state, saved, config)`: continue from a snapshot, at the batch of the config."""
        ...

    @property
    def train(self) -> Callable[[Any, Any, Run], None]:
        """`train(config, state, run)`: train in place until the run is over or a stop is requested."""
        ...

    @property
    def for_inference(
        self,
    ) -> Callable[
        [Any, EnvSpec, Mapping[str, Any], NetworkFactory | None], tuple[Actor, ObservationNormalizer | None]
    ]:
        """`for_inference(config, spec, shared, factory)`: the network of a checkpoint, and how it sees
        observations."""
        ...

    @property
    def make_network(self) -> Callable[[Any, EnvSpec, NetworkFactory | None], Actor]:
        """`make_network(config, spec, factory)`: the network before its first step, also for actors."""
        ...

    @property
    def encoder_name(self) -> Callable[[Any, EnvSpec], str]:
        """`encoder_name(config, spec)`: determines the automatic microbatch and the threads of torch."""
        ...

    @property
    def make_observation_normalizer(self) -> Callable[[Any, EnvSpec], ObservationNormalizer | None]: ...


class Start(Protocol):
    def __call__(
        self,
        config: Any,
        env: Environments,
        *,
        factory: NetworkFactory | None = None,
        was_native: bool | None = None,
    ) -> TrainState[Any]: ...


ALGORITHMS: dict[str, Algorithm] = {"ppo": ppo, "ppg": ppg, "pqn": pqn}
FUNCTIONS = [name for name in vars(Algorithm) if not name.startswith("_")]


def algorithm_of(config: RunConfig) -> Algorithm:
    """The algorithm of a config."""
    return ALGORITHMS[config.algorithm]


def register(config: type[RunConfig], algorithm: Any) -> None:
    """Add an algorithm from outside the package: a module, or an object, with the functions of `Algorithm`.

    Its name in run folders is the one that its config class has.
    """
    missing = [name for name in FUNCTIONS if not callable(getattr(algorithm, name, None))]
    if missing:
        raise ConfigError(f"the algorithm {config.algorithm} has no function {' or '.join(missing)}")
    CONFIGS[config.algorithm] = cast(type[AnyConfig], config)
    ALGORITHMS[config.algorithm] = algorithm


__all__ = ["ALGORITHMS", "Algorithm", "AnyState", "algorithm_of", "register"]
