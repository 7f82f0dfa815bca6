"""The weights of the proximal policy: an average of the policy's recent weights, or a periodic copy."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import Distribution
from anybatch.networks.flat import FlatParameters, flatten_values

CLOCK_TOLERANCE = 1e-9
"""Tolerance for rounding of a rescaled clock, so that a copy is still due at a whole number."""


class Pace(Protocol):
    """The hyperparameters that decide how fast the proximal policy follows."""

    @property
    def proximal_decay(self) -> float: ...

    @property
    def proximal_copy_every(self) -> int: ...


class WeightAverage(ABC):
    """A proximal policy with separate weights, without gradients, which follow those of a network.

    Its ages are those of its weights: mean distance to the present, in env steps and in gradient steps.
    """

    rule: str
    """The rule of `--rescale` by which its age follows the batch."""

    def __init__(self, network: ActorCritic, flat: FlatParameters):
        """`flat` holds the parameters of `network`; its first `policy_numel` values are the policy's."""
        self.policy = network.policy_only().requires_grad_(False)
        self.values = flatten_values(self.policy)
        """The weights as one vector, of which the policy's parameters are views."""
        self._current = flat.values[: network.policy_numel]

    @torch.no_grad()
    def policy_at(self, obs: Tensor) -> Distribution:
        """The proximal policy at `obs`; no gradient flows through it."""
        return self.policy.distribution(self.policy.policy_params(obs))

    def reset(self) -> None:
        """Let the proximal policy be the current one."""
        self.values.copy_(self._current)
        self._forget()

    def begin_iteration(self) -> None:  # noqa: B027 (an average has nothing of the kind)
        """Start the statistics of an iteration."""

    @abstractmethod
    def _forget(self) -> None: ...

    @abstractmethod
    def follow(self, hyperparameters: Pace, env_steps: float) -> None:
        """Follow the network after a gradient step that stands for `env_steps`."""

    @abstractmethod
    def rescale(self, factor: float) -> None:
        """When the env steps per gradient step change: `factor` is those before ÷ those from now on.

        The age in env steps then does not jump.
        """

    @property
    @abstractmethod
    def age_env_steps(self) -> float | None: ...

    @property
    @abstractmethod
    def age_gradient_steps(self) -> float | None: ...

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Average(NamedTuple):
    """The total weight of an average's entries, each counted by its decay, and their mean ages."""

    total_weight: float = 1.0
    age_env_steps: float = 0.0
    age_gradient_steps: float = 0.0

    def advanced(self, decay: float, env_steps: float, steps: int = 1) -> "Average":
        """The state after some more gradient steps."""
        total_weight, age_env_steps, age_gradient_steps = self
        for _ in range(steps):
            total_weight = decay * total_weight + 1.0
            share_of_past = 1.0 - 1.0 / total_weight
            age_env_steps = share_of_past * (age_env_steps + env_steps)
            age_gradient_steps = share_of_past * (age_gradient_steps + 1.0)
        return Average(total_weight, age_env_steps, age_gradient_steps)


class EwmaNetwork(WeightAverage):
    """Bias-corrected exponentially weighted average of a policy's weights.

        w ← β w + 1,   θ_proximal ← θ_proximal + (θ - θ_proximal) / w

    Hilton et al. 2021 (arXiv:2110.00641), §4 and its code. It is updated after every policy gradient step.
    """

    rule = "proximal-ewma"

    def __init__(self, network: ActorCritic, flat: FlatParameters):
        super().__init__(network, flat)
        self.reset()

    def _forget(self) -> None:
        self._average = Average()

    def follow(self, hyperparameters: Pace, env_steps: float) -> None:
        self.update(hyperparameters.proximal_decay, env_steps)

    def update(self, decay: float, env_steps: float = 0.0) -> None:
        """Add the weights after a gradient step that stands for `env_steps`."""
        self._average = self._average.advanced(decay, env_steps)
        self.values.lerp_(self._current, 1.0 / self._average.total_weight)

    def shares_ahead(self, decay: float, steps: int) -> list[float]:
        """By how much of their distance the averaged weights move to the current ones, in each next step."""
        shares, total_weight = list[float](), self.total_weight
        for _ in range(steps):
            total_weight = decay * total_weight + 1.0
            shares.append(1.0 / total_weight)
        return shares

    def has_followed(self, decay: float, env_steps: float, steps: int) -> None:
        """Count steps that native code has taken, with the averaged weights."""
        self._average = self._average.advanced(decay, env_steps, steps)

    def rescale(self, factor: float) -> None:
        # All but the newest weights then count as if they had been averaged in steps of the new size.
        self._average = self._average._replace(total_weight=(self.total_weight - 1.0) * factor + 1.0)

    @property
    def total_weight(self) -> float:
        return self._average.total_weight

    @property
    def age_env_steps(self) -> float:
        return self._average.age_env_steps

    @property
    def age_gradient_steps(self) -> float:
        return self._average.age_gradient_steps

    def state_dict(self) -> dict[str, Any]:
        return {"policy": dict(self.policy.state_dict()), **self._average._asdict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self._average = Average(*(state[name] for name in Average._fields))


class PeriodicCopy(WeightAverage):
    """A copy of a policy's weights, replaced every `copy_every` gradient steps.

    Right after a copy the proximal policy is the current one; over a period of n gradient steps its age rises
    from 0 to n - 1, (n - 1)/2 on average. This corresponds to the center of mass of an average of weights.
    The ages are means over the gradient steps since `begin_iteration`, since the value at a single point says
    little.
    """

    rule = "proximal-copy"

    def __init__(self, network: ActorCritic, flat: FlatParameters):
        super().__init__(network, flat)
        self.begin_iteration()
        self.reset()

    def _forget(self) -> None:
        """The next copy is a whole period away."""
        self.clock = 0.0
        self._env_steps_since, self._gradient_steps_since = 0.0, 0

    def begin_iteration(self) -> None:
        """Start new means of the ages."""
        self._steps, self._summed_env_steps, self._summed_gradient_steps = 0, 0.0, 0

    def follow(self, hyperparameters: Pace, env_steps: float) -> None:
        self.update(hyperparameters.proximal_copy_every, env_steps)

    def update(self, copy_every: int, env_steps: float = 0.0) -> None:
        """Count a gradient step that stands for `env_steps`; copy the weights if due."""
        self._steps += 1
        self._summed_env_steps += self._env_steps_since
        self._summed_gradient_steps += self._gradient_steps_since
        self.clock += 1.0
        self._env_steps_since += env_steps
        self._gradient_steps_since += 1
        if self.clock >= copy_every - CLOCK_TOLERANCE:
            self.reset()

    def rescale(self, factor: float) -> None:
        self.clock *= factor  # in gradient steps of the new size

    @property
    def age_env_steps(self) -> float | None:
        """Mean age that the copy had in the gradient steps of this iteration; None before the first."""
        return self._summed_env_steps / self._steps if self._steps else None

    @property
    def age_gradient_steps(self) -> float | None:
        """The same in gradient steps."""
        return self._summed_gradient_steps / self._steps if self._steps else None

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
