"""One gradient step: microbatches summed, divided by the valid count over all ranks, clipped, stepped once.

k microbatches equal one big batch up to float rounding, so the microbatch decides memory and speed only.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from anybatch.batch.rescaling import Hyperparameters
from anybatch.config import OptimizerConfig
from anybatch.distributed import collectives
from anybatch.equations import noise_scale
from anybatch.kernels.adam import AdamKernel
from anybatch.learning.minibatch import microbatches
from anybatch.learning.noise import NoiseAverage
from anybatch.learning.optimizers import FlatAdam, first_state, make_optimizer
from anybatch.networks.flat import FlatParameters
from anybatch.runs.state_fit import refuse_unlike

CLIP_EPSILON = 1e-6
"""As torch.nn.utils.clip_grad_norm_ has it."""

Accumulated = TypeVar("Accumulated")
Record = TypeVar("Record", bound=tuple[Tensor, ...])
LossOf = Callable[[Tensor], tuple[Tensor, Record]]
"""Sample indices to per-sample losses [b] and whatever per-sample tensors are to be kept for metrics."""
AddGradient = Callable[[Tensor, float], Record]
"""Adds the gradient of the losses of sample indices, divided by a number, to the flat buffer of gradients."""


def by_autograd(loss_of: LossOf[Record]) -> AddGradient[Record]:
    """The gradient of a loss that is written in torch."""

    def add_gradient(part: Tensor, count: float) -> Record:
        loss, record = loss_of(part)
        loss.sum().div(count).backward()
        return record

    return add_gradient


@dataclass
class StepCounts:
    """Gradient steps of a run, and of its current iteration."""

    taken: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    norms: list[float] = field(default_factory=list[float])
    """Gradient norms of this iteration, before clipping."""


class GradientSteps:
    """The gradient steps of one network."""

    def __init__(
        self,
        flat: FlatParameters,
        config: OptimizerConfig,
        *,
        microbatch: int,
        say: Callable[[str], None],
        networks: Mapping[str, slice],
    ):
        """`networks` names the stretches of the flat vector whose noise scales are measured apart."""
        self.flat = flat
        self.config = config
        self.microbatch = microbatch
        self.say = say
        self.parameter = flat.as_parameter()
        self.optimizer = make_optimizer(self.parameter, config)
        self.networks = networks
        self.noise = {name: NoiseAverage() for name in networks}
        self.counts = StepCounts()
        self.kernel: AdamKernel | None = None

    def use_native_code(self) -> None:
        """Take norms and Adam's steps without torch's overhead."""
        self.kernel = AdamKernel(self.flat.values, self.flat.grads)
        if isinstance(self.optimizer, FlatAdam):
            self.optimizer.kernel = self.kernel

    def use_torch(self) -> None:
        """Leave native code."""
        self.kernel = None
        if isinstance(self.optimizer, FlatAdam):
            self.optimizer.kernel = None

    def set_learning_rate(self, learning_rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = learning_rate

    def begin_iteration(self, learning_rate: float, hyperparameters: Hyperparameters) -> None:
        """Take over the numbers that this iteration's steps have, and count their norms anew."""
        self.counts.norms.clear()
        self.set_learning_rate(learning_rate)
        group = self.optimizer.param_groups[0]
        if "betas" in group:
            group["betas"] = (hyperparameters.beta1, hyperparameters.beta2)

    def gradient(self, indices: Tensor, add_gradient: AddGradient[Record], count: float) -> list[Record]:
        """Leave the mean gradient of a minibatch in the flat buffer; `count` is its size over all ranks."""
        records = self._within_memory(
            lambda: [add_gradient(part, count) for part in microbatches(indices, self.microbatch)]
        )
        collectives.sum_over_ranks(self.flat.grads)
        return records

    def measured_gradient(
        self, indices: Tensor, add_gradient: AddGradient[Record], count: float
    ) -> list[Record]:
        """`gradient`, which also measures the noise scale, from microbatches: `indices` in random order."""
        records, weighted_squares = self._within_memory(
            lambda: self._add_measured(indices, add_gradient, count)
        )
        # Of several ranks, one may have no sample of a small minibatch: its empty part says nothing of noise.
        parts = len(records) if len(indices) else 0
        sums = torch.tensor([*weighted_squares, parts], dtype=torch.float64)
        *weighted_squares, number = collectives.sum_over_ranks(sums).tolist()
        collectives.sum_over_ranks(self.flat.grads)
        means = self._squares(self.flat.grads)
        if number > 1 and all(map(math.isfinite, weighted_squares)):
            for noise, squares, mean in zip(self.noise.values(), weighted_squares, means, strict=True):
                noise.add(*noise_scale.noise_scale_from_squares(squares, mean, count, number))
        return records

    def apply(self) -> bool:
        """Clip and step with the gradient in the buffer. A non-finite gradient changes nothing."""
        kernel = self.kernel
        size = torch.linalg.vector_norm(self.flat.grads).item() if kernel is None else kernel.norm()
        if not math.isfinite(size):
            self.counts.skipped += 1
            self.counts.skipped_in_a_row += 1
            return False
        limit = self.config.max_grad_norm
        self.optimizer.take_step(limit / (size + CLIP_EPSILON) if limit is not None and size > limit else 1.0)
        self.counts.norms.append(size)
        self.counts.taken += 1
        self.counts.skipped_in_a_row = 0
        return True

    def metrics(self) -> dict[str, float | None]:
        """Mean norm of this iteration's gradients, and the share of them that was clipped."""
        limit, norms = self.config.max_grad_norm, self.counts.norms
        if not norms:
            return {}
        clipped = None if limit is None else sum(norm > limit for norm in norms) / len(norms)
        return {"losses/grad_norm": sum(norms) / len(norms), "losses/grad_clip_fraction": clipped}

    def _add_measured(
        self, indices: Tensor, add_gradient: AddGradient[Record], count: float
    ) -> tuple[list[Record], list[float]]:
        """The records of at least two microbatches, and Σ b‖g‖² over their mean gradients, by network."""
        records: list[Record] = []
        weighted_squares, before = [0.0] * len(self.networks), torch.zeros_like(self.flat.grads)
        for part in microbatches(indices, min(self.microbatch, max(1, -(-len(indices) // 2)))):
            records.append(add_gradient(part, count))
            # What a part adds is its sum ÷ count: its mean gradient g has b‖g‖² = ‖added‖² count² / b.
            scale = count**2 / max(len(part), 1)
            added = self._squares(self.flat.grads - before)
            weighted_squares = [
                total + scale * square for total, square in zip(weighted_squares, added, strict=True)
            ]
            before = self.flat.grads.clone()
        return records, weighted_squares

    def _squares(self, gradient: Tensor) -> list[float]:
        """Squared norms, by network."""
        return [float(gradient[where].square().sum()) for where in self.networks.values()]

    def _within_memory(self, accumulate: Callable[[], Accumulated]) -> Accumulated:
        """Sum gradients into the buffer, from the start with smaller microbatches if memory runs out."""
        while True:
            try:
                self.flat.grads.zero_()
                return accumulate()
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                self._halve_microbatch(error)

    def _halve_microbatch(self, error: Exception) -> None:
        out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        # On a CPU torch has no error class of its own for it.
        if not (out_of_memory or "allocate memory" in str(error)) or self.microbatch == 1:
            raise error
        self.microbatch = -(-self.microbatch // 2)
        self.say(f"Out of memory: trying again with a microbatch of {self.microbatch}.")

    def state_dict(self) -> dict[str, object]:
        return {
            "optimizer": dict(self.optimizer.state.get(self.parameter, {})),
            "taken": self.counts.taken,
            "skipped": self.counts.skipped,
            "skipped_in_a_row": self.counts.skipped_in_a_row,
            "noise": {name: [noise.trace, noise.signal, noise.weight] for name, noise in self.noise.items()},
        }

    def load_state_dict(self, state: dict) -> None:
        if state["optimizer"]:
            refuse_unlike(state["optimizer"], first_state(self.parameter, self.config), "the optimizer")
            self.optimizer.state[self.parameter] = {
                name: value.to(self.parameter.device, copy=True) for name, value in state["optimizer"].items()
            }
        self.counts = StepCounts(state["taken"], state["skipped"], state["skipped_in_a_row"])
        self.noise = {name: NoiseAverage(*numbers) for name, numbers in state["noise"].items()}
