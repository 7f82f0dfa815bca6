"""Steps of Adam on one flat vector in native code."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from anybatch import native
from anybatch.backends.optimizers import StepNumbers
from anybatch.backends.structs import pointer
from anybatch.native.layout import WeightsStruct


class AdamKernel:
    """Steps on `values` by the gradients in `grads`, vectors of equal length that must not move in memory."""

    def __init__(self, values: Tensor, grads: Tensor):
        self._library = native.library("float64" if values.dtype == torch.float64 else "float32")
        self._kept = values, grads  # keeps their memory alive
        self._sums = torch.empty(self._library.step_sums(len(values)), dtype=torch.float64)
        self._values, self._grads = pointer(values), pointer(grads)
        self._count = len(values)

    def norm(self) -> float:
        """Euclidean norm of the gradients."""
        squared: float = self._library.squared_norm(self._grads, self._count)
        return math.sqrt(squared) if squared >= 0 else squared

    def step(
        self, state: Mapping[str, Tensor], numbers: StepNumbers, *, betas: tuple[float, float], scale: float
    ) -> None:
        """A step with the gradients times `scale`; `state` has the moments, as torch names them."""
        self._library.adam(
            self._values,
            self._grads,
            pointer(state["exp_avg"]),
            pointer(state["exp_avg_sq"]),
            self._count,
            scale,
            *betas,
            numbers.eps,
            numbers.size,
            numbers.root_correction,
        )

    def weights(
        self,
        state: Mapping[str, Tensor],
        *,
        betas: tuple[float, float],
        max_norm: float | None,
        clip_epsilon: float,
        average: Tensor | None,
    ) -> WeightsStruct:
        """What native code needs to take several steps; `average` follows the first of the parameters."""
        values, grads = self._kept
        return WeightsStruct(
            value=pointer(values),
            gradient=pointer(grads),
            first=pointer(state["exp_avg"]),
            second=pointer(state["exp_avg_sq"]),
            count=len(values),
            beta1=betas[0],
            beta2=betas[1],
            max_norm=math.inf if max_norm is None else max_norm,
            clip_epsilon=clip_epsilon,
            average=pointer(average),
            averaged=0 if average is None else len(average),
            sums=pointer(self._sums),
        )
