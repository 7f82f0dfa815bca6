"""What a program gives as objects instead of names: an environment, a network."""

import copy
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from torch import nn

from anybatch import envs, seeding
from anybatch.config import AnyConfig
from anybatch.distributed import collectives
from anybatch.envs.protocol import VectorEnv
from anybatch.errors import ConfigError
from anybatch.networks.own import NetworkFactory, import_factory
from anybatch.user_modules import OBJECT_PREFIX

if TYPE_CHECKING:
    from anybatch.envs.own import OwnEnv

Config = TypeVar("Config", bound=AnyConfig)


@dataclass(frozen=True)
class OwnParts:
    """The objects of a program. Their names stand for them in the config of the run."""

    env: "OwnEnv | None" = None
    network: NetworkFactory | None = None
    network_name: str = ""

    @classmethod
    def of(cls, env: Any = None, network: Any = None) -> "OwnParts":
        """What `env=` and `network=` were given: None, an object or a factory."""
        own_env = None
        if env is not None:
            from anybatch.envs import own  # imports gymnasium

            own_env = own.own_env(env)
        if network is None:
            return cls(env=own_env)
        named = network if inspect.isfunction(network) or inspect.isclass(network) else type(network)
        return cls(own_env, _factory(network), f"{OBJECT_PREFIX}{named.__name__}")

    def named_in(self, config: Config) -> Config:
        """The config with the names of the objects, and the number of envs that an object fixes."""
        if self.env is not None:
            config = replace(config, env=self.env.env_id, num_envs=self.env.num_envs or config.num_envs)
        if self.network is not None:
            config = replace(config, network=replace(config.network, factory=self.network_name))
        return config

    def network_factory(self, config: AnyConfig) -> NetworkFactory | None:
        """The factory of the run's network; None for the networks of the library."""
        path = config.network.factory
        if path is None or self.network is not None:
            return self.network
        if path.startswith(OBJECT_PREFIX):
            raise ConfigError(
                f"this run has a network object, {path.removeprefix(OBJECT_PREFIX)}, which only a Python "
                "program can give again: pass it as network=… to anybatch.resume or anybatch.load"
            )
        return import_factory(path, trusted=False)

    def training_env(self, config: AnyConfig, *, env_steps: int) -> VectorEnv:
        """The training environments. `env_steps` is what a resumed run had done: they get other seeds."""
        seeds = seeding.env_seeds(
            config.seed, role="train", rank=collectives.rank(), num_envs=config.num_envs, env_steps=env_steps
        )
        if self.env is not None:
            return self.env.make(config.env_config, seeds)
        return envs.make(config.env, config.env_config, seeds=seeds)

    def close(self, env: VectorEnv) -> None:
        """Close an environment that was made here; one that the program gave stays open."""
        if self.env is None or not self.env.is_object:
            env.close()


NOTHING_OWN = OwnParts()


def _factory(network: Any) -> NetworkFactory:
    if isinstance(network, nn.Module):
        return lambda _spec: copy.deepcopy(network)  # the program's own object is left as it is
    if callable(network):
        return cast(NetworkFactory, network)
    raise ConfigError(
        f"network must be a torch.nn.Module, or a function from the environment's spec to one; "
        f"got {type(network).__name__}"
    )
