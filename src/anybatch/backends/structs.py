"""The memory of native code: structures filled from tensors, and scratch memory."""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from anybatch.backends.threads import Threads
from anybatch.native.layout import (
    MOST_LAYERS,
    ActorCriticStruct,
    EncoderStruct,
    LayerStruct,
    LinearStruct,
    PolicyStruct,
    QNetworkStruct,
    StepStruct,
)
from anybatch.networks.actor_critic import ActorCritic, Policy
from anybatch.networks.encoders import MinAtarEncoder, MLPEncoder
from anybatch.networks.packed import FeatureEncoder
from anybatch.networks.q_network import (
    NormalizedLayers,
    NormalizedLinear,
    NormalizedMinAtar,
    QNetwork,
    Scaled,
)

Schedule = ctypes.Array[StepStruct]
"""Gradient steps that follow each other."""
MOST_SIZES = 4
"""Number of microbatch sizes for which memory is kept."""


STEPS = np.dtype(StepStruct)


def columns(schedule: Schedule) -> np.ndarray:
    """The fields of all steps, in the same memory: an object for each step would cost as much as a step."""
    return np.frombuffer(memoryview(schedule), STEPS)


def pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def linear(layer: nn.Linear | nn.Conv2d) -> LinearStruct:
    assert layer.bias is not None
    outputs, inputs = layer.weight.shape[0], layer.weight[0].numel()
    return LinearStruct(
        inputs,
        outputs,
        pointer(layer.weight),
        pointer(layer.bias),
        pointer(layer.weight.grad),
        pointer(layer.bias.grad),
    )


def layer(map_: nn.Linear | nn.Conv2d, norm: nn.LayerNorm | None = None, *, relu: bool) -> LayerStruct:
    """A linear map, its layer norm and its activation: relu, else tanh."""
    if norm is None:
        return LayerStruct(linear=linear(map_), relu=relu)
    return LayerStruct(
        linear=linear(map_),
        norm_weight=pointer(norm.weight),
        norm_bias=pointer(norm.bias),
        d_norm_weight=pointer(norm.weight.grad),
        d_norm_bias=pointer(norm.bias.grad),
        relu=relu,
    )


def dense(layers: Sequence[LayerStruct]) -> EncoderStruct:
    """Layers on a vector."""
    return EncoderStruct(layers=len(layers), layer=(LayerStruct * MOST_LAYERS)(*layers))


def over_planes(
    convolution: LayerStruct, shape: Sequence[int], layers: Sequence[LayerStruct], *, channels_first: bool
) -> EncoderStruct:
    """A convolution of 3 × 3 over 0/1 planes of that shape, then layers."""
    encoder = dense(layers)
    encoder.planes, encoder.height, encoder.width = shape
    encoder.channels_first, encoder.convolution = channels_first, convolution
    return encoder


def encoder(module: FeatureEncoder | None, obs_shape: Sequence[int]) -> EncoderStruct:
    """The encoder of a policy or value function; without layers for None."""
    if module is None:
        return EncoderStruct()
    if isinstance(module, MLPEncoder):
        return dense([layer(cast(nn.Linear, map_), relu=False) for map_ in module.layers])
    assert isinstance(module, MinAtarEncoder)
    return over_planes(
        layer(module.convolution, relu=True),
        obs_shape,
        [layer(module.dense, relu=True)],
        channels_first=True,
    )


def policy(module: Policy, obs_shape: Sequence[int]) -> PolicyStruct:
    log_std = module.log_std
    return PolicyStruct(
        encoder(module.encoder, obs_shape),
        linear(module.head),
        pointer(log_std),
        None if log_std is None else pointer(log_std.grad),
    )


def actor_critic(network: ActorCritic, obs_shape: Sequence[int]) -> ActorCriticStruct:
    return ActorCriticStruct(
        policy(network.policy, obs_shape),
        encoder(network.value_encoder, obs_shape),
        linear(network.value_head),
        int(network.detaches_value),
    )


def q_network(network: QNetwork, obs_shape: Sequence[int]) -> QNetworkStruct:
    """Normalized layers on a vector, or on the convolution of 0/1 planes."""
    assert isinstance(network.trunk, NormalizedLayers) and isinstance(network.head, nn.Linear)
    layers = [
        layer(module.linear, module.norm, relu=True)
        for module in cast(Iterable[NormalizedLinear], network.trunk.layers)
    ]
    if isinstance(network.encoder, Scaled):
        return QNetworkStruct(dense(layers), linear(network.head))
    assert isinstance(network.encoder, NormalizedMinAtar)
    first = network.encoder.layer
    convolution = layer(first.convolution, first.norm, relu=True)
    return QNetworkStruct(
        over_planes(convolution, obs_shape, layers, channels_first=False), linear(network.head)
    )


class Outputs:
    """The outputs of a head on an encoder, for any number of observations."""

    def __init__(
        self,
        library: ctypes.CDLL,
        encoder: EncoderStruct,
        head: LinearStruct,
        dtype: torch.dtype,
        threads: int,
    ):
        self._library, self._encoder, self._head = library, encoder, head
        self._threads = Threads(threads)
        self._work = torch.empty(library.outputs_workspace(ctypes.byref(encoder), threads), dtype=dtype)

    def __call__(self, obs: Tensor) -> Tensor:
        """[B, outputs] of contiguous observations [B, …]."""
        outputs = torch.empty(len(obs), self._head.outputs, dtype=self._work.dtype)
        self._threads.run(
            len(obs),
            lambda threads: self._library.outputs(
                ctypes.byref(self._encoder),
                ctypes.byref(self._head),
                len(obs),
                pointer(obs),
                pointer(outputs),
                pointer(self._work),
                threads,
            ),
        )
        return outputs


class Workspace:
    """Scratch memory by number of samples. Few sizes occur, and reused memory is in the cache."""

    def __init__(self, numbers_for: Callable[[int], int], dtype: torch.dtype):
        """`numbers_for` returns how many numbers a number of samples needs."""
        self._numbers_for = numbers_for
        self._dtype = dtype
        self._kept: dict[int, Tensor] = {}

    def for_samples(self, count: int) -> int:
        """The address of memory to work on `count` samples."""
        if count not in self._kept:
            if len(self._kept) == MOST_SIZES:
                self._kept.clear()
            self._kept[count] = torch.empty(self._numbers_for(count), dtype=self._dtype)
        return self._kept[count].data_ptr()
