"""Initial weights; biases start at 0. Each function changes its layer and returns it.

Both compute in double precision: in single precision, processors differ in the last digits, and a run with
the same seed would differ between machines.
"""

from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """Rows orthogonal with length `gain` (arXiv:1312.6120), as in most implementations of PPO."""
    weight = torch.empty(layer.weight.shape, dtype=torch.float64)
    nn.init.orthogonal_(weight, gain)
    with torch.no_grad():
        layer.weight.copy_(weight)
    return _with_zero_bias(layer)


def row_norm(layer: Layer, scale: float) -> Layer:
    """Rescale the weights behind each output to L2 norm `scale`, as in the code of arXiv:2110.00641.

    The directions stay those torch drew when the layer was made.
    """
    with torch.no_grad():
        weight = layer.weight.double()
        norm = weight.flatten(1).norm(dim=1)
        layer.weight.copy_(weight * (scale / norm).view(-1, *[1] * (weight.ndim - 1)))
    return _with_zero_bias(layer)


def _with_zero_bias(layer: Layer) -> Layer:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
