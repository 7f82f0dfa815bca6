"""Networks of action values, normalized before every activation (PQN, arXiv:2407.04811).

Normalization lets Q-learning do without a target network. Images stay in channels_last memory, as in
encoders.py, where a layer norm runs over [height, width, channels] without moving data.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from anybatch.config import QNetworkConfig
from anybatch.envs.layout import ObsLayout
from anybatch.networks.distributions import EpsilonGreedy
from anybatch.networks.encoders import (
    MINATAR_CHANNELS,
    NATURE_KERNELS,
    AutocastModule,
    encoder_name,
    nature_sides,
    to_float,
    use_channels_last,
)
from anybatch.networks.initialization import orthogonal, seeded
from anybatch.networks.packed import FeatureEncoder, masked, whole_encoder

GAIN = math.sqrt(2)
DENSE_WIDTH = 512
"""Units of the dense layer after nature's convolutions."""
SMALL_HEAD_GAIN = 0.01
"""Gain of the output layer in the form of arXiv:2506.15544: all actions start nearly equal."""


class NormalizedLinear(nn.Module):
    """Linear, then layer norm."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear = orthogonal(nn.Linear(inputs, outputs), GAIN)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class NormalizedConvolution(nn.Module):
    """Convolution, layer norm over everything except the batch, relu. Input and output are channels_last
    images."""

    def __init__(self, convolution: nn.Conv2d, sides: tuple[int, int]):
        """`sides` are the height and width of the convolution's output."""
        super().__init__()
        self.convolution = orthogonal(convolution, GAIN)
        self.norm = nn.LayerNorm([*sides, convolution.out_channels])

    def forward(self, x: Tensor) -> Tensor:
        rows = self.convolution(x).permute(0, 2, 3, 1)  # the order in which channels_last lies in memory
        return self.norm(rows).relu_().permute(0, 3, 1, 2)


class NormalizedLayers(AutocastModule):
    """Dense layers, each followed by layer norm and relu."""

    def __init__(self, inputs: int, hidden_sizes: Sequence[int]):
        super().__init__()
        sizes = (inputs, *hidden_sizes)
        self.num_features = sizes[-1]
        self.layers = nn.ModuleList(NormalizedLinear(*pair) for pair in pairwise(sizes))

    def compute(self, inputs: Tensor) -> Tensor:
        features = inputs.flatten(1)
        for layer in self.layers:
            features = layer(features).relu_()
        return features


class Scaled(nn.Module):
    """Observations of any kind as numbers: bytes divided by 255, planes as 0 and 1."""

    def __init__(self, obs_shape: Sequence[int]):
        super().__init__()
        self.num_features = math.prod(obs_shape)

    def forward(self, obs: Tensor) -> Tensor:
        return obs if obs.is_floating_point() else to_float(obs.flatten(1), torch.float32)


class NormalizedNature(AutocastModule):
    """The convolutions of Mnih et al. 2015, normalized. [B, C, H, W] bytes → [B, F]."""

    def __init__(self, obs_shape: Sequence[int], channels: Sequence[int]):
        super().__init__()
        sizes = (obs_shape[0], *channels)
        sides = nature_sides(obs_shape)
        self.layers = nn.ModuleList(
            NormalizedConvolution(nn.Conv2d(*pair, *kernel_stride), side)
            for pair, kernel_stride, side in zip(pairwise(sizes), NATURE_KERNELS, sides, strict=True)
        )
        self.num_features = sizes[-1] * math.prod(sides[-1])
        use_channels_last(self)

    def compute(self, inputs: Tensor) -> Tensor:
        x = to_float(inputs, next(self.parameters()).dtype)
        for layer in self.layers:
            x = layer(x)
        return x.permute(0, 2, 3, 1).flatten(1)


class NormalizedMinAtar(AutocastModule):
    """One convolution of 3 × 3 over 0/1 planes, normalized. [B, C, H, W] → [B, F]."""

    def __init__(self, obs_shape: Sequence[int]):
        super().__init__()
        planes, height, width = obs_shape
        sides = (height - 2, width - 2)
        self.layer = NormalizedConvolution(nn.Conv2d(planes, MINATAR_CHANNELS, 3), sides)
        self.num_features = MINATAR_CHANNELS * math.prod(sides)
        use_channels_last(self)

    def compute(self, inputs: Tensor) -> Tensor:
        planes = to_float(inputs, next(self.parameters()).dtype)
        return self.layer(planes).permute(0, 2, 3, 1).flatten(1)


class AbsBlock(nn.Module):
    """relu(x + LN(W₂ relu(LN(W₁ x)))), the block of the code of arXiv:2605.21557."""

    def __init__(self, width: int):
        super().__init__()
        self.first = NormalizedLinear(width, width)
        self.second = NormalizedLinear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.second(self.first(x).relu_())).relu()


