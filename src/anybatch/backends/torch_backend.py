"""The reference backend: gradient steps in torch, as a plain loop.

Microbatch gradients are summed, divided by the valid count over all ranks, clipped and applied. k
microbatches equal one big batch up to float rounding, so the microbatch affects only memory and speed. A
non-finite gradient changes nothing: it is counted, and several in a row end the run.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NoReturn, TypeVar

import torch
from torch import Tensor

from anybatch.backends.acting import Actor, TorchActing, in_chunks
from anybatch.backends.minibatches import Columns, Minibatch, microbatches
from anybatch.backends.optimizers import first_state, make_optimizer
from anybatch.config import OptimizerConfig
from anybatch.dial import Plan
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.errors import RankError, TrainingError
from anybatch.networks.flat import FlatParameters
from anybatch.networks.weight_average import WeightAverage
from anybatch.runs import pace
from anybatch.storage.state_fit import validate_fit

logger = logging.getLogger(__name__)

CLIP_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_."""
SKIPS_BEFORE_GIVING_UP = 5
"""Non-finite gradient steps in a row before the run ends."""
NO_SINGLE_VALUE = "no single value is the cause: the loss itself overflowed"

Network = TypeVar("Network", bound=Actor)
Record = tuple[Tensor, ...]
"""Losses and statistics of some samples, each [b], without gradients."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss that a backend takes gradient steps on, with its optimizer."""

    function: Callable[[Any, Any, Any, WeightAverage | None], tuple[Tensor, Record]]
    """`function(network, batch, objective, average)`: losses of the samples [b], and their record."""
    objective: Any
    """The settings of the loss, which native code reads too."""
    policy_objective: Any = None
    """The settings that leave only the policy's part of the loss, if it has a part for the value."""
    record: Callable[..., Record]
    """The type of the record."""
    optimizer: OptimizerConfig
    possible_causes: Callable[[Any, Any], Mapping[str, Tensor]] = lambda _network, _batch: {}
    """`possible_causes(network, batch)`: the numbers [b, …] that may make a gradient non-finite."""
    is_native: bool = False
    """Whether native code computes the same: PPO's loss of an actor-critic, PQN's of a Q-network."""


@dataclass(frozen=True)
class Seen:
    """Records of the samples that gradient steps were taken on."""

    records: list[Any]
    last: list[Any]
    """The records of the last minibatch."""
    stopped: bool = False


@dataclass
class StepCounts:
    """Gradient steps of a run, and of its current iteration."""

    taken: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    norms: list[float] = field(default_factory=list[float])
    """Gradient norms of this iteration, before clipping."""

    def add_finite(self, norms: Sequence[float]) -> None:
        """Count steps that were taken, by their norms."""
        if norms:
            self.norms.extend(norms)
            self.taken += len(norms)
            self.skipped_in_a_row = 0

    def add(self, norm: float, cause: Callable[[], str | None]) -> None:
        """Count a step by its norm; end the run after several non-finite steps in a row."""
        if math.isfinite(norm):
            self.add_finite([norm])
            return
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= SKIPS_BEFORE_GIVING_UP:
            give_up(cause())


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


def first_bad_value(named: Mapping[str, Tensor], indices: Tensor, shard: Shard) -> str | None:
    """The first tensor with a non-finite number, and where it came from; None if all numbers are finite.

    The tensors are [B, …], with a row for each of the `indices` into [T · N] of the shard; B may be 0.
    """
    for name, tensor in named.items():
        bad = ~torch.isfinite(tensor.float()).view(len(tensor), math.prod(tensor.shape[1:])).all(1)
        if bad.any():
            step, env = divmod(int(indices[int(bad.nonzero()[0, 0])]), shard.count)
            return (
                f"the first is the {name} of environment {shard.first + env} at step {step} of the iteration"
            )
    return None


