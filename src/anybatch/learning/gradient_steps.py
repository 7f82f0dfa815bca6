"""One gradient step: microbatch gradients summed, divided by the valid count over all ranks, clipped,
applied.

k microbatches equal one big batch up to float rounding, so the microbatch affects only memory and speed.

A non-finite gradient changes nothing: the norm is read once per step, on any device.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from anybatch.batch.rescaling import Hyperparameters
from anybatch.config import OptimizerConfig
from anybatch.distributed import collectives
from anybatch.equations import noise_scale
from anybatch.errors import RankError, TrainingError
from anybatch.kernels.adam import AdamKernel
from anybatch.kernels.structs import Schedule, StepStruct, WeightsStruct
from anybatch.learning.minibatch import microbatches
from anybatch.learning.noise import NoiseAverage
from anybatch.learning.optimizers import FlatAdam, first_state, make_optimizer
from anybatch.networks.flat import FlatParameters
from anybatch.runs.state_fit import refuse_unlike

CLIP_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_."""
SKIPS_BEFORE_GIVING_UP = 5
"""Non-finite gradient steps in a row before the run ends."""

Record = TypeVar("Record", bound=tuple[Tensor, ...])
LossOf = Callable[[Tensor], tuple[Tensor, Record]]
"""Maps sample indices to per-sample losses [b] and per-sample tensors to keep for metrics."""
AddGradient = Callable[[Tensor, float], Record]
"""Adds the gradient of the losses at sample indices, divided by a count, to the flat gradient buffer."""
Culprit = Callable[[], str | None]
"""Names the first bad number behind a non-finite gradient; None if this rank has none."""
NO_SINGLE_VALUE = "no single value is the cause: the loss itself overflowed"


def by_autograd(loss_of: LossOf[Record]) -> AddGradient[Record]:
    """The gradient of a loss written in torch."""

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
    imbalances: list[float] = field(default_factory=list[float])
    """How unevenly this iteration's minibatches are spread over several ranks; empty for one rank."""

    def add(self, norm: float, culprit: Culprit) -> None:
        """Count a step by its norm; end the run after several non-finite steps in a row."""
        if math.isfinite(norm):
            self.norms.append(norm)
            self.taken += 1
            self.skipped_in_a_row = 0
            return
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= SKIPS_BEFORE_GIVING_UP:
            give_up(culprit())


def give_up(cause: str | None) -> NoReturn:
    """End the run. All ranks come here at the same step; the first that knows the cause says it."""
    knows = collectives.of_all_ranks(torch.tensor(cause is not None)).flatten().tolist()
    if collectives.rank() != (knows.index(True) if any(knows) else 0):
        raise RankError("")
    raise TrainingError(
        f"{SKIPS_BEFORE_GIVING_UP} gradient steps in a row were non-finite; {cause or NO_SINGLE_VALUE}. A "
        "lower learning rate or a gradient clip may help; `anybatch resume` continues from the newest "
        "checkpoint"
    )


def unknown_culprit() -> str:
    return "the cause is unknown"


