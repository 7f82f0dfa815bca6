"""The gradient of the policy's loss in native code: `loss.policy_loss` and its backward pass in one call."""

import math

from torch import Tensor

from anybatch.algorithms.ppo.samples import PolicyRecord, Samples
from anybatch.config import ObjectiveConfig
from anybatch.equations.objectives import log_clip_range
from anybatch.kernels.policy import PolicyKernel
from anybatch.kernels.structs import ObjectiveStruct
from anybatch.learning.gradient_steps import AddGradient


def add_gradient(
    kernel: PolicyKernel, samples: Samples, objective: ObjectiveStruct
) -> AddGradient[PolicyRecord]:
    """The gradient of any microbatch of `samples`."""

    def add(part: Tensor, count: float) -> PolicyRecord:
        objective.count = count
        return PolicyRecord(*kernel.add_gradient(samples.addresses, objective, part))

    return add


def objective(
    config: ObjectiveConfig, value_coefficient: float, shift: float, scale: float
) -> ObjectiveStruct:
    """The numbers of the objective. Advantages are shifted and scaled first: (Â - shift) ÷ scale."""
    lower, upper = log_clip_range(math.inf if config.clip is None else config.clip)
    return ObjectiveStruct(
        lower_log_clip=lower,
        upper_log_clip=upper,
        log_max_importance=math.log(config.max_importance),
        kl_penalty=config.kl_penalty,
        entropy_coefficient=config.entropy_coefficient,
        value_coefficient=value_coefficient,
        value_clip=math.inf if config.value_clip is None else config.value_clip,
        advantage_shift=shift,
        advantage_scale=scale,
        exact_kl=config.kl == "exact",
    )
