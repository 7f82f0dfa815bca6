"""Environments and networks that a program passes as objects instead of names."""

import copy
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

from torch import nn

from anybatch import envs, seeding, user_modules
from anybatch.acting.actors.source import ActorPool
from anybatch.acting.rollout import rollout_bytes
from anybatch.acting.sources import QueueSource, Source, validate_queue_memory
from anybatch.algorithms import state
from anybatch.algorithms.actors import make_env, start_actors
from anybatch.config import AnyConfig
from anybatch.distributed import collectives
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import ConfigError
from anybatch.networks.custom import NetworkFactory, is_object, recorded_factory
from anybatch.user_modules import OBJECT_PREFIX

if TYPE_CHECKING:
    from anybatch.envs.custom import CustomEnv

Config = TypeVar("Config", bound=AnyConfig)
AUTO = "auto"


@dataclass(frozen=True)
class UserObjects:
    """The objects of a program. The run's config holds their names."""

    env: "CustomEnv | None" = None
    network: NetworkFactory | None = None
    network_name: str = ""

    @classmethod
    def of(cls, env: Any = None, network: Any = None) -> "UserObjects":
        """From the arguments `env=` and `network=`: None, an object or a factory."""
        own_env = None
        if env is not None:
            from anybatch.envs import custom  # imports gymnasium

            own_env = custom.custom_env(env)
        if network is None:
            return cls(env=own_env)
        named = network if inspect.isfunction(network) or inspect.isclass(network) else type(network)
        return cls(own_env, _factory(network), f"{OBJECT_PREFIX}{named.__name__}")

    def validate_num_envs(self, num_envs: int | None) -> None:
        """Refuse a number of envs other than that of the environment object."""
        fixed = None if self.env is None else self.env.num_envs
        if num_envs is not None and fixed is not None and num_envs != fixed:
            raise ConfigError(
                f"num_envs = {num_envs}: the environment object has {fixed}; leave num_envs out, or pass a "
                "function that makes a single env"
            )

    def named_in(self, config: Config) -> Config:
        """The config with the names of the objects, and the number of envs that an object fixes."""
        if self.env is not None:
            config = replace(config, env=self.env.env_id, num_envs=self.env.num_envs or config.num_envs)
        if self.network is not None:
            config = replace(config, network=replace(config.network, factory=self.network_name))
        return config

    def network_factory(self, config: AnyConfig) -> NetworkFactory | None:
        """The factory of the run's network; None for the library's networks."""
        path = config.network.factory
        if path is None or self.network is not None:
            return self.network
        if is_object(path):
            raise ConfigError(
                f"this run has a network object, {path.removeprefix(OBJECT_PREFIX)}, which only a Python "
                "program can provide: pass it as network=… to anybatch.resume or anybatch.load"
            )
        return recorded_factory(path)

    def training_env(self, config: AnyConfig, *, env_steps: int) -> VectorEnv:
        """The training environments. `env_steps` are those a resumed run has done; they change the seeds."""
        if self.env is None:
            return state.make_env(config, env_steps)
        shard = collectives.local_shard(config.num_envs)
        if shard.count >= envs.MANY_ENVS and not self.env.is_object:
            one = self.env.make(config.env_config, [0])
            one.close()
            state.validate_env_memory(config, one.spec, shard.count)
        seeds = seeding.env_seeds(config.seed, role="train", num_envs=config.num_envs, env_steps=env_steps)
        return self.env.make(config.env_config, seeds[shard.envs], shard.first)

    def spec_for_actors(self, config: AnyConfig) -> EnvSpec:
        """The spec of the environments that actors will build.

        One of them is built to find out. An object of the program is refused.
        """
        factory = self._env_for_actors()
        one = make_env(config, factory, seeds=[0])
        one.close()
        spec = replace(one.spec, num_envs=collectives.local_shard(config.num_envs).count)
        validate_queue_memory(config.lag, rollout_bytes(spec, config.step_range[1]))
        return spec

    def actors(self, config: AnyConfig, spec: EnvSpec, *, env_steps: int) -> ActorPool:
        """Actors that have built the training environments, each its own share."""
        validate_cluster_named(config)
        return start_actors(
            config,
            spec,
            env_factory=self._env_for_actors(),
            network_factory=self._network_for_actors(config),
            env_steps=env_steps,
        )

    def _env_for_actors(self) -> str | None:
        """How actors find the function that makes an environment; None if the config has its id."""
        if self.env is None:
            return None
        name = user_modules.importable_name(self.env.factory)
        if self.env.is_object or name is None:
            raise ConfigError(
                f"{self.env.env_id} cannot be built in another process, where actors collect: pass a "
                "function from an importable module, or register the environment and name its id"
            )
        return name

    def _network_for_actors(self, config: AnyConfig) -> str | None:
        """How actors find the function that makes the network; None for the library's networks."""
        if self.network is None:
            return config.network.factory
        name = user_modules.importable_name(self.network)
        if name is None:
            raise ConfigError(
                f"{self.network_name} cannot be built in another process, where actors collect: pass a "
                "function from an importable module, as network=… or by its name"
            )
        return name

    def close(self, env: VectorEnv) -> None:
        """Close an environment that was made here; one that the program passed stays open."""
        if self.env is None or not self.env.is_object:
            env.close()

    def close_source(self, source: Source) -> None:
        """End a run's collection, and close the environments that were made here."""
        source.close()
        if isinstance(source, QueueSource):
            self.close(source.collector.env)


NO_OBJECTS = UserObjects()


def validate_cluster_named(config: AnyConfig) -> None:
    """Refuse the address of a cluster that only a record names: what a cluster answers can run code here."""
    address = config.ray_address
    if is_elsewhere(address) and address not in user_modules.named("ray_address"):
        raise ConfigError(
            f"ray-address = {address} is from the run folder or the preset, and a cluster is connected to "
            f"only if you name it: {user_modules.how_to_name('ray_address', address)}"
        )


def is_elsewhere(address: str | None) -> TypeGuard[str]:
    """Whether an address of Ray may be that of another machine; `auto` is the Ray of this one."""
    return address is not None and address != AUTO


def _factory(network: Any) -> NetworkFactory:
    if isinstance(network, nn.Module):
        return lambda _spec: copy.deepcopy(network)  # the program's own object is left unchanged
    if callable(network):
        return cast(NetworkFactory, network)
    raise ConfigError(
        f"network must be a torch.nn.Module, or a function from the environment's spec to one; "
        f"got {type(network).__name__}"
    )
