"""Optimizers of one flat parameter that take a step in one call; torch's default on a CPU is a slow loop."""

import math
from inspect import unwrap

import torch
from torch import Tensor, nn

from anybatch.config import OptimizerConfig
from anybatch.kernels.adam import AdamKernel, StepNumbers

SHORTEST_TRACTABLE = 5
"""RAdam: the length ρ_t of an average above which its variance is tractable, as in torch."""


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
        self.kernel: AdamKernel | None = None
        """Native code for the step, if it is used."""

    def take_step(self, scale: float = 1.0) -> None:
        """One step, with the gradient times `scale`."""
        number = self.steps_taken + 1
        if self.kernel is not None:
            self.kernel.step(
                self.moments(), self.numbers_of(number), betas=self.param_groups[0]["betas"], scale=scale
            )
            self.count_steps(1)
        else:
            self._take_step_in_torch(number, scale)

    @property
    def steps_taken(self) -> int:
        return int(self.state[self.parameter].get("step", 0))

    def count_steps(self, count: int) -> None:
        """Steps that native code has taken."""
        self.moments()["step"] += count

    def numbers_of(self, number: int) -> StepNumbers:
        """What is particular to step `number`."""
        group = self.param_groups[0]
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        size, root_correction = lr / (1 - beta1**number), math.sqrt(1 - beta2**number)
        if not self.rectified:
            return StepNumbers(size, root_correction, eps)
        rectification = rectification_of(number, beta2)
        if rectification is None:
            return StepNumbers(size, math.inf, 1.0)  # only the mean of the gradients
        return StepNumbers(size * rectification, root_correction, eps / root_correction)

    @torch.no_grad()
    def _take_step_in_torch(self, number: int, scale: float) -> None:
        group = self.param_groups[0]
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        if scale != 1.0 and self.parameter.grad is not None:
            self.parameter.grad.mul_(scale)
        if not self.rectified:
            return self._step_with(lr, eps)
        rectification = rectification_of(number, beta2)
        if rectification is None:
            # Torch's kernel still counts the step and keeps the moments.
            self._step_with(0.0, eps)
            mean = self.state[self.parameter]["exp_avg"]
            self.parameter.add_(mean, alpha=-lr / (1 - beta1**number))
        else:
            self._step_with(lr * rectification, eps / math.sqrt(1 - beta2**number))

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
