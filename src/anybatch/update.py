"""One gradient step: microbatches summed, divided by the valid count over all ranks, clipped, stepped once.

k microbatches equal one big batch up to float rounding, so the microbatch decides memory and speed only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anybatch.batch_plan import Hyperparameters
from anybatch.config import OptimizerConfig
from anybatch.distributed import collectives
from anybatch.equations import noise_scale
from anybatch.minibatch import microbatches
from anybatch.networks.flat import FlatParameters

CLIP_EPSILON = 1e-6
"""As torch.nn.utils.clip_grad_norm_ has it."""
NOISE_DECAY = 0.95
"""Of the running means of noise and signal, per measurement. Their ratio is taken last: it is biased."""

Record = tuple[Tensor, ...]
LossOf = Callable[[Tensor], tuple[Tensor, Record]]
"""Sample indices to per-sample losses [b] and whatever per-sample tensors are to be kept for metrics."""


@dataclass
class NoiseAverage:
    """Running means of tr(Σ) and |G|², kept apart."""

    trace: float = 0.0
    signal: float = 0.0
    weight: float = 0.0

    def add(self, trace: float, signal: float) -> None:
        self.trace = NOISE_DECAY * self.trace + (1 - NOISE_DECAY) * trace
        self.signal = NOISE_DECAY * self.signal + (1 - NOISE_DECAY) * signal
        self.weight = NOISE_DECAY * self.weight + (1 - NOISE_DECAY)

    @property
    def scale(self) -> float | None:
        """In samples; None before the first measurement, infinite where noise hides the signal."""
        return noise_scale.noise_scale(self.trace, self.signal) if self.weight else None


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
    ):
        self.flat = flat
        self.config = config
        self.microbatch = microbatch
        self.say = say
        self.parameter = flat.as_parameter()
        self.optimizer = make_optimizer(self.parameter, config)
        self.noise = NoiseAverage()
        self.counts = StepCounts()

    def set_hyperparameters(self, learning_rate: float, hyperparameters: Hyperparameters) -> None:
        group = self.optimizer.param_groups[0]
        group["lr"] = learning_rate
        if "betas" in group:
            group["betas"] = (hyperparameters.beta1, hyperparameters.beta2)

    def gradient(self, indices: Tensor, loss_of: LossOf, count: float) -> list[Record]:
        """Leave the mean gradient of a minibatch in the flat buffer; `count` is its size over all ranks."""
        while True:
            try:
                self.flat.grads.zero_()
                records = [self._add(part, loss_of, count) for part in self._parts(indices)]
                break
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                self._halve_microbatch(error)
        collectives.sum_over_ranks(self.flat.grads)
        return records

    def measured_gradient(
        self, indices: Tensor, loss_of: LossOf, count: float, generator: torch.Generator
    ) -> list[Record]:
        """`gradient`, which also measures the noise scale from the microbatches, drawn at random."""
        indices = indices[torch.randperm(len(indices), generator=generator)]
        parts = microbatches(indices, min(self.microbatch, -(-len(indices) // 2)))
        self.flat.grads.zero_()
        records, weighted_squares, before = [], 0.0, torch.zeros_like(self.flat.grads)
        for part in parts:
            records.append(self._add(part, loss_of, count))
            share = self.flat.grads - before
            # share is the part's sum ÷ count: its mean gradient g has b‖g‖² = ‖share‖² count² / b
            weighted_squares += float(share.square().sum()) * count**2 / max(len(part), 1)
            before = self.flat.grads.clone()
        sums = torch.tensor([weighted_squares, float(len(parts))], dtype=torch.float64)
        weighted_squares, number = collectives.sum_over_ranks(sums).tolist()
        collectives.sum_over_ranks(self.flat.grads)
        if number > 1:
            mean_square = float(self.flat.grads.square().sum())
            trace = (weighted_squares - count * mean_square) / (number - 1)
            if math.isfinite(trace):
                self.noise.add(trace, mean_square - trace / count)
        return records

    def apply(self) -> bool:
        """Clip and step with the gradient in the buffer. A gradient that is not a number changes nothing."""
        norm = torch.linalg.vector_norm(self.flat.grads)
        size = norm.item()
        if not math.isfinite(size):
            self.counts.skipped += 1
            self.counts.skipped_in_a_row += 1
            return False
        limit = self.config.max_grad_norm
        if limit is not None and size > limit:
            self.flat.grads.mul_(limit / (size + CLIP_EPSILON))
        self.optimizer.step()
        self.counts.norms.append(size)
        self.counts.taken += 1
        self.counts.skipped_in_a_row = 0
        return True

    def clipped_fraction(self) -> float | None:
        """Share of this iteration's steps whose gradient was clipped; None without clipping."""
        limit, norms = self.config.max_grad_norm, self.counts.norms
        return sum(norm > limit for norm in norms) / len(norms) if limit is not None and norms else None

    def _parts(self, indices: Tensor) -> tuple[Tensor, ...]:
        return microbatches(indices, self.microbatch)

    def _add(self, part: Tensor, loss_of: LossOf, count: float) -> Record:
        loss, record = loss_of(part)
        loss.sum().div(count).backward()
        return record

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
            "noise": [self.noise.trace, self.noise.signal, self.noise.weight],
        }

    def load_state_dict(self, state: dict) -> None:
        if state["optimizer"]:
            self.optimizer.state[self.parameter] = {
                name: value.clone() for name, value in state["optimizer"].items()
            }
        self.counts = StepCounts(state["taken"], state["skipped"], state["skipped_in_a_row"])
        self.noise = NoiseAverage(*state["noise"])


def make_optimizer(parameter: torch.nn.Parameter, config: OptimizerConfig) -> torch.optim.Optimizer:
    """On one flat parameter, in the fused form where torch has one: its default on a CPU is a slow loop."""
    betas = (config.beta1, config.beta2)
    match config.name:
        case "adam":
            return torch.optim.Adam(
                [parameter], lr=config.learning_rate, betas=betas, eps=config.eps, fused=True
            )
        case "radam":
            return torch.optim.RAdam(
                [parameter], lr=config.learning_rate, betas=betas, eps=config.eps, foreach=True
            )
        case "sgd":
            return torch.optim.SGD([parameter], lr=config.learning_rate, fused=True)
