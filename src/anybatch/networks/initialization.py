"""Initial weights, which depend on a seed alone; biases start at 0.

`orthogonal` and `row_norm` change a layer and return it. They compute in double precision: in single
precision, processors differ in the last digits, and a run with the same seed would differ between machines.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)

_ONE_AT_A_TIME = threading.RLock()
"""torch initializes layers from its one global generator, which all threads share."""


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


@contextlib.contextmanager
def seeded(generator_seed: int) -> Iterator[None]:
    """Layers made in here get their weights from `generator_seed`; torch's generator is left as it was."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_seed)
        yield
