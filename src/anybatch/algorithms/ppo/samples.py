"""What an update of policy and value works on, and what it keeps of each sample."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass
class Samples:
    """An iteration batch ready to be optimized on, flattened to [T · N]. `valid` keeps the [T, N] shape."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    """What importance weights divide by."""
    proximal_logp: Tensor
    """Of the policy the update is held near, where that is not an average of weights that moves."""
    proximal_location: Tensor
    proximal_log_std: Tensor | None
    advantage: Tensor
    value: Tensor
    value_target: Tensor
    valid: Tensor
    age_iterations: int
    age_gradient_steps: int


class PolicyRecord(NamedTuple):
    """What one microbatch saw, sample by sample [b], without gradients."""

    objective: Tensor
    value_loss: Tensor
    entropy: Tensor
    logp: Tensor
    behavior_logp: Tensor
    proximal_logp: Tensor
