"""A network over more observations than fit the device at once."""

from collections.abc import Callable

import torch
from torch import Tensor


def in_chunks(
    network: Callable[[Tensor], Tensor], obs: Tensor, *, chunk: int, device: torch.device
) -> Tensor:
    """`network` over [B, …] observations in parts of at most `chunk`, gathered on the CPU."""
    return torch.cat([network(part.to(device)).cpu() for part in obs.split(chunk)])
