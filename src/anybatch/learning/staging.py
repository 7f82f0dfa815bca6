"""Moving samples to the device that trains on them. On a CPU they are already there."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from anybatch import machine

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Samples = TypeVar("Samples", bound="DataclassInstance")
STAYS = ("valid", "all_valid")
"""The fields that minibatches are made of, on the host."""


def on_device(samples: Samples, device: torch.device) -> Samples:
    """An iteration batch with its tensors on `device`, moved once if they fit; otherwise unchanged."""
    named: dict[str, Any] = {field.name: getattr(samples, field.name) for field in fields(samples)}
    tensors = {
        name: value for name, value in named.items() if isinstance(value, Tensor) and name not in STAYS
    }
    count = sum(tensor.nbytes for tensor in tensors.values() if tensor.device != device)
    if count == 0 or not machine.fits_beside_training(count, device):
        return samples
    return replace(samples, **{name: staged(tensor, device) for name, tensor in tensors.items()})


def take(tensor: Tensor, part: Tensor, device: torch.device) -> Tensor:
    """The samples of a microbatch, on the network's device. `index_select` costs half of indexing."""
    return staged(tensor.index_select(0, part), device)


def staged(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`, copied from pinned memory so that the program need not wait."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
