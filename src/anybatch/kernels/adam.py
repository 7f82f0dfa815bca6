"""A step of Adam on one flat vector, as one native call."""

import ctypes
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from anybatch import native
from anybatch.kernels.structs import pointer


class AdamKernel:
    """Steps on `values` by the gradients in `grads`, vectors of equal length that must not move in memory."""

    def __init__(self, values: Tensor, grads: Tensor):
        self._library = native.library("float64" if values.dtype == torch.float64 else "float32")
        self._library.squared_norm.restype = ctypes.c_double
        self._kept = values, grads  # keeps their memory alive
        self._values, self._grads = ctypes.c_void_p(pointer(values)), ctypes.c_void_p(pointer(grads))
        self._count = ctypes.c_int64(len(values))

    def norm(self) -> float:
        """Euclidean norm of the gradients."""
        squared: float = self._library.squared_norm(self._grads, self._count)
        return math.sqrt(squared) if squared >= 0 else squared

    def step(
        self,
        state: Mapping[str, Tensor],
        number: int,
        *,
        learning_rate: float,
        betas: tuple[float, float],
        eps: float,
        scale: float,
    ) -> None:
        """Step `number`, with the gradients times `scale`; `state` holds the moments, with torch's names."""
        beta1, beta2 = betas
        double = ctypes.c_double
        self._library.adam(
            self._values,
            self._grads,
            ctypes.c_void_p(pointer(state["exp_avg"])),
            ctypes.c_void_p(pointer(state["exp_avg_sq"])),
            self._count,
            double(scale),
            double(beta1),
            double(beta2),
            double(eps),
            double(learning_rate / (1 - beta1**number)),
            double(math.sqrt(1 - beta2**number)),
        )
