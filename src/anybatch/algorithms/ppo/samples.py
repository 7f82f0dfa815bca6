"""The data of an update: an iteration batch, and the samples of one microbatch."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from anybatch.kernels.structs import pointer
from anybatch.native.layout import SamplesStruct
from anybatch.networks.distributions import Distribution


@dataclass
class Samples:
    """This rank's iteration batch, prepared for optimization and flattened to [T · N]."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    """Log-probabilities that importance weights divide by."""
    proximal_logp: Tensor
    """Log-probabilities under the proximal policy, unless that is a moving average of weights."""
    proximal_location: Tensor
    proximal_log_std: Tensor | None
    advantage: Tensor
    value: Tensor
    value_target: Tensor
    valid: Tensor
    """[T, N]."""
    all_valid: Tensor
    """[T, N] of all envs of the run."""
    age_iterations: int
    age_gradient_steps: int

    @cached_property
    def addresses(self) -> SamplesStruct:
        """Their memory addresses, for native code."""
        return SamplesStruct(
            obs=pointer(self.obs),
            action=pointer(self.action),
            behavior_logp=pointer(self.behavior_logp),
            proximal_logp=pointer(self.proximal_logp),
            proximal_location=pointer(self.proximal_location),
            proximal_log_std=pointer(self.proximal_log_std),
            advantage=pointer(self.advantage),
            value=pointer(self.value),
            value_target=pointer(self.value_target),
        )


class PolicyBatch(NamedTuple):
    """The samples of one microbatch, [b], on the network's device."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    proximal_logp: Tensor
    proximal: Distribution | None
    """The proximal policy, if its exact divergence is penalized."""
    advantage: Tensor
    value_target: Tensor
    value: Tensor | None
    """Values at collection time, if changes from them are clipped."""


class PolicyRecord(NamedTuple):
    """Losses and statistics of one microbatch, sample by sample [b], without gradients."""

    objective: Tensor
    value_loss: Tensor
    entropy: Tensor
    logp: Tensor
    behavior_logp: Tensor
    proximal_logp: Tensor
