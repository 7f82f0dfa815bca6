"""Optimizers on one flat parameter, as one call each: torch's default on a CPU is a slow loop."""

import math

import torch
from torch import Tensor, nn

from anybatch.config import OptimizerConfig
from anybatch.kernels.adam import AdamKernel


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
    """What an optimizer keeps of a parameter, as it is after a first step without a gradient."""
    twin = nn.Parameter(torch.zeros_like(parameter, device="cpu"))
    twin.grad = torch.zeros_like(twin)
    optimizer = make_optimizer(twin, config)
    optimizer.take_step()
    return dict(optimizer.state[twin])


class FlatSGD(torch.optim.SGD):
    """Plain gradient descent."""

    def __init__(self, parameter: nn.Parameter, *, lr: float) -> None:
        super().__init__([parameter], lr=lr, fused=True)
        self.parameter = parameter

    def take_step(self, scale: float = 1.0) -> None:
        """One step, with the gradient times `scale`."""
        if scale != 1.0 and self.parameter.grad is not None:
            self.parameter.grad.mul_(scale)
        self.step()


class FlatAdam(torch.optim.Adam):
    """Adam (Kingma & Ba 2015) or, `rectified`, RAdam (Liu et al. 2019, arXiv:1908.03265).

    RAdam is equal to torch.optim.RAdam up to rounding, which costs small networks as much as their
    arithmetic: where the variance of the second moment is tractable, a step is Adam's with the learning rate
    times r_t and with ε ÷ √(1 - β₂ᵗ), since RAdam adds ε before the correction of the bias. The first few
    steps are by the mean of the gradients alone.
    """

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
        """Native code for the step, where that is used."""

    @torch.no_grad()
    def take_step(self, scale: float = 1.0) -> None:
        """One step, with the gradient times `scale`."""
        group = self.param_groups[0]
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        if not self.rectified:
            return self._step(lr, eps, scale)
        number = int(self.state[self.parameter].get("step", 0)) + 1
        rectification = rectification_of(number, beta2)
        if rectification is None:
            # The kernel still counts the step and keeps the moments.
            self._step(0.0, eps, scale)
            mean = self.state[self.parameter]["exp_avg"]
            self.parameter.add_(mean, alpha=-lr / (1 - beta1**number))
        else:
            self._step(lr * rectification, eps / math.sqrt(1 - beta2**number), scale)

    def _step(self, lr: float, eps: float, scale: float) -> None:
        group = self.param_groups[0]
        if self.kernel is None:
            kept = group["lr"], group["eps"]
            group["lr"], group["eps"] = lr, eps
            if scale != 1.0 and self.parameter.grad is not None:
                self.parameter.grad.mul_(scale)
            self.step()
            group["lr"], group["eps"] = kept
            return
        state = self.state[self.parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(self.parameter)
            state["exp_avg_sq"] = torch.zeros_like(self.parameter)
        state["step"] += 1
        number = int(state["step"])
        self.kernel.step(state, number, learning_rate=lr, betas=group["betas"], eps=eps, scale=scale)


def rectification_of(step: int, beta2: float) -> float | None:
    """r_t of arXiv:1908.03265, alg. 2; None while the variance is intractable (ρ_t ≤ 5)."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    if length <= 5:
        return None
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
