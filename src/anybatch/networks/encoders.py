"""Encoders: networks from observations [B, …] to features [B, F].

Convolutions keep weights and images in channels_last memory: on a CPU, at microbatches of 64 to 128, that
trains the Nature encoder 1.1 times and IMPALA 1.4 times as fast. Shapes and names stay the usual ones.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anybatch.config import NetworkConfig, QNetworkConfig
from anybatch.envs.layout import ObsLayout
from anybatch.errors import ConfigError
from anybatch.networks.initialization import orthogonal, row_norm

NATURE_KERNELS = ((8, 4), (4, 2), (3, 1))
"""Kernel and stride of the Nature encoder's convolutions."""
NATURE_SMALLEST_SIDE = 36
"""Smallest side of an image, which the convolutions reduce to one feature."""
MINATAR_CHANNELS = 16
WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their number of bytes."""


class AutocastModule(nn.Module):
    """A module that computes in bf16 if it is set to; its result is float32 either way."""

    computes_in_bf16 = False

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.computes_in_bf16:
            return self.compute(inputs)
        with torch.autocast(inputs.device.type, torch.bfloat16):
            return self.compute(inputs).float()

    def compute(self, inputs: Tensor) -> Tensor:
        """The forward pass, in the precision of its surroundings."""
        raise NotImplementedError


def compute_in_bf16(network: nn.Module) -> None:
    """Let the encoders and trunks of `network` compute in bf16; weights, and the heads, stay float32."""
    for module in network.modules():
        if isinstance(module, AutocastModule):
            module.computes_in_bf16 = True


def to_float(obs: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers in [0, 1], planes as 0 and 1, and floats unchanged. Images become channels_last."""
    if obs.ndim == 4:  # permuting bytes before they become floats is the cheapest order
        obs = obs.contiguous(memory_format=torch.channels_last)
    return obs.to(dtype).mul_(1 / 255) if obs.dtype == torch.uint8 else obs.to(dtype)


def fold_pixels(images: Tensor, fold: int) -> Tensor:
    """Images [B, C, H, W] as [B, C·fold², H/fold, W/fold], in the order of `pixel_unshuffle`."""
    # An exported graph cannot view bytes as words.
    if fold not in WORDS or images.dtype != torch.uint8 or torch.compiler.is_exporting():
        return F.pixel_unshuffle(images, fold)
    batch, channels, height, width = images.shape
    # Neighbors in a row stay neighbors: moving them as one word costs a sixth of moving each byte.
    words = images.contiguous().view(WORDS[fold])
    rows, columns = height // fold, width // fold
    placed = words.view(batch, channels, rows, fold, columns).permute(0, 2, 4, 1, 3)
    folded = placed.reshape(batch, rows, columns, channels * fold).view(torch.uint8)
    return folded.permute(0, 3, 1, 2)


def use_channels_last(module: nn.Module) -> None:
    """Store the weights of all convolutions in channels_last memory."""
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


class MLPEncoder(AutocastModule):
    """Tanh layers with orthogonal weights of gain √2."""

    def __init__(self, obs_shape: Sequence[int], hidden_sizes: Sequence[int]):
        super().__init__()
        sizes = (math.prod(obs_shape), *hidden_sizes)
        self.num_features = sizes[-1]
        layers = [orthogonal(nn.Linear(*pair), math.sqrt(2)) for pair in pairwise(sizes)]
        self.layers = nn.ModuleList(layers)
        # Calling a module costs more than the arithmetic of a small layer.
        self._weights_and_biases = [(layer.weight, layer.bias) for layer in layers]

    def compute(self, inputs: Tensor) -> Tensor:
        features = inputs.flatten(1)
        if not features.is_floating_point():
            features = to_float(features, self._weights_and_biases[0][0].dtype)
        for weight, bias in self._weights_and_biases:
            features = F.linear(features, weight, bias).tanh()
        return features


class NatureEncoder(AutocastModule):
    """Three convolutions and a dense layer (Mnih et al. 2015), orthogonal weights of gain √2."""

    num_features = 512

    def __init__(self, obs_shape: Sequence[int]):
        super().__init__()
        sides, channels = nature_sides(obs_shape), (obs_shape[0], 32, 64, 64)
        self.convolutions = nn.ModuleList(
            orthogonal(nn.Conv2d(*pair, *kernel_stride), math.sqrt(2))
            for pair, kernel_stride in zip(pairwise(channels), NATURE_KERNELS, strict=True)
        )
        pixels = math.prod(sides[-1])
        self.dense = orthogonal(nn.Linear(channels[-1] * pixels, self.num_features), math.sqrt(2))
        use_channels_last(self)

    def compute(self, inputs: Tensor) -> Tensor:
        features = to_float(inputs, self.dense.weight.dtype)
        for convolution in self.convolutions:
            features = convolution(features).relu_()
        return self.dense(features.flatten(1)).relu_()


