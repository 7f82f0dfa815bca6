"""An average of the recent weights of any torch module, or a periodic copy of them, for any training loop.

    average = WeightAverage(policy, center_of_mass=64)
    ...
    optimizer.step()
    average.update()                       # after every gradient step
    proximal_logits = average.module(obs)  # what the next update has to stay close to

It imports torch and the rules only. The training loops of this package have their own version, on one flat
vector of weights (`networks.weight_average`).
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from anybatch import rules


class WeightAverage:
    """A frozen copy of a module, in eval mode, whose weights follow those of the module.

    With `center_of_mass`, in gradient steps, it is the bias-corrected exponentially weighted average of
    PPO-EWMA (Hilton et al. 2021, arXiv:2110.00641, §4):

        w ← β w + 1,   θ_average ← θ_average + (θ - θ_average) / w,   β = center / (1 + center)

    With `copy_every` it is a copy that is replaced every so many gradient steps. Buffers are copied at each
    update. Parameters that several layers share stay shared. Each weight is averaged on the device that its
    copy is on, which `average.module.to(…)` may change, and in float32 at least.
    """

    def __init__(
        self, module: nn.Module, *, center_of_mass: float | None = None, copy_every: int | None = None
    ):
        if (center_of_mass is None) == (copy_every is None):
            raise ValueError("exactly one of center_of_mass and copy_every must be given")
        if center_of_mass is not None and center_of_mass < 0:
            raise ValueError(f"center_of_mass = {center_of_mass}: must not be negative")
        if copy_every is not None and copy_every < 1:
            raise ValueError(f"copy_every = {copy_every}: must be at least 1")
        self.center_of_mass = center_of_mass
        self.copy_every: float | None = copy_every
        """Unrounded, if `rescale` has changed it."""
        self.module = copy.deepcopy(module).requires_grad_(False).eval()
        """The copy with the averaged weights."""
        self._source = module
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Let the copy have the current weights, and forget earlier ones."""
        for own, current in self._pairs():
            own.copy_(current)
        self._total_weight, self._clock = 1.0, 0.0
        self._precise = {name: weight.float() for name, weight in self._imprecise()}

    @torch.no_grad()
    def update(self) -> None:
        """Follow the module after a gradient step."""
        if self.copy_every is not None:
            self._clock += 1.0
            if round(self._clock, 9) >= rules.rescaled_copy_every(self.copy_every, 1.0, rounded=True):
                self.reset()
            return
        assert self.center_of_mass is not None
        decay = rules.decay_from_center_of_mass(self.center_of_mass)
        self._total_weight = decay * self._total_weight + 1.0
        share = 1.0 / self._total_weight
        parameters = zip(self.module.named_parameters(), self._source.parameters(), strict=True)
        for (name, own), current in parameters:
            average = self._precise.get(name, own)
            average.lerp_(current.to(average), share)
            if average is not own:
                own.copy_(average)
        for own, current in zip(self.module.buffers(), self._source.buffers(), strict=True):
            own.copy_(current)

    def rescale(self, ratio: float) -> None:
        """Keep the age of the average in env steps when the batch changes.

        `ratio` is the env steps per gradient step from now on ÷ those before. The center of mass, or the mean
        age of the copy, is divided by it (arXiv:2110.00641, §4).
        """
        if not ratio > 0:
            raise ValueError(f"ratio = {ratio}: must be positive")
        if self.center_of_mass is not None:
            self.center_of_mass /= ratio
        if self.copy_every is not None:
            self.copy_every = rules.rescaled_copy_every(self.copy_every, ratio)
        # Earlier weights count as if they had been added, or waited, in gradient steps of the new size.
        self._total_weight = 1.0 + (self._total_weight - 1.0) / ratio
        self._clock /= ratio

    def state_dict(self) -> dict[str, Any]:
        """Weights, buffers and pace, for `torch.save`."""
        return {
            "module": self.module.state_dict(),
            "precise": dict(self._precise),
            "center_of_mass": self.center_of_mass,
            "copy_every": self.copy_every,
            "total_weight": self._total_weight,
            "clock": self._clock,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`. An average cannot continue as a copy, nor a copy as an average."""
        if (state["copy_every"] is None) != (self.copy_every is None):
            raise ValueError("the saved state is of the other kind: an average, or a periodic copy")
        self.module.load_state_dict(state["module"])
        self.center_of_mass, self.copy_every = state["center_of_mass"], state["copy_every"]
        self._total_weight, self._clock = state["total_weight"], state["clock"]
        self._precise = {
            name: state["precise"][name].clone().to(own.device) for name, own in self._imprecise()
        }

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Parameters and buffers of the copy and of the module. Shared ones are listed once."""
        own = [*self.module.parameters(), *self.module.buffers()]
        return list(zip(own, [*self._source.parameters(), *self._source.buffers()], strict=True))

    def _imprecise(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters in which small shares would be lost to rounding; their averages are kept in float32."""
        return [
            (name, weight)
            for name, weight in self.module.named_parameters()
            if weight.dtype in (torch.float16, torch.bfloat16)
        ]
