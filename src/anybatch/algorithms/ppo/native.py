"""The gradient of the policy's loss in native code: `loss.policy_loss` and its backward pass in one call."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from anybatch.algorithms.ppo.samples import PolicyRecord, Samples
from anybatch.algorithms.ppo.state import PPOState
from anybatch.algorithms.steps import Minibatch
from anybatch.config import ObjectiveConfig
from anybatch.equations.objectives import log_clip_range
from anybatch.kernels.policy import PolicyKernel
from anybatch.learning.gradient_steps import AddGradient
from anybatch.native.layout import ObjectiveStruct


def add_gradient(
    kernel: PolicyKernel, samples: Samples, objective: ObjectiveStruct
) -> AddGradient[PolicyRecord]:
    """The gradient of any microbatch of `samples`."""

    def add(part: Tensor, count: float) -> PolicyRecord:
        objective.count = count
        return PolicyRecord(*kernel.add_gradient(samples.addresses, objective, part))

    return add


def take_steps(
    samples: Samples,
    batches: Sequence[Minibatch],
    state: PPOState,
    objective: ObjectiveStruct,
    culprit_of: Callable[[Minibatch], str | None],
) -> tuple[int, PolicyRecord]:
    """Take a gradient step on each of the minibatches, up to the first whose gradient is non-finite.

    The proximal average follows each step. Returns how many minibatches were used, and what they saw.
    """
    kernel, steps, ewma = state.kernel, state.steps, state.ewma
    decay = state.plan.hyperparameters.proximal_decay
    assert kernel is not None
    sizes = [batch.own.numel() for batch in batches]
    if ewma is None:
        weights, schedule = steps.schedule(sizes)
    else:
        weights, schedule = steps.schedule(sizes, ewma.values, ewma.shares_ahead(decay, len(sizes)))
    indices = torch.cat([batch.own for batch in batches])
    taken, seen = kernel.take_steps(samples.addresses, objective, indices, weights, schedule)
    if ewma is not None:
        ewma.count_updates(taken, decay, state.batch.env_steps_per_gradient_step)
    used = steps.count_scheduled(schedule, taken, lambda place: culprit_of(batches[place]))
    return used, PolicyRecord(*seen[:, : sum(sizes[:used])])


def objective(config: ObjectiveConfig, shift: float = 0.0, scale: float = 1.0) -> ObjectiveStruct:
    """The numbers of the objective. Advantages are shifted and scaled first: (Â - shift) ÷ scale."""
    lower, upper = log_clip_range(math.inf if config.clip is None else config.clip)
    return ObjectiveStruct(
        lower_log_clip=lower,
        upper_log_clip=upper,
        log_max_importance=math.log(config.max_importance),
        kl_penalty=config.kl_penalty,
        entropy_coefficient=config.entropy_coefficient,
        value_coefficient=config.value_coefficient,
        value_clip=math.inf if config.value_clip is None else config.value_clip,
        advantage_shift=shift,
        advantage_scale=scale,
        exact_kl=config.kl == "exact",
    )
