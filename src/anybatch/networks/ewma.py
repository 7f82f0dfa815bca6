"""The proximal policy of PPO-EWMA: an average of the policy's recent weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import Distribution
from anybatch.networks.flat import FlatParameters, flatten_values
from anybatch.networks.taken import Number, Taken, if_taken


class Average(NamedTuple):
    """The total weight of an average's entries, each counted by its decay, and their mean ages."""

    total_weight: Number = 1.0
    age_env_steps: Number = 0.0
    age_gradient_steps: Number = 0.0

    def advanced(self, decay: float, env_steps: float) -> "Average":
        """The state after one more gradient step."""
        total_weight = decay * self.total_weight + 1.0
        share_of_past = 1.0 - 1.0 / total_weight
        return Average(
            total_weight,
            share_of_past * (self.age_env_steps + env_steps),
            share_of_past * (self.age_gradient_steps + 1.0),
        )


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
        """Reset the average: the proximal policy is the current one."""
        self._values.copy_(self._current)
        self._average = Average()

    @property
    def total_weight(self) -> float:
        return float(self._average.total_weight)

    @property
    def age_env_steps(self) -> float:
        return float(self._average.age_env_steps)

    @property
    def age_gradient_steps(self) -> float:
        return float(self._average.age_gradient_steps)

    def update(self, decay: float, env_steps: float = 0.0, taken: Taken = True) -> None:
        """Add the weights after a gradient step that stands for `env_steps`, if it was `taken`."""
        now = self._average.advanced(decay, env_steps)
        if isinstance(taken, Tensor):
            self._values.lerp_(self._current, (taken / now.total_weight).to(self._values.dtype))
            self._average = if_taken(taken, now, self._average)
        elif taken:
            self._values.lerp_(self._current, 1.0 / now.total_weight)
            self._average = now

    @property
    def values(self) -> Tensor:
        """The averaged weights as one vector, of which the policy's parameters are views."""
        return self._values

    def shares_ahead(self, decay: float, steps: int) -> list[float]:
        """By how much the averaged weights move towards the current ones in each of the next steps."""
        average, shares = self._average, list[float]()
        for _ in range(steps):
            average = average.advanced(decay, 0.0)
            shares.append(1.0 / float(average.total_weight))
        return shares

    def count_updates(self, count: int, decay: float, env_steps: float) -> None:
        """Updates that native code has made, by `shares_ahead`."""
        for _ in range(count):
            self._average = self._average.advanced(decay, env_steps)

    def settle(self) -> None:
        """Read the numbers that flagged steps left on the device."""
        self._average = Average(*map(float, self._average))

    def rescale_weight(self, factor: float) -> None:
        """When the env steps per gradient step change: `factor` is those before ÷ those from now on.

        All but the newest weights then count as if they had been averaged in steps of the new size, so that
        the age in env steps does not jump.
        """
        self._average = self._average._replace(total_weight=(self.total_weight - 1.0) * factor + 1.0)

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
        self._average = Average(*(state[name] for name in Average._fields))
