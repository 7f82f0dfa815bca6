"""Custom networks: an encoder, to which heads are added, or a whole network."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from anybatch import user_modules
from anybatch.config import NetworkConfig, QNetworkConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError, UserError, note_own_line
from anybatch.networks.actor_critic import ActorCritic, assembled
from anybatch.networks.encoders import to_float
from anybatch.networks.initialization import seeded
from anybatch.networks.packed import FeatureEncoder, whole_encoder
from anybatch.networks.q_network import QNetwork, assembled_q_network
from anybatch.user_modules import NETWORK_FACTORY

NetworkFactory = Callable[[EnvSpec], nn.Module]
"""Makes a network for an environment; `spec.obs_layout.seen_shape` is the shape of an encoder's input."""


def import_factory(path: str, *, trusted: bool) -> NetworkFactory:
    """The factory my_package:make_network, which is not called. `trusted` as in `import_named`."""
    module, _, name = path.rpartition(":")
    if not module or not name:
        raise ConfigError(f"{NETWORK_FACTORY} = {path} must have the form my_package:make_network")
    naming = user_modules.how_to_name(NETWORK_FACTORY, path)
    found = user_modules.import_named(module, naming=naming, trusted=trusted)
    factory: Any = getattr(found, name, None)
    if not callable(factory):
        raise ConfigError(f"{NETWORK_FACTORY} = {path}: {module} has no function {name}")
    return cast(NetworkFactory, factory)


def import_as_named(path: str) -> None:
    """Import a factory that a person names directly, also from the working folder."""
    if not is_object(path):
        import_factory(path, trusted=True)
        user_modules.name(NETWORK_FACTORY, path)


def recorded_factory(path: str) -> NetworkFactory:
    """The factory that a config names, to be called: a module class, or whatever a person has named too.

    The config may come from a run folder or a preset of somebody else, who must not choose what is called.
    """
    factory = import_factory(path, trusted=False)
    if not _is_module_class(factory) and path not in user_modules.named(NETWORK_FACTORY):
        raise ConfigError(
            f"{NETWORK_FACTORY} = {path} is not a class of torch modules, and a function is called only if "
            f"you name it: {user_modules.how_to_name(NETWORK_FACTORY, path)}"
        )
    return factory


def must_be_named(path: str) -> bool:
    """Whether other commands on a run with this factory must name it again. They cannot name an object."""
    if is_object(path):
        return False
    module = path.rpartition(":")[0]
    return user_modules.must_be_named(module) or not _is_module_class(import_factory(path, trusted=False))


def is_object(path: str) -> bool:
    """Whether a recorded name is that of an object of a program, which cannot be imported."""
    return path.startswith(user_modules.OBJECT_PREFIX)


def _is_module_class(factory: NetworkFactory) -> bool:
    return isinstance(factory, type) and issubclass(factory, nn.Module)


class CustomEncoder(nn.Module):
    """A custom encoder. Its inputs are floats: images in [0, 1], planes as 0 and 1."""

    def __init__(self, encoder: nn.Module, shape: Sequence[int]):
        """`shape` is that of one observation as the encoder sees it."""
        super().__init__()
        self.encoder = encoder
        with torch.no_grad():
            features = encoder(torch.zeros(1, *shape))
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 1:
            given = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ConfigError(
                f"a custom network must be an encoder from observations [B, …] to features [B, F], or a "
                f"whole ActorCritic or QNetwork; for one observation it returned {given}"
            )
        self.num_features = features.shape[1]

    def forward(self, obs: Tensor) -> Tensor:
        dtype = next((parameter.dtype for parameter in self.encoder.parameters()), torch.float32)
        return self.encoder(obs.to(dtype) if obs.is_floating_point() else to_float(obs, dtype))


def custom_actor_critic(
    factory: NetworkFactory, config: NetworkConfig, spec: EnvSpec, *, generator_seed: int, auxiliary: bool
) -> ActorCritic:
    """The network of PPO or PPG around what `factory` makes; its weights depend on `generator_seed` alone."""
    with seeded(generator_seed), _noting_failure(config.factory):
        made = factory(spec)
        if isinstance(made, ActorCritic):
            return _checked(made, spec, auxiliary=auxiliary)
        if isinstance(made, QNetwork):
            raise ConfigError("network.factory makes a QNetwork, which is for PQN; PPO needs an ActorCritic")
        return assembled(
            config,
            lambda: _encoder(factory(spec), spec),
            layout=spec.obs_layout,
            num_actions=spec.action_width,
            continuous=spec.is_continuous,
            action_counts=spec.action_counts,
            auxiliary=auxiliary,
        )


def custom_q_network(
    factory: NetworkFactory, config: QNetworkConfig, spec: EnvSpec, *, generator_seed: int
) -> QNetwork:
    """The network of PQN around what `factory` makes; its weights depend on `generator_seed` alone."""
    with seeded(generator_seed), _noting_failure(config.factory):
        made = factory(spec)
        if isinstance(made, QNetwork):
            return made
        if isinstance(made, ActorCritic):
            raise ConfigError("network.factory makes an ActorCritic, which is for PPO; PQN needs a QNetwork")
        return assembled_q_network(
            config, _encoder(made, spec), (), layout=spec.obs_layout, num_actions=spec.action_width
        )


@contextmanager
def _noting_failure(name: str | None) -> Iterator[None]:
    """Note which network an error of custom code comes from; the error keeps its traceback."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, UserError):
            error.add_note(f"This error was raised while the network {name} was being made.")
            note_own_line(error)
        raise


def _encoder(made: Any, spec: EnvSpec) -> FeatureEncoder:
    if not isinstance(made, nn.Module):
        raise ConfigError(f"network.factory must make a torch.nn.Module, but it made {type(made).__name__}")
    layout, has_image = spec.obs_layout, spec.obs_layout.image_shape is not None
    return whole_encoder(
        layout, lambda shape: CustomEncoder(made, shape), flattens=not has_image, dense=nn.Linear
    )


def _checked(network: ActorCritic, spec: EnvSpec, *, auxiliary: bool) -> ActorCritic:
    outputs = network.policy.head.out_features
    if outputs != spec.action_width:
        raise ConfigError(
            f"the ActorCritic of network.factory has {outputs} outputs, but {spec.env_id} needs "
            f"{spec.action_width} for its actions {spec.actions}"
        )
    if auxiliary and network.auxiliary_head is None:
        raise ConfigError("PPG needs an ActorCritic with an auxiliary_head, or an encoder alone")
    return network
