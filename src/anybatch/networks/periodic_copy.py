"""A proximal policy that is a copy of the policy's weights, taken every few gradient steps."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import Distribution
from anybatch.networks.flat import FlatParameters, flatten_values

CLOCK_TOLERANCE = 1e-9
"""A clock that was rescaled may miss a whole number by rounding; the copy is due all the same."""


class PeriodicCopy:
    """A copy of a policy's weights, without gradients, which `update` replaces every so many gradient steps.

    Right after a copy the proximal policy is the current one; over a period of n gradient steps its age rises
    from 0 to n - 1, (n - 1)/2 on average. That is what the center of mass is to an average of weights.
    The ages are means over the gradient steps since `begin_iteration`, since one moment says little of them.
    """

    def __init__(self, network: ActorCritic, flat: FlatParameters):
        """`flat` holds the parameters of `network`; its first `policy_numel` values are the policy's."""
        self.policy = network.policy_only().requires_grad_(False)
        self._values = flatten_values(self.policy)
        self._current = flat.values[: network.policy_numel]
        self.reset()
        self.begin_iteration()

    def reset(self) -> None:
        """Copy the current weights now; the next copy is a whole period away."""
        self._values.copy_(self._current)
        self.clock = 0.0
        self._env_steps_since = 0.0
        self._gradient_steps_since = 0

    def begin_iteration(self) -> None:
        """Begin the means of the ages anew."""
        self._steps = 0
        self._summed_env_steps = 0.0
        self._summed_gradient_steps = 0

    def update(self, copy_every: int, env_steps: float = 0.0) -> None:
        """Count a gradient step that stands for `env_steps`; copy the weights after it if a copy is due."""
        self._steps += 1
        self._summed_env_steps += self._env_steps_since
        self._summed_gradient_steps += self._gradient_steps_since
        self.clock += 1.0
        self._env_steps_since += env_steps
        self._gradient_steps_since += 1
        if self.clock >= copy_every - CLOCK_TOLERANCE:
            self.reset()

    @property
    def age_env_steps(self) -> float | None:
        """Mean age that the copy had in the gradient steps of this iteration; None before the first."""
        return self._summed_env_steps / self._steps if self._steps else None

    @property
    def age_gradient_steps(self) -> float | None:
        """The same in gradient steps."""
        return self._summed_gradient_steps / self._steps if self._steps else None

    def rescale_clock(self, factor: float) -> None:
        """When the env steps per gradient step change: `factor` is those before ÷ those from now on.

        The clock then counts gradient steps of the coming size, so that the time since the copy continues
        without a jump in env steps.
        """
        self.clock *= factor

    @torch.no_grad()
    def policy_at(self, obs: Tensor) -> Distribution:
        """The proximal policy at `obs`; no gradient flows through it."""
        return self.policy.distribution(self.policy.locate(obs))

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": dict(self.policy.state_dict()),
            "clock": self.clock,
            "env_steps_since": self._env_steps_since,
            "gradient_steps_since": self._gradient_steps_since,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.clock = state["clock"]
        self._env_steps_since = state["env_steps_since"]
        self._gradient_steps_since = state["gradient_steps_since"]
