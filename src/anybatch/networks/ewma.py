"""The proximal policy of PPO-EWMA: an average of the policy's recent weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import Distribution
from anybatch.networks.flat import FlatParameters, flatten_values


class EwmaNetwork:
    """Bias-corrected exponentially weighted average of a policy's weights, without gradients.

        w ← β w + 1,   θ_proximal ← θ_proximal + (θ - θ_proximal) / w

    Hilton et al. 2021 (arXiv:2110.00641), §4 and its code. Call `update` after every policy gradient step.
    The ages are those of the averaged weights: mean distance to the present, in env steps and gradient steps.
    """

    def __init__(self, network: ActorCritic, flat: FlatParameters):
        """`flat` holds the parameters of `network`; its first `policy_numel` values are the policy's."""
        self.policy = network.policy_only().requires_grad_(False)
        self._values = flatten_values(self.policy)
        self._current = flat.values[: network.policy_numel]
        self.reset()

    def reset(self) -> None:
        """Forget the past: the proximal policy is the current one."""
        self._values.copy_(self._current)
        self.total_weight = 1.0
        self.age_env_steps = 0.0
        self.age_gradient_steps = 0.0

    def update(self, decay: float, env_steps: float = 0.0) -> None:
        """Take in the weights after a gradient step that stands for `env_steps`."""
        self.total_weight = decay * self.total_weight + 1.0
        share = 1.0 / self.total_weight
        self._values.lerp_(self._current, share)
        self.age_env_steps = (1.0 - share) * (self.age_env_steps + env_steps)
        self.age_gradient_steps = (1.0 - share) * (self.age_gradient_steps + 1.0)

    def rescale_weight(self, factor: float) -> None:
        """When the env steps per gradient step change: `factor` is those before ÷ those from now on.

        The past, all but the newest weights, then counts as if it had been averaged in steps of the coming
        size, so that the age in env steps continues without a jump.
        """
        self.total_weight = (self.total_weight - 1.0) * factor + 1.0

    @torch.no_grad()
    def policy_at(self, obs: Tensor) -> Distribution:
        """The proximal policy at `obs`; no gradient flows through it."""
        return self.policy.distribution(self.policy.locate(obs))

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": dict(self.policy.state_dict()),
            "total_weight": self.total_weight,
            "age_env_steps": self.age_env_steps,
            "age_gradient_steps": self.age_gradient_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.total_weight = state["total_weight"]
        self.age_env_steps = state["age_env_steps"]
        self.age_gradient_steps = state["age_gradient_steps"]