def nature_sides(obs_shape: Sequence[int]) -> list[tuple[int, int]]:
    """Height and width after each of the convolutions, or an error if images are too small for them."""
    _, height, width = obs_shape
    if min(height, width) < NATURE_SMALLEST_SIDE:
        raise ConfigError(
            f"network.encoder = nature needs images of at least {NATURE_SMALLEST_SIDE} pixels a side, "
            f"these are {height}×{width}; mlp works for any size, and so does impala, which PQN does not have"
        )
    sides: list[tuple[int, int]] = []
    for kernel, stride in NATURE_KERNELS:
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        sides.append((height, width))
    return sides


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))), channels kept."""

    def __init__(self, channels: int, scale: float):
        super().__init__()
        self.first = row_norm(nn.Conv2d(channels, channels, 3, padding=1), scale)
        self.second = row_norm(nn.Conv2d(channels, channels, 3, padding=1), scale)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x.relu()).relu_())


class ImpalaStack(nn.Module):
    """Convolution, pooling to half the size, two residual blocks."""

    def __init__(self, channels_in: int, channels: int, residual_scale: float):
        super().__init__()
        self.convolution = row_norm(nn.Conv2d(channels_in, channels, 3, padding=1), 1.0)
        self.blocks = nn.ModuleList([ResidualBlock(channels, residual_scale) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.convolution(x), kernel_size=3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return x


class ImpalaEncoder(AutocastModule):
    """Residual stacks and a dense layer (arXiv:1802.01561), weights as in the code of arXiv:2110.00641."""

    def __init__(self, obs_shape: Sequence[int], channels: Sequence[int], features: int, fold: int = 1):
        """Squares of `fold` × `fold` pixels become channels before the first convolution: nothing is lost,
        and all that follows works on fewer positions."""
        super().__init__()
        channels_in, height, width = obs_shape
        if height % fold or width % fold:
            raise ConfigError(
                f"network.impala-fold = {fold} must divide the sides of the images, {height}×{width}"
            )
        self.fold = fold
        channels_in, height, width = channels_in * fold**2, height // fold, width // fold
        self.num_features = features
        # Each residual block adds to its input: smaller weights keep the sum over all stacks bounded.
        residual_scale = math.sqrt(1 / math.sqrt(len(channels)) / math.sqrt(2))
        self.stacks = nn.ModuleList()
        for channels_out in channels:
            self.stacks.append(ImpalaStack(channels_in, channels_out, residual_scale))
            channels_in, height, width = channels_out, -(-height // 2), -(-width // 2)
        self.dense = row_norm(nn.Linear(channels_in * height * width, features), 1.4)
        use_channels_last(self)

    def compute(self, inputs: Tensor) -> Tensor:
        folded = inputs if self.fold == 1 else fold_pixels(inputs, self.fold)
        x = to_float(folded, self.dense.weight.dtype)
        for stack in self.stacks:
            x = stack(x)
        return self.dense(x.relu().flatten(1)).relu_()


class MinAtarEncoder(AutocastModule):
    """A convolution of 3 × 3 over 0/1 planes and a dense layer, orthogonal weights of gain √2.

    The sizes are those of the MinAtar network of PQN (arXiv:2407.04811), without its normalization.
    """

    num_features = 128

    def __init__(self, obs_shape: Sequence[int]):
        super().__init__()
        planes, height, width = obs_shape
        self.convolution = orthogonal(nn.Conv2d(planes, MINATAR_CHANNELS, 3), math.sqrt(2))
        inputs = MINATAR_CHANNELS * (height - 2) * (width - 2)
        self.dense = orthogonal(nn.Linear(inputs, self.num_features), math.sqrt(2))
        use_channels_last(self)

    def compute(self, inputs: Tensor) -> Tensor:
        planes = to_float(inputs, self.dense.weight.dtype)
        return self.dense(self.convolution(planes).relu_().flatten(1)).relu_()


def encoder_name(config: NetworkConfig | QNetworkConfig, *, layout: ObsLayout) -> str:
    """The encoder for these observations, with `auto` resolved. Refuses encoders that do not fit them."""
    encoder = config.encoder_for(layout.kind, layout.seen_shape[-2:])
    expected = {"mlp": layout.kind, "minatar": "planes"}.get(encoder, "image")
    if layout.kind == expected and (encoder == "mlp" or len(layout.seen_shape) == 3):
        return encoder
    shape = "×".join(str(size) for size in layout.seen_shape)
    needed = {"planes": "0/1 planes", "image": "images"}[expected]
    bytes_or_numbers = "bytes" if layout.image_dtype == np.uint8 else "numbers"
    given = {"vector": "numbers", "planes": "0/1 planes", "image": bytes_or_numbers}[layout.kind]
    raise ConfigError(
        f"network.encoder = {encoder} needs {needed} of channels × height × width, "
        f"these observations are {shape} {given}; mlp works for them"
    )