class CastanyerBlock(AbsBlock):
    """x + LN(W₂ relu(LN(W₁ relu(x)))), the block of arXiv:2506.15544."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x.relu()).relu_())


class MultiSkip(AutocastModule):
    """Residual blocks after a projection of the features, which is added again after every block.

        g = LN(W f),   x₀ = g,   x_k = block_k(x_{k-1}) + g

    Castanyer et al. 2025 (arXiv:2506.15544). Their form ends in one more normalized layer.
    """

    def __init__(self, inputs: int, blocks: int, width: int, form: Literal["abs", "castanyer"]):
        super().__init__()
        self.num_features = width
        self.projection = NormalizedLinear(inputs, width)
        block = AbsBlock if form == "abs" else CastanyerBlock
        self.blocks = nn.ModuleList(block(width) for _ in range(blocks))
        self.last = NormalizedLinear(width, width) if form == "castanyer" else None

    def compute(self, inputs: Tensor) -> Tensor:
        everywhere = self.projection(inputs)
        x = everywhere
        for block in self.blocks:
            x = block(x) + everywhere
        return x if self.last is None else self.last(x).relu_()


class QNetwork(nn.Module):
    """Action values, and the policy that takes the best action except for a share ε of random ones.

    For a rollout it looks like an actor-critic with one encoder: its policy params are action values, and
    the value of a state is its best action's.
    """

    shares_encoder = True
    action_counts = None
    params_name = "action_values"

    def __init__(
        self,
        encoder: FeatureEncoder,
        trunk: NormalizedLayers | MultiSkip,
        head: nn.Module,
        *,
        masked_layout: ObsLayout | None = None,
    ):
        """`masked_layout` gives the place of an action mask in the observations."""
        super().__init__()
        self.encoder = encoder
        self.trunk = trunk
        self.head = head
        self.masked_layout = masked_layout
        self.epsilon = 0.0

    def policy_params(self, obs: Tensor) -> Tensor:
        """Action values [B, A]; those of forbidden actions are below all others."""
        return masked(self.masked_layout, self.unmasked_params(self.encoder(obs)), obs)

    def unmasked_params(self, features: Tensor) -> Tensor:
        """Action values [B, A] from the features of observations, whatever a mask forbids."""
        return self.head(self.trunk(features))

    def distribution(self, policy_params: Tensor) -> EpsilonGreedy:
        return EpsilonGreedy(policy_params, self.epsilon, masked=self.masked_layout is not None)

    def value(self, obs: Tensor) -> Tensor:
        """Value of the best action, [B]."""
        return self.policy_params(obs).amax(-1)

    def forward(self, obs: Tensor) -> tuple[EpsilonGreedy, Tensor]:
        """The policy and the value [B] at `obs`."""
        action_values = self.policy_params(obs)
        return self.distribution(action_values), action_values.amax(-1)


def make_q_network(
    config: QNetworkConfig,
    *,
    layout: ObsLayout,
    num_actions: int,
    generator_seed: int,
) -> QNetwork:
    """The network of a run; its weights depend only on `generator_seed`."""
    name = encoder_name(config, layout=layout)

    def make_part(shape: tuple[int, ...]) -> FeatureEncoder:
        match name:
            case "mlp":
                return Scaled(shape)
            case "nature":
                return NormalizedNature(shape, config.channels)
            case _:
                return NormalizedMinAtar(shape)

    with seeded(generator_seed):
        encoder = whole_encoder(layout, make_part, flattens=name == "mlp", dense=NormalizedLinear)
        sizes = (DENSE_WIDTH,) if name == "nature" else config.hidden_sizes
        return assembled_q_network(config, encoder, sizes, layout=layout, num_actions=num_actions)


def assembled_q_network(
    config: QNetworkConfig,
    encoder: FeatureEncoder,
    hidden_sizes: Sequence[int],
    *,
    layout: ObsLayout,
    num_actions: int,
) -> QNetwork:
    """Residual blocks or dense layers, and the output layer, on an encoder."""
    trunk = (
        MultiSkip(encoder.num_features, config.blocks, config.block_width, config.block_form)
        if config.blocks
        else NormalizedLayers(encoder.num_features, hidden_sizes)
    )
    if config.blocks and config.block_form == "abs":
        head = NormalizedLinear(trunk.num_features, num_actions)
    else:
        gain = SMALL_HEAD_GAIN if config.blocks else GAIN
        head = orthogonal(nn.Linear(trunk.num_features, num_actions), gain)
    return QNetwork(encoder, trunk, head, masked_layout=layout if layout.mask_width else None)
