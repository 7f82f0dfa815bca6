"""The network of an actor and its critic."""

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from anybatch.config import NetworkConfig
from anybatch.envs.layout import ObsLayout
from anybatch.networks.distributions import Distribution, make_distribution
from anybatch.networks.encoders import (
    ImpalaEncoder,
    MinAtarEncoder,
    MLPEncoder,
    NatureEncoder,
    encoder_name,
)
from anybatch.networks.initialization import orthogonal, row_norm, seeded
from anybatch.networks.packed import FeatureEncoder, masked, whole_encoder


class Policy(nn.Module):
    """Encoder and policy head: all that acting and a proximal copy need."""

    def __init__(
        self,
        encoder: FeatureEncoder,
        head: nn.Linear,
        log_std: float | None,
        *,
        action_counts: tuple[int, ...] | None = None,
        masked_layout: ObsLayout | None = None,
    ):
        """`action_counts` are those of several choices at once; `masked_layout` gives the place of a mask."""
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.log_std = None if log_std is None else nn.Parameter(torch.full((head.out_features,), log_std))
        self.action_counts = action_counts
        self.masked_layout = masked_layout

    def policy_params(self, obs: Tensor) -> Tensor:
        """Logits or means [B, A]."""
        return self.policy_params_from(self.encoder(obs), obs)

    def policy_params_from(self, features: Tensor, obs: Tensor) -> Tensor:
        """Logits or means [B, A], from the features of `obs`."""
        return masked(self.masked_layout, self.head(features), obs)

    def distribution(self, policy_params: Tensor) -> Distribution:
        """The policy with these logits, or with these means and the current standard deviations."""
        return make_distribution(policy_params, self.log_std, self.action_counts)


class ActorCritic(nn.Module):
    """A policy and a value function. The policy's parameters come first: when flat, they are a prefix."""

    epsilon: float | None = None
    """Only a Q-network takes random actions."""
    params_name = "logits"

    def __init__(
        self,
        policy: Policy,
        value_encoder: FeatureEncoder | None,
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
        policy = self.policy.distribution(self.policy.policy_params_from(features, obs))
        return policy, self._value_of(features if self.value_encoder is None else self.value_encoder(obs))

    def auxiliary(self, obs: Tensor) -> tuple[Distribution, Tensor, Tensor]:
        """The policy, the value that its own encoder predicts, and the value; all train their encoders.

        For PPG's auxiliary phase (arXiv:2009.04416, §2.2): there a detached value head is attached too.
        """
        assert self.auxiliary_head is not None
        features = self.policy.encoder(obs)
        value_features = features if self.value_encoder is None else self.value_encoder(obs)
        return (
            self.policy.distribution(self.policy.policy_params_from(features, obs)),
            self.auxiliary_head(features).squeeze(-1),
            self.value_head(value_features).squeeze(-1),
        )

    def policy_params(self, obs: Tensor) -> Tensor:
        """Logits or means [B, A], without the value."""
        return self.policy.policy_params(obs)

    def distribution(self, policy_params: Tensor) -> Distribution:
        return self.policy.distribution(policy_params)

    def value(self, obs: Tensor) -> Tensor:
        """[B], without the policy head."""
        return self._value_of((self.value_encoder or self.policy.encoder)(obs))

    def _value_of(self, features: Tensor) -> Tensor:
        return self.value_head(features.detach() if self.detaches_value else features).squeeze(-1)

    def unmasked_params(self, features: Tensor) -> Tensor:
        """Logits or means [B, A] from the features of observations, whatever a mask forbids."""
        return self.policy.head(features)

    @property
    def encoder(self) -> FeatureEncoder:
        """The policy's encoder."""
        return self.policy.encoder

    @property
    def action_counts(self) -> tuple[int, ...] | None:
        """The number of actions of each choice, if an action makes several choices, else None."""
        return self.policy.action_counts

    @property
    def policy_numel(self) -> int:
        """How many numbers the policy's parameters have, the first ones of `parameters()`."""
        return sum(parameter.numel() for parameter in self.policy.parameters())

    def policy_only(self) -> Policy:
        """A copy of the policy alone, without any value parameters."""
        return copy.deepcopy(self.policy)


def make(
    config: NetworkConfig,
    *,
    layout: ObsLayout,
    num_actions: int,
    continuous: bool,
    generator_seed: int,
    action_counts: tuple[int, ...] | None = None,
    auxiliary: bool = False,
) -> ActorCritic:
    """The network of a run. `num_actions` counts actions, or the dimensions of a continuous one.

    `action_counts` are those of several choices at once: they add up to `num_actions`. `auxiliary` adds the
    value head on the policy's encoder that PPG trains in its auxiliary phases.

    The weights depend only on `generator_seed`; torch's global generator is unchanged.
    """
    name = encoder_name(config, layout=layout)

    def make_part(shape: tuple[int, ...]) -> FeatureEncoder:
        match name:
            case "mlp":
                return MLPEncoder(shape, config.hidden_sizes)
            case "nature":
                return NatureEncoder(shape)
            case "impala":
                return ImpalaEncoder(
                    shape, config.impala_channels, config.impala_features, config.impala_fold
                )
            case _:
                return MinAtarEncoder(shape)

    def dense(inputs: int, outputs: int) -> nn.Linear:
        layer = nn.Linear(inputs, outputs)
        return row_norm(layer, 1.4) if name == "impala" else orthogonal(layer, math.sqrt(2))

    with seeded(generator_seed):
        return assembled(
            config,
            lambda: whole_encoder(layout, make_part, flattens=name == "mlp", dense=dense, joins=True),
            row_norms=name == "impala",
            layout=layout,
            num_actions=num_actions,
            continuous=continuous,
            action_counts=action_counts,
            auxiliary=auxiliary,
        )


def assembled(
    config: NetworkConfig,
    make_encoder: Callable[[], FeatureEncoder],
    *,
    row_norms: bool = False,
    layout: ObsLayout,
    num_actions: int,
    continuous: bool,
    action_counts: tuple[int, ...] | None,
    auxiliary: bool,
) -> ActorCritic:
    """Heads on one encoder or two, by the config. `row_norms`: heads have the row norms of IMPALA's."""

    def head_of(features: int, outputs: int, gain: float) -> nn.Linear:
        layer = nn.Linear(features, outputs)
        return row_norm(layer, 0.1) if row_norms else orthogonal(layer, gain)

    encoder = make_encoder()
    policy = Policy(
        encoder,
        head_of(encoder.num_features, num_actions, 0.01),
        config.log_std if continuous else None,
        action_counts=action_counts,
        masked_layout=layout if layout.mask_width else None,
    )
    value_encoder = make_encoder() if config.heads == "dual" else None
    value_head = head_of(encoder.num_features, 1, 1.0)
    auxiliary_head = head_of(encoder.num_features, 1, 1.0) if auxiliary else None
    return ActorCritic(
        policy,
        value_encoder,
        value_head,
        detaches_value=config.heads == "detached",
        auxiliary_head=auxiliary_head,
    )
