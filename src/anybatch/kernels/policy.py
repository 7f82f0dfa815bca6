"""Acting with a policy, and the gradient of its loss, as one native call each."""

import ctypes
from ctypes import byref

import torch
from torch import Tensor

from anybatch import native
from anybatch.kernels import structs
from anybatch.kernels.structs import MOST_LAYERS, ObjectiveStruct, RecordStruct, SamplesStruct, pointer
from anybatch.networks.actor_critic import ActorCritic, Policy
from anybatch.networks.encoders import MLPEncoder

MOST_WORKSPACES = 4
"""Sizes of microbatches that memory is kept for."""


def unsupported(network: ActorCritic) -> str | None:
    """Why there is no native code for `network`, or None if there is."""
    policy = network.policy
    encoders = [policy.encoder, *([] if network.value_encoder is None else [network.value_encoder])]
    if not all(type(encoder) is MLPEncoder for encoder in encoders):
        return "it is for mlp encoders of plain vectors"
    if any(len(encoder.layers) > MOST_LAYERS for encoder in encoders if isinstance(encoder, MLPEncoder)):
        return f"it is for at most {MOST_LAYERS} layers"
    if policy.masked_layout is not None or policy.action_counts is not None:
        return "it has no action masks and no actions of several choices"
    if policy.head.weight.device.type != "cpu":
        return "it is for the CPU"
    return None


class PolicyKernel:
    """A policy and its value function, in the memory that `network` has its parameters and gradients in.

    `proximal` is the averaged policy, where the proximal policy is one.
    """

    def __init__(self, network: ActorCritic, proximal: Policy | None):
        self.network = network
        self.dtype = network.policy.head.weight.dtype
        self._library = native.library("float64" if self.dtype == torch.float64 else "float32")
        self._library.ppo_workspace.restype = ctypes.c_int64
        self._network = structs.actor_critic(network)
        self._proximal = None if proximal is None else structs.policy(proximal)
        self._workspaces: dict[int, Tensor] = {}

    def act(
        self, count: int, obs: int, noise: int, location: int, action: int, value: int | None = None
    ) -> None:
        """Locations, the actions that `noise` chooses and, where asked for, values of `count` observations.

        All are addresses of contiguous rows: this is called at every env step, and making tensors costs time.
        """
        self._library.act(
            byref(self._network),
            count,
            ctypes.c_void_p(obs),
            ctypes.c_void_p(noise),
            ctypes.c_void_p(location),
            ctypes.c_void_p(action),
            ctypes.c_void_p(value),
            self._work_on(count),
        )

    def add_gradient(self, samples: SamplesStruct, objective: ObjectiveStruct, part: Tensor) -> list[Tensor]:
        """Add the gradient of the samples `part` to the buffers; the columns of the record, each [b]."""
        part = part.contiguous()
        record = torch.empty(len(RecordStruct._fields_), len(part), dtype=self.dtype)
        start, row = record.data_ptr(), record.stride(0) * record.element_size()
        self._library.ppo_gradient(
            byref(self._network),
            None if self._proximal is None else byref(self._proximal),
            byref(samples),
            byref(objective),
            ctypes.c_void_p(pointer(part)),
            len(part),
            byref(RecordStruct(*range(start, start + row * len(record), row or 1))),
            self._work_on(len(part)),
        )
        return list(record.unbind())

    def _work_on(self, count: int) -> ctypes.c_void_p:
        """Memory to work in. Few sizes occur, and one that has been used is in the cache already."""
        if count not in self._workspaces:
            if len(self._workspaces) == MOST_WORKSPACES:
                self._workspaces.clear()
            numbers = self._library.ppo_workspace(byref(self._network), ctypes.c_int64(count))
            self._workspaces[count] = torch.empty(numbers, dtype=self.dtype)
        return ctypes.c_void_p(pointer(self._workspaces[count]))
