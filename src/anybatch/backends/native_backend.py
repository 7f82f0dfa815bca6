"""Gradient steps in native code, for small networks on a CPU: the same numbers as torch, up to rounding."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from anybatch import native
from anybatch.backends.acting import NativeActing
from anybatch.backends.minibatches import Columns, Minibatch
from anybatch.backends.optimizers import FlatAdam, StepNumbers
from anybatch.backends.policy_kernel import PolicyKernel
from anybatch.backends.q_kernel import QKernel
from anybatch.backends.structs import Schedule, columns, pointer
from anybatch.backends.torch_backend import CLIP_EPSILON, LossSteps, Network, Record, Seen, TorchBackend
from anybatch.config import RunConfig
from anybatch.distributed import collectives
from anybatch.native.layout import StepStruct, WeightsStruct
from anybatch.networks.weight_average import EwmaNetwork
from anybatch.runs import pace

LONGEST_CALL_SECONDS = 0.5
"""About how long a call may take: signals are answered between calls."""


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
            numbers.eps[0],
            numbers.size[0],
            numbers.root_correction[0],
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


class NativeBackend(TorchBackend[Network]):
    """Steps on the main loss in native code; further losses of an algorithm are computed by torch.

    Between steps on few samples, Python would take most of the time. So a call takes as many steps as
    nothing has to be looked at in between.
    """

    is_native = True

    def __init__(
        self,
        config: RunConfig,
        network: Network,
        *arguments: Any,
        make_kernel: Callable[["TorchBackend[Network]"], PolicyKernel | QKernel],
        **named: Any,
    ):
        super().__init__(network, *arguments, **named)
        self._kernel = make_kernel(self)
        self._adam = AdamKernel(self.flat.values, self.flat.grads)
        self._objective: Any = self._kernel.objective(self.main.loss.objective)
        self.acting = NativeActing(self._kernel)
        self._threads = config.threads
        self._seconds_per_sample: float | None = None
        """Of the last call that took steps."""

    @contextmanager
    def torch_threads(self) -> Iterator[None]:
        """The threads that were asked for, while torch computes a longer part of a run.

        Torch otherwise has one thread beside native code. Its number of threads changes how it rounds: only
        one that the config fixes can be repeated.
        """
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def take_steps(
        self,
        samples: Columns,
        minibatches: Sequence[Minibatch],
        *,
        loss: str | None = None,
        stop: Callable[[list[Any]], bool] | None = None,
    ) -> Seen:
        if self._steps_of(loss) is not self.main:
            return super().take_steps(samples, minibatches, loss=loss, stop=stop)
        left, records, last = list(minibatches), [], []
        while left:
            ahead = self._steps_ahead(left) if stop is None else 0
            if ahead:
                used, seen = self._take_together(samples, left[:ahead])
                pace.current().stepped(used)
            else:
                used, seen = 1, super().take_steps(samples, left[:1], stop=stop)
            records += seen.records
            last, left = seen.last, left[used:]
            if seen.stopped:
                return Seen(records, last, stopped=True)
        return Seen(records, last)

    def _steps_ahead(self, minibatches: Sequence[Minibatch]) -> int:
        """How many of the next steps can be taken in one call; 0: the next one has to be taken by itself."""
        if (
            not isinstance(self.main.optimizer, FlatAdam)
            or not (self.average is None or isinstance(self.average, EwmaNetwork))
            or collectives.world_size() > 1
        ):
            return 0
        most = len(minibatches)
        if self._seconds_per_sample is None:
            most = min(most, 1)
        samples, ahead = 0, 0
        for minibatch in minibatches[:most]:
            size = minibatch.local.numel()
            samples += size
            too_long = ahead > 0 and samples * (self._seconds_per_sample or 0.0) > LONGEST_CALL_SECONDS
            if size > self.microbatch or too_long:
                break
            ahead += 1
        return ahead

    def _take_together(self, samples: Columns, minibatches: Sequence[Minibatch]) -> tuple[int, Seen]:
        """Steps in one call, up to the first whose gradient is non-finite, which counts as used.

        The proximal average follows each step. Returns how many minibatches were used, and what they saw.
        """
        assert self._plan is not None and isinstance(self.main.optimizer, FlatAdam)
        average, decay = self.average, self._plan.hyperparameters.proximal_decay
        sizes = [minibatch.local.numel() for minibatch in minibatches]
        shares = [0.0] * len(sizes)
        if isinstance(average, EwmaNetwork):
            shares = average.shares_ahead(decay, len(sizes))
        weights, schedule = self._scheduled(self.main.optimizer, sizes, shares)
        indices = torch.cat([minibatch.local for minibatch in minibatches])
        start = perf_counter()
        taken, record = self._kernel.take_steps(
            self._kernel.addresses(samples),  # pyright: ignore[reportArgumentType]
            self._objective,
            indices,
            weights,
            schedule,
        )
        self._seconds_per_sample = (perf_counter() - start) / max(len(indices), 1)
        self.main.optimizer.count_steps(taken)
        if isinstance(average, EwmaNetwork):
            average.has_followed(decay, self._plan.batch.env_steps_per_gradient_step, taken)
        used = min(taken + 1, len(sizes))
        norms = columns(schedule)["norm"].tolist()
        self.main.counts.add_finite(norms[:taken])
        if used > taken:
            self.main.counts.add(norms[taken], lambda: self._cause(self.main, samples, minibatches[taken]))
        end = sum(sizes[:used])
        make = self.main.loss.record
        return used, Seen([make(*record[:, :end])], [make(*record[:, end - sizes[used - 1] : end])])

    def _scheduled(
        self, optimizer: FlatAdam, sizes: Sequence[int], shares: Sequence[float]
    ) -> tuple[WeightsStruct, Schedule]:
        """What native code needs to take steps on minibatches of these sizes.

        After each step, the average moves towards the parameters by the step's share.
        """
        schedule = (StepStruct * len(sizes))()
        numbers = optimizer.numbers_ahead(len(sizes))
        steps = columns(schedule)
        steps["samples"], steps["share"] = sizes, shares
        steps["step_size"], steps["root_correction"], steps["epsilon"] = numbers
        weights = self._adam.weights(
            optimizer.moments(),
            betas=optimizer.param_groups[0]["betas"],
            max_norm=self.main.loss.optimizer.max_grad_norm,
            clip_epsilon=CLIP_EPSILON,
            average=None if self.average is None else self.average.values,
        )
        return weights, schedule

    def _add_gradient(self, steps: LossSteps, samples: Columns, part: Tensor, count: float) -> Record:
        if steps.loss.function is not self.main.loss.function:
            return super()._add_gradient(steps, samples, part, count)
        where: Any = self._kernel.addresses(samples)  # pyright: ignore[reportArgumentType]
        objective: Any = self._objective
        if steps is not self.main:
            objective = self._kernel.objective(steps.loss.objective)
        return steps.loss.record(*self._kernel.add_gradient(where, objective, part, count))

    def _norm(self, steps: LossSteps) -> float:
        return self._adam.norm() if steps is self.main else super()._norm(steps)

    def _step(self, steps: LossSteps, scale: float) -> None:
        optimizer = steps.optimizer
        if steps is not self.main or not isinstance(optimizer, FlatAdam):
            return super()._step(steps, scale)
        numbers = optimizer.numbers_ahead(1)
        self._adam.step(optimizer.moments(), numbers, betas=optimizer.param_groups[0]["betas"], scale=scale)
        optimizer.count_steps(1)
