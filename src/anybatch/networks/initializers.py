"""How weights start; biases start at 0. Each function changes its layer and returns it."""

from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """Rows orthogonal with length `gain` (arXiv:1312.6120), as in most implementations of PPO."""
    nn.init.orthogonal_(layer.weight, gain)
    return _with_zero_bias(layer)


def row_norm(layer: Layer, scale: float) -> Layer:
    """Rescale the weights behind each output to L2 norm `scale`, as in the code of arXiv:2110.00641.

    The directions stay those torch drew when the layer was made.
    """
    with torch.no_grad():
        norm = layer.weight.flatten(1).norm(dim=1)
        layer.weight.mul_((scale / norm).view(-1, *[1] * (layer.weight.ndim - 1)))
    return _with_zero_bias(layer)


def _with_zero_bias(layer: Layer) -> Layer:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
