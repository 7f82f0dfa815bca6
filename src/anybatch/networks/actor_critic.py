"""The network of an actor and its critic."""

import copy
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from anybatch.config import NetworkConfig
from anybatch.networks import initializers
from anybatch.networks.distributions import Distribution, make_distribution
from anybatch.networks.encoders import (
    Encoder,
    ImpalaEncoder,
    MinAtarEncoder,
    MLPEncoder,
    NatureEncoder,
    ObsKind,
    refuse_unfit,
)

EncoderName = Literal["mlp", "nature", "impala", "minatar"]


class Policy(nn.Module):
    """Encoder and policy head: all that acting, and a proximal copy, need."""

    def __init__(self, encoder: Encoder, head: nn.Linear, log_std: float | None):
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.log_std = None if log_std is None else nn.Parameter(torch.full((head.out_features,), log_std))

    def locate(self, obs: Tensor) -> Tensor:
        """Logits or means [B, A]."""
        return self.head(self.encoder(obs))

    def distribution(self, location: Tensor) -> Distribution:
        """The policy at `location`, with the current standard deviations where actions are continuous."""
        return make_distribution(location, self.log_std)


class ActorCritic(nn.Module):
    """A policy and a value function. The policy's parameters come first: when flat, they are a prefix."""

    def __init__(
        self,
        policy: Policy,
        value_encoder: Encoder | None,
        value_head: nn.Linear,
        *,
        detaches_value: bool = False,
        auxiliary_head: nn.Linear | None = None,
    ):
        super().__init__()
        self.policy = policy
        self.auxiliary_head = auxiliary_head
        self.value_encoder = value_encoder
        self.value_head = value_head
        self.detaches_value = detaches_value
        self.shares_encoder = value_encoder is None

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """The policy and the value [B] at `obs`."""
        features = self.policy.encoder(obs)
        policy = self.policy.distribution(self.policy.head(features))
        return policy, self._value_of(features if self.value_encoder is None else self.value_encoder(obs))

    def auxiliary(self, obs: Tensor) -> tuple[Distribution, Tensor, Tensor]:
        """The policy, the value that its own encoder predicts, and the value; all train their encoders.

        For PPG's auxiliary phase (arXiv:2009.04416, §2.2): there a detached value head is attached too.
        """
        assert self.auxiliary_head is not None
        features = self.policy.encoder(obs)
        value_features = features if self.value_encoder is None else self.value_encoder(obs)
        return (
            self.policy.distribution(self.policy.head(features)),
            self.auxiliary_head(features).squeeze(-1),
            self.value_head(value_features).squeeze(-1),
        )

    def locate(self, obs: Tensor) -> Tensor:
        """Logits or means [B, A], without the value."""
        return self.policy.locate(obs)

    def distribution(self, location: Tensor) -> Distribution:
        return self.policy.distribution(location)

    def value(self, obs: Tensor) -> Tensor:
        """[B], without the policy head."""
        return self._value_of((self.value_encoder or self.policy.encoder)(obs))

    def _value_of(self, features: Tensor) -> Tensor:
        return self.value_head(features.detach() if self.detaches_value else features).squeeze(-1)

    @property
    def policy_numel(self) -> int:
        """Numbers in the policy's parameters, the first ones of `parameters()`."""
        return sum(parameter.numel() for parameter in self.policy.parameters())

    def policy_only(self) -> Policy:
        """A copy that can `locate` and give a `distribution`, without any value parameters."""
        return copy.deepcopy(self.policy)


def make(
    config: NetworkConfig,
    *,
    obs_shape: Sequence[int],
    obs_kind: ObsKind,
    num_actions: int,
    continuous: bool,
    generator_seed: int,
    auxiliary: bool = False,
) -> ActorCritic:
    """The network of a run. `num_actions` counts actions, or the dimensions of a continuous one.

    `auxiliary` adds the value head on the policy's encoder that PPG trains in its auxiliary phases.

    The weights depend on `generator_seed` alone; torch's global generator is left as it was.
    """
    name = encoder_name(config, obs_shape=obs_shape, obs_kind=obs_kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_seed)
        encoder = _make_encoder(name, config, obs_shape)
        policy = Policy(
            encoder,
            _make_head(name, encoder.num_features, num_actions, gain=0.01),
            config.log_std if continuous else None,
        )
        value_encoder = _make_encoder(name, config, obs_shape) if config.heads == "dual" else None
        value_head = _make_head(name, encoder.num_features, 1, gain=1.0)
        auxiliary_head = _make_head(name, encoder.num_features, 1, gain=1.0) if auxiliary else None
    return ActorCritic(
        policy,
        value_encoder,
        value_head,
        detaches_value=config.heads == "detached",
        auxiliary_head=auxiliary_head,
    )


def encoder_name(config: NetworkConfig, *, obs_shape: Sequence[int], obs_kind: ObsKind) -> EncoderName:
    """What `auto` means for these observations, and a refusal of encoders that cannot take them."""
    name = _own_encoder(obs_shape, obs_kind) if config.encoder == "auto" else config.encoder
    refuse_unfit(name, obs_shape, obs_kind)
    return name


def _own_encoder(obs_shape: Sequence[int], obs_kind: ObsKind) -> EncoderName:
    match obs_kind:
        case "vector":
            return "mlp"
        case "planes":
            return "minatar"
        case "image":
            return "nature" if tuple(obs_shape[-2:]) == (84, 84) else "impala"


def _make_encoder(name: EncoderName, config: NetworkConfig, obs_shape: Sequence[int]) -> Encoder:
    match name:
        case "mlp":
            return MLPEncoder(obs_shape, config.hidden_sizes)
        case "nature":
            return NatureEncoder(obs_shape)
        case "impala":
            return ImpalaEncoder(
                obs_shape, config.impala_channels, config.impala_features, config.impala_fold
            )
        case "minatar":
            return MinAtarEncoder(obs_shape)


def _make_head(name: EncoderName, features: int, outputs: int, *, gain: float) -> nn.Linear:
    head = nn.Linear(features, outputs)
    return initializers.row_norm(head, 0.1) if name == "impala" else initializers.orthogonal(head, gain)
