"""Optimizers on one flat parameter, in fused form: torch's default on a CPU is a slow loop."""

import math

import torch

from anybatch.config import OptimizerConfig


def make_optimizer(parameter: torch.nn.Parameter, config: OptimizerConfig) -> torch.optim.Optimizer:
    betas = (float(config.beta1), float(config.beta2))  # torch refuses a 0 that is an int
    match config.name:
        case "adam":
            return torch.optim.Adam(
                [parameter], lr=config.learning_rate, betas=betas, eps=config.eps, fused=True
            )
        case "radam":
            return FusedRAdam(parameter, lr=config.learning_rate, betas=betas, eps=config.eps)
        case "sgd":
            return torch.optim.SGD([parameter], lr=config.learning_rate, fused=True)


def first_state(parameter: torch.nn.Parameter, config: OptimizerConfig) -> dict[str, torch.Tensor]:
    """What an optimizer keeps of a parameter, as it is after a first step without a gradient."""
    twin = torch.nn.Parameter(torch.zeros_like(parameter, device="cpu"))
    twin.grad = torch.zeros_like(twin)
    optimizer = make_optimizer(twin, config)
    optimizer.step()
    return dict(optimizer.state[twin])


class FusedRAdam(torch.optim.Adam):
    """Rectified Adam (Liu et al. 2019, arXiv:1908.03265) in torch's fused Adam kernel.

    Equal to torch.optim.RAdam up to rounding, which costs small networks as much as their arithmetic.

    Where the variance of the second moment is tractable, a step is Adam's with the learning rate times r_t
    and with ε ÷ √(1 - β₂ᵗ), since RAdam adds ε before the correction of the bias. The first few steps are by
    the mean of the gradients alone.
    """

    def __init__(
        self, parameter: torch.nn.Parameter, *, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__([parameter], lr=lr, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        group = self.param_groups[0]
        parameter, (beta1, beta2) = group["params"][0], group["betas"]
        lr, eps = group["lr"], group["eps"]
        number = int(self.state[parameter]["step"]) + 1 if self.state[parameter] else 1
        rectification = rectification_of(number, beta2)
        if rectification is None:
            # The kernel still counts the step and keeps the moments.
            group["lr"] = 0.0
            super().step(closure)
            parameter.add_(self.state[parameter]["exp_avg"], alpha=-lr / (1 - beta1**number))
        else:
            group["lr"], group["eps"] = lr * rectification, eps / math.sqrt(1 - beta2**number)
            super().step(closure)
        group["lr"], group["eps"] = lr, eps


def rectification_of(step: int, beta2: float) -> float | None:
    """r_t of arXiv:1908.03265, alg. 2; None while the variance is intractable (ρ_t ≤ 5)."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    if length <= 5:
        return None
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