class LossSteps:
    """The gradient steps on one loss: its optimizer and their counts."""

    def __init__(self, loss: Loss, flat: FlatParameters):
        self.loss = loss
        self.parameter = flat.as_parameter()
        self.optimizer = make_optimizer(self.parameter, loss.optimizer)
        self.counts = StepCounts()

    @property
    def learning_rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    @learning_rate.setter
    def learning_rate(self, learning_rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = learning_rate

    def clip_scale(self, norm: float) -> float:
        """What a gradient of this norm is multiplied by, so that it is clipped."""
        limit = self.loss.optimizer.max_grad_norm
        return limit / (norm + CLIP_EPSILON) if limit is not None and norm > limit else 1.0

    def metrics(self) -> dict[str, float | None]:
        """Mean norm of this iteration's gradients, and the share of them that was clipped."""
        limit, norms = self.loss.optimizer.max_grad_norm, self.counts.norms
        if not norms:
            return {}
        clipped = None if limit is None else sum(norm > limit for norm in norms) / len(norms)
        return {"losses/grad_norm": sum(norms) / len(norms), "losses/grad_clip_fraction": clipped}

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": dict(self.optimizer.state.get(self.parameter, {})),
            "taken": self.counts.taken,
            "skipped": self.counts.skipped,
            "skipped_in_a_row": self.counts.skipped_in_a_row,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["optimizer"]:
            like = first_state(self.parameter, self.loss.optimizer)
            validate_fit(state["optimizer"], like, "the optimizer")
            self.optimizer.state[self.parameter] = {
                name: value.to(self.parameter.device, copy=True) for name, value in state["optimizer"].items()
            }
        self.counts = StepCounts(state["taken"], state["skipped"], state["skipped_in_a_row"])


class TorchBackend(Generic[Network]):
    """How a network acts and learns, in torch."""

    is_native = False

    def __init__(
        self,
        network: Network,
        losses: Mapping[str, Loss],
        *,
        average: type[WeightAverage] | None = None,
        noise_of: Mapping[str, slice],
        microbatch: int,
        device: torch.device,
    ):
        """`network` is on its device. The first of the `losses` is the main one.

        After its steps the proximal `average` follows the network's weights. `noise_of` names the slices of
        the parameters whose gradients' noise is measured separately.
        """
        self.reason = ""
        self.network = network
        self.device = device
        self.flat = FlatParameters(network)
        self.average = None if average is None else average(network, self.flat)  # pyright: ignore[reportArgumentType]
        self.losses = {name: LossSteps(loss, self.flat) for name, loss in losses.items()}
        self.main = next(iter(self.losses.values()))
        self.acting: TorchActing = TorchActing(device)
        self.microbatch = microbatch
        self._noise_of = noise_of
        self._policy_alone: LossSteps | None = None
        main = self.main.loss
        if main.policy_objective is not None and network.shares_encoder:
            self._policy_alone = LossSteps(replace(main, objective=main.policy_objective), self.flat)
        self._plan: Plan | None = None

    def outputs(self, network: Callable[[Tensor], Tensor], obs: Tensor) -> Tensor:
        """`network` over any number of observations [B, …], without gradients; the result is on the CPU."""
        with torch.no_grad():
            return in_chunks(network, obs, chunk=self.microbatch, device=self.device)

    def torch_threads(self) -> AbstractContextManager[None]:
        """For a longer part of a run that torch computes whatever the backend."""
        return nullcontext()

    def begin_iteration(self, learning_rate: float, plan: Plan, loss: str | None = None) -> None:
        """Set the hyperparameters of an iteration's steps, and forget the norms of the one before."""
        steps = self._steps_of(loss)
        steps.counts.norms.clear()
        steps.learning_rate = learning_rate
        group = steps.optimizer.param_groups[0]
        if "betas" in group:
            group["betas"] = (plan.hyperparameters.beta1, plan.hyperparameters.beta2)
        if steps is self.main:
            self._plan = plan
            if self.average is not None:
                self.average.begin_iteration()

    def take_steps(
        self,
        samples: Columns,
        minibatches: Sequence[Minibatch],
        *,
        loss: str | None = None,
        stop: Callable[[list[Any]], bool] | None = None,
    ) -> Seen:
        """Take a gradient step on each minibatch, with a loss by its name, by default the main one.

        `stop` sees the records of each minibatch before its step, and may end the steps there.
        """
        steps = self._steps_of(loss)
        records, last = [], []
        for minibatch in minibatches:
            last = self.gradient(steps, samples, minibatch)
            records += last
            if stop is not None and stop(last):
                return Seen(records, last, stopped=True)
            self.apply(steps, lambda here=minibatch: self._cause(steps, samples, here))
            pace.current().stepped()
        return Seen(records, last)

    def apply(self, steps: LossSteps, cause: Callable[[], str | None] = lambda: None) -> bool:
        """Clip and step with the gradient in the flat buffer, if it is finite. Returns whether it was."""
        norm = self._norm(steps)
        is_finite = math.isfinite(norm)
        if is_finite:
            self._step(steps, steps.clip_scale(norm))
            if steps is self.main and self.average is not None and self._plan is not None:
                env_steps = self._plan.batch.env_steps_per_gradient_step
                self.average.follow(self._plan.hyperparameters, env_steps)
        steps.counts.add(norm, cause)
        return is_finite

    def gradient(self, steps: LossSteps, samples: Columns, minibatch: Minibatch) -> list[Any]:
        """Leave the mean gradient of a minibatch, over all ranks, in the flat buffer."""
        records = self._within_memory(steps, samples, minibatch.local, minibatch.count)
        collectives.sum_over_ranks(self.flat.grads)
        return records

    def mean_gradients(self, samples: Columns, group: Minibatch) -> dict[str, Tensor]:
        """The mean gradients of the main loss over some samples of all ranks, by network, without a step.

        If policy and value share weights, the policy's gradient is that of its part of the loss, and the
        value's is the rest.
        """
        self.gradient(self.main, samples, group)
        whole = self.flat.grads.clone()
        if self._policy_alone is None:
            return {name: whole[where] for name, where in self._noise_of.items()}
        self.gradient(self._policy_alone, samples, group)
        policy = self.flat.grads.clone()
        return {"policy": policy, "value": whole - policy}

    def gradient_shapes(self) -> dict[str, Tensor]:
        """Zeros in the shapes of `mean_gradients`."""
        if self._policy_alone is not None:
            return dict.fromkeys(("policy", "value"), torch.zeros_like(self.flat.grads))
        return {name: torch.zeros_like(self.flat.grads[where]) for name, where in self._noise_of.items()}

    def _steps_of(self, loss: str | None) -> LossSteps:
        return self.main if loss is None else self.losses[loss]

    def _add_gradient(self, steps: LossSteps, samples: Columns, part: Tensor, count: float) -> Record:
        """Add the gradient of the losses at `part`, divided by `count`, to the flat buffer."""
        loss = steps.loss
        batch = samples.rows(part, self.device)
        losses, record = loss.function(self.network, batch, loss.objective, self.average)
        losses.sum().div(count).backward()
        pace.current().check()
        return record

    def _norm(self, steps: LossSteps) -> float:
        """Of the gradient in the flat buffer."""
        del steps
        return torch.linalg.vector_norm(self.flat.grads).item()

    def _step(self, steps: LossSteps, scale: float) -> None:
        """The optimizer's step, with the gradient times `scale`."""
        steps.optimizer.take_step(scale)

    def _cause(self, steps: LossSteps, samples: Columns, minibatch: Minibatch) -> str | None:
        """The first bad number behind a non-finite gradient; None if this rank has none."""
        with torch.no_grad():
            named = steps.loss.possible_causes(self.network, samples.rows(minibatch.local, self.device))
        return first_bad_value(named, minibatch.local, minibatch.shard)

    def _within_memory(
        self, steps: LossSteps, samples: Columns, indices: Tensor, count: float
    ) -> list[Record]:
        """Leave a gradient in the flat buffer; start over with smaller microbatches if memory runs out."""
        while True:
            try:
                self.flat.grads.zero_()
                parts = microbatches(indices, self.microbatch)
                return [self._add_gradient(steps, samples, part, count) for part in parts]
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                self._halve_microbatch(error)

    def _halve_microbatch(self, error: Exception) -> None:
        out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        # On a CPU torch has no separate error class for it.
        if not (out_of_memory or "allocate memory" in str(error)) or self.microbatch == 1:
            raise error
        self.microbatch = -(-self.microbatch // 2)
        logger.warning(f"Out of memory: trying again with a microbatch of {self.microbatch}.")