class GradientSteps:
    """The gradient steps of one network."""

    def __init__(
        self,
        flat: FlatParameters,
        config: OptimizerConfig,
        *,
        microbatch: int,
        noise_part: int,
        say: Callable[[str], None],
        networks: Mapping[str, slice],
    ):
        """`networks` names the slices of the flat vector whose noise scales are measured separately.

        `noise_part` is the largest number of samples in each part that they are measured from.
        """
        self.flat = flat
        self.config = config
        self.microbatch = microbatch
        self.noise_part = noise_part
        self.say = say
        self.parameter = flat.as_parameter()
        self.optimizer = make_optimizer(self.parameter, config)
        self.networks = networks
        self.noise = {name: NoiseAverage() for name in networks}
        self.counts = StepCounts()
        self.kernel: AdamKernel | None = None

    @property
    def number(self) -> int:
        """Number of the next step."""
        return self.counts.taken

    def use_native_code(self) -> None:
        """Take norms and Adam's steps without torch's overhead."""
        self.kernel = AdamKernel(self.flat.values, self.flat.grads)
        if isinstance(self.optimizer, FlatAdam):
            self.optimizer.kernel = self.kernel

    def use_torch(self) -> None:
        """Switch from native code to torch."""
        self.kernel = None
        if isinstance(self.optimizer, FlatAdam):
            self.optimizer.kernel = None

    def set_learning_rate(self, learning_rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = learning_rate

    def begin_iteration(self, learning_rate: float, hyperparameters: Hyperparameters) -> None:
        """Set the numbers of an iteration, and forget the norms of the one before."""
        self.counts.norms.clear()
        self.counts.imbalances.clear()
        self.set_learning_rate(learning_rate)
        group = self.optimizer.param_groups[0]
        if "betas" in group:
            group["betas"] = (hyperparameters.beta1, hyperparameters.beta2)

    def gradient(self, indices: Tensor, add_gradient: AddGradient[Record], count: float) -> list[Record]:
        """Leave the mean gradient of a minibatch in the flat buffer; `count` is its size over all ranks."""
        records = self._within_memory(None, indices, add_gradient, count)
        collectives.sum_over_ranks(self.flat.grads)
        return records

    def measured_gradient(
        self,
        indices: Tensor,
        add_gradient: AddGradient[Record],
        count: float,
        own_indices: Callable[[Tensor], Tensor] = lambda indices: indices,
    ) -> list[Record]:
        """Like `gradient`, and also measure the noise scale from parts of the minibatch.

        `indices` are the samples of all ranks, in random order; `own_indices` selects this rank's.
        """
        records: list[Record] = []
        weighted_squares = [0.0] * len(self.networks)
        self.flat.grads.zero_()
        parts = microbatches(indices, min(self.noise_part, max(1, -(-len(indices) // 2))))
        for part in parts:
            before = self.flat.grads.clone()
            records += self._within_memory(before, own_indices(part), add_gradient, count)
            added = collectives.sum_over_ranks(self.flat.grads - before)
            # A part adds its sum ÷ count: its mean gradient g has b‖g‖² = ‖added‖² count² / b.
            scale = count**2 / max(len(part), 1)
            weighted_squares = [
                total + scale * square
                for total, square in zip(weighted_squares, self._squares(added), strict=True)
            ]
        collectives.sum_over_ranks(self.flat.grads)
        means = self._squares(self.flat.grads)
        if len(parts) > 1 and all(map(math.isfinite, weighted_squares)):
            for noise, squares, mean in zip(self.noise.values(), weighted_squares, means, strict=True):
                noise.add(*noise_scale.noise_scale_from_squares(squares, mean, count, len(parts)))
        return records

    def apply(self, culprit: Culprit = unknown_culprit) -> bool:
        """Clip and step with the gradient in the buffer, if it is finite. Returns whether it was."""
        kernel, limit = self.kernel, self.config.max_grad_norm
        norm = torch.linalg.vector_norm(self.flat.grads).item() if kernel is None else kernel.norm()
        taken = math.isfinite(norm)
        if taken:
            scale = limit / (norm + CLIP_EPSILON) if limit is not None and norm > limit else 1.0
            self.optimizer.take_step(scale)
        self.counts.add(norm, culprit)
        return taken

    def can_be_taken_together(self, largest_minibatch: int) -> bool:
        """Whether native code can take several steps in one call, each on a minibatch in one piece."""
        return (
            isinstance(self.optimizer, FlatAdam)
            and self.optimizer.kernel is not None
            and largest_minibatch <= self.microbatch
            and collectives.world_size() == 1
        )

    def schedule(
        self, sizes: Sequence[int], average: Tensor | None = None, shares: Sequence[float] | None = None
    ) -> tuple[WeightsStruct, Schedule]:
        """What native code needs to take steps on minibatches of these sizes.

        After each step, `average` moves towards the parameters by the step's share.
        """
        optimizer = self.optimizer
        assert isinstance(optimizer, FlatAdam) and optimizer.kernel is not None
        shares = [0.0] * len(sizes) if shares is None else shares
        first = optimizer.steps_taken + 1
        steps = [
            StepStruct(size, *optimizer.numbers_of(first + place), share)
            for place, (size, share) in enumerate(zip(sizes, shares, strict=True))
        ]
        weights = optimizer.kernel.weights(
            optimizer.moments(),
            betas=optimizer.param_groups[0]["betas"],
            max_norm=self.config.max_grad_norm,
            average=average,
        )
        return weights, (StepStruct * len(steps))(*steps)

    def count_scheduled(self, schedule: Schedule, taken: int, culprit_of: Callable[[int], str | None]) -> int:
        """Count the steps that native code took before it stopped, at the latest at a non-finite gradient.

        `culprit_of` a minibatch names the cause. Returns how many minibatches were used, including the one
        with the non-finite gradient.
        """
        assert isinstance(self.optimizer, FlatAdam)
        self.optimizer.count_steps(taken)
        used = min(taken + 1, len(schedule))
        for place in range(used):
            self.counts.add(schedule[place].norm, partial(culprit_of, place))
        return used

    def metrics(self) -> dict[str, float | None]:
        """Mean norm of this iteration's gradients, and the share of them that was clipped."""
        limit, norms = self.config.max_grad_norm, self.counts.norms
        if not norms:
            return {}
        clipped = None if limit is None else sum(norm > limit for norm in norms) / len(norms)
        metrics = {"losses/grad_norm": sum(norms) / len(norms), "losses/grad_clip_fraction": clipped}
        uneven = self.counts.imbalances
        return metrics | ({"batch/rank_imbalance": sum(uneven) / len(uneven)} if uneven else {})

    def _squares(self, gradient: Tensor) -> list[float]:
        """Squared norms, by network."""
        return [float(gradient[where].square().sum()) for where in self.networks.values()]

    def _within_memory(
        self, before: Tensor | None, indices: Tensor, add_gradient: AddGradient[Record], count: float
    ) -> list[Record]:
        """Add gradients to `before`, or to 0; start over with smaller microbatches if memory runs out."""
        while True:
            try:
                if before is None:
                    self.flat.grads.zero_()
                return [add_gradient(part, count) for part in microbatches(indices, self.microbatch)]
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                self._halve_microbatch(error)
                if before is not None:
                    self.flat.grads.copy_(before)

    def _halve_microbatch(self, error: Exception) -> None:
        out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        # On a CPU torch has no separate error class for it.
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
