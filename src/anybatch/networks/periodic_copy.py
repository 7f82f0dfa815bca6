"""A proximal policy that is a periodic copy of the policy's weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import Distribution
from anybatch.networks.flat import FlatParameters, flatten_values
from anybatch.networks.taken import Number, Taken, if_taken

CLOCK_TOLERANCE = 1e-9
"""Tolerance for rounding of a rescaled clock, so that a copy is still due at a whole number."""


class Ages(NamedTuple):
    """The time since the last copy, and sums over the gradient steps of this iteration."""

    clock: Number = 0.0
    """Gradient steps since the copy, in steps of the current size."""
    env_steps_since: Number = 0.0
    gradient_steps_since: Number = 0
    steps: Number = 0
    summed_env_steps: Number = 0.0
    summed_gradient_steps: Number = 0

    def advanced(self, env_steps: float) -> "Ages":
        """The state after one more gradient step."""
        return Ages(
            clock=self.clock + 1.0,
            env_steps_since=self.env_steps_since + env_steps,
            gradient_steps_since=self.gradient_steps_since + 1,
            steps=self.steps + 1,
            summed_env_steps=self.summed_env_steps + self.env_steps_since,
            summed_gradient_steps=self.summed_gradient_steps + self.gradient_steps_since,
        )

    def copied(self) -> "Ages":
        """The state right after a copy."""
        return self._replace(clock=0.0, env_steps_since=0.0, gradient_steps_since=0)


class PeriodicCopy:
    """A copy of a policy's weights, without gradients, which `update` replaces every `copy_every` gradient
    steps.

    Right after a copy the proximal policy is the current one; over a period of n gradient steps its age rises
    from 0 to n - 1, (n - 1)/2 on average. This corresponds to the center of mass of an average of weights.
    The ages are means over the gradient steps since `begin_iteration`, since the value at a single point says
    little.
    """

    def __init__(self, network: ActorCritic, flat: FlatParameters):
        """`flat` holds the parameters of `network`; its first `policy_numel` values are the policy's."""
        self.policy = network.policy_only().requires_grad_(False)
        self._values = flatten_values(self.policy)
        self._current = flat.values[: network.policy_numel]
        self._ages = Ages()
        self.reset()

    def reset(self) -> None:
        """Copy the current weights now; the next copy is a whole period away."""
        self._values.copy_(self._current)
        self._ages = self._ages.copied()

    def begin_iteration(self) -> None:
        """Start new means of the ages."""
        self._ages = self._ages._replace(steps=0, summed_env_steps=0.0, summed_gradient_steps=0)

    def update(self, copy_every: int, env_steps: float = 0.0, taken: Taken = True) -> None:
        """Count a gradient step that stands for `env_steps`, if it was `taken`; copy the weights if due."""
        now = self._ages.advanced(env_steps)
        is_due = now.clock >= copy_every - CLOCK_TOLERANCE
        if isinstance(taken, Tensor):
            copies = taken * is_due
            self._values.lerp_(self._current, copies.to(self._values.dtype))  # at 1 and 0 this is exact
            self._ages = if_taken(copies, now.copied(), if_taken(taken, now, self._ages))
        elif taken:
            self._ages = now
            if is_due:
                self.reset()

    def settle(self) -> None:
        """Read the numbers that flagged steps left on the device."""
        numbers = map(float, self._ages)
        self._ages = Ages(*(type(start)(number) for start, number in zip(Ages(), numbers, strict=True)))

    @property
    def clock(self) -> float:
        """Gradient steps since the last copy, in steps of the current size."""
        return float(self._ages.clock)

    @property
    def age_env_steps(self) -> float | None:
        """Mean age that the copy had in the gradient steps of this iteration; None before the first."""
        return float(self._ages.summed_env_steps / self._ages.steps) if self._ages.steps else None

    @property
    def age_gradient_steps(self) -> float | None:
        """The same in gradient steps."""
        return float(self._ages.summed_gradient_steps / self._ages.steps) if self._ages.steps else None

    def rescale_clock(self, factor: float) -> None:
        """When the env steps per gradient step change: `factor` is those before ÷ those from now on.

        The clock then counts gradient steps of the new size, so that the time since the copy does not jump in
        env steps.
        """
        self._ages = self._ages._replace(clock=self.clock * factor)

    @torch.no_grad()
    def policy_at(self, obs: Tensor) -> Distribution:
        """The proximal policy at `obs`; no gradient flows through it."""
        return self.policy.distribution(self.policy.locate(obs))

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": dict(self.policy.state_dict()),
            "clock": self.clock,
            "env_steps_since": self._ages.env_steps_since,
            "gradient_steps_since": self._ages.gradient_steps_since,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self._ages = self._ages._replace(
            clock=state["clock"],
            env_steps_since=state["env_steps_since"],
            gradient_steps_since=state["gradient_steps_since"],
        )
