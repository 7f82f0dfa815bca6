"""What an update of policy and value works on: an iteration batch, and the samples of one microbatch."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from anybatch.kernels.structs import SamplesStruct, pointer
from anybatch.networks.distributions import Distribution


@dataclass
class Samples:
    """An iteration batch of this rank ready to be optimized on, flattened to [T · N]."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    """Log-probabilities that importance weights divide by."""
    proximal_logp: Tensor
    """Log-probabilities under the proximal policy, where that is not an average of weights that moves."""
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
        """Where they are in memory, for native code."""
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
    """The samples of one microbatch, [b], where the network is."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    proximal_logp: Tensor
    proximal: Distribution | None
    """The proximal policy, where its exact divergence is penalized."""
    advantage: Tensor
    value_target: Tensor
    value: Tensor | None
    """Values at collection time, where changes from them are clipped."""


class PolicyRecord(NamedTuple):
    """What one microbatch saw, sample by sample [b], without gradients."""

    objective: Tensor
    value_loss: Tensor
    entropy: Tensor
    logp: Tensor
    behavior_logp: Tensor
    proximal_logp: Tensor
