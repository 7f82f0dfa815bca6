"""Optimizers of one flat parameter that take a step in one call; torch's default on a CPU is a slow loop."""

import math
from inspect import unwrap
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anybatch.config import OptimizerConfig

SHORTEST_TRACTABLE = 5
"""RAdam: the length ρ_t of an average above which its variance is tractable, as in torch."""


class StepNumbers(NamedTuple):
    """What is particular to each of some steps: value -= size × first ÷ (√second ÷ root_correction + eps)."""

    size: list[float]
    root_correction: list[float]
    eps: list[float]


def make_optimizer(parameter: nn.Parameter, config: OptimizerConfig) -> "FlatAdam | FlatSGD":
    if config.name == "sgd":
        return FlatSGD(parameter, lr=config.learning_rate)
    return FlatAdam(
        parameter,
        lr=config.learning_rate,
        betas=(float(config.beta1), float(config.beta2)),  # torch refuses a 0 that is an int
        eps=config.eps,
        rectified=config.name == "radam",
    )


def first_state(parameter: nn.Parameter, config: OptimizerConfig) -> dict[str, Tensor]:
    """The optimizer state of a parameter before its first step."""
    twin = nn.Parameter(torch.zeros_like(parameter, device="cpu"))
    twin.grad = torch.zeros_like(twin)
    optimizer = make_optimizer(twin, config)
    optimizer.take_step()
    return dict(optimizer.state[twin])


class _NotCompiled:
    """Methods of torch's optimizers without the wrappers that keep torch's compiler away from them.

    On their first call, these import the compiler, which takes as long as all else that a run starts with.
    The wrapper of `step` also turns gradients off; callers of a subclass's own `step` do that instead.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)


class FlatSGD(_NotCompiled, torch.optim.SGD):
    """Plain gradient descent."""

    step = unwrap(torch.optim.SGD.step)

    def __init__(self, parameter: nn.Parameter, *, lr: float) -> None:
        super().__init__([parameter], lr=lr, fused=True)
        self.parameter = parameter

    @torch.no_grad()
    def take_step(self, scale: float = 1.0) -> None:
        """One step, with the gradient times `scale`."""
        if scale != 1.0 and self.parameter.grad is not None:
            self.parameter.grad.mul_(scale)
        self.step()


class FlatAdam(_NotCompiled, torch.optim.Adam):
    """Adam (Kingma & Ba 2015) or, `rectified`, RAdam (Liu et al. 2019, arXiv:1908.03265).

    RAdam equals torch.optim.RAdam up to rounding, but not its overhead, which for small networks is as large
    as their arithmetic. Where the variance of the second moment is tractable, a step is Adam's with the
    learning rate times r_t and with ε ÷ √(1 - β₂ᵗ), since RAdam adds ε before it corrects the bias. The first
    few steps use only the mean of the gradients.
    """

    step = unwrap(torch.optim.Adam.step)

    def __init__(
        self,
        parameter: nn.Parameter,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        rectified: bool = False,
    ) -> None:
        super().__init__([parameter], lr=lr, betas=betas, eps=eps, fused=True)
        self.parameter = parameter
        self.rectified = rectified

    @property
    def steps_taken(self) -> int:
        return int(self.state[self.parameter].get("step", 0))

    def count_steps(self, count: int) -> None:
        """Steps that native code has taken."""
        self.moments()["step"] += count

    def numbers_ahead(self, steps: int) -> StepNumbers:
        """What native code needs to know of each of the next steps."""
        group, first = self.param_groups[0], self.steps_taken + 1
        (beta1, beta2), numbers = group["betas"], range(first, first + steps)
        adapted = [(group["lr"], group["eps"])] * steps
        if self.rectified:
            adapted = [self._rate_and_eps(number) for number in numbers]
        rates = [group["lr"] if both is None else both[0] for both in adapted]  # None: only the mean counts
        roots = [math.sqrt(1 - beta2**number) for number in numbers]
        return StepNumbers(
            [rate / (1 - beta1**number) for rate, number in zip(rates, numbers, strict=True)],
            [math.inf if both is None else root for root, both in zip(roots, adapted, strict=True)],
            [1.0 if both is None else both[1] for both in adapted],
        )

    @torch.no_grad()
    def take_step(self, scale: float = 1.0) -> None:
        """One step, with the gradient times `scale`."""
        number, group = self.steps_taken + 1, self.param_groups[0]
        if scale != 1.0 and self.parameter.grad is not None:
            self.parameter.grad.mul_(scale)
        adapted = self._rate_and_eps(number)
        if adapted is None:
            # Torch's kernel still counts the step and keeps the moments.
            self._step_with(0.0, group["eps"])
            mean = self.state[self.parameter]["exp_avg"]
            self.parameter.add_(mean, alpha=-group["lr"] / (1 - group["betas"][0] ** number))
        else:
            self._step_with(*adapted)

    def _rate_and_eps(self, number: int) -> tuple[float, float] | None:
        """The learning rate and ε with which Adam's step is this optimizer's; None: only the mean counts."""
        group = self.param_groups[0]
        rate, eps, (_, beta2) = group["lr"], group["eps"], group["betas"]
        if not self.rectified:
            return rate, eps
        rectification = rectification_of(number, beta2)
        if rectification is None:
            return None
        return rate * rectification, eps / math.sqrt(1 - beta2**number)

    def _step_with(self, lr: float, eps: float) -> None:
        group = self.param_groups[0]
        kept = group["lr"], group["eps"]
        group["lr"], group["eps"] = lr, eps
        self.step()
        group["lr"], group["eps"] = kept

    def moments(self) -> dict[str, Tensor]:
        """The moments of the gradients, zeros before the first step; names are torch's."""
        state = self.state[self.parameter]
        if not state:
            # Torch counts the steps of its own kernel on the parameter's device.
            state["step"] = torch.zeros((), dtype=torch.float32, device=self.parameter.device)
            state["exp_avg"] = torch.zeros_like(self.parameter)
            state["exp_avg_sq"] = torch.zeros_like(self.parameter)
        return state


def rectification_of(step: int, beta2: float) -> float | None:
    """r_t of arXiv:1908.03265, alg. 2; None while the variance is intractable."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    if length <= SHORTEST_TRACTABLE:
        return None
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
