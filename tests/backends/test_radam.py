"""RAdam in the fused kernel against torch's own."""

import pytest
import torch

from anybatch.backends.optimizers import FlatAdam, rectification_of


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9), (0.0, 0.99)])
@pytest.mark.parametrize("eps", [1e-8, 1e-2])
def test_it_takes_the_steps_of_torch_radam(betas: tuple[float, float], eps: float) -> None:
    torch.manual_seed(0)
    start = torch.randn(50, dtype=torch.float64)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    fused = FlatAdam(ours, lr=0.01, betas=betas, eps=eps, rectified=True)
    plain = torch.optim.RAdam([theirs], lr=0.01, betas=betas, eps=eps)
    for number in range(40):
        gradient = torch.randn(50, dtype=torch.float64) * (1 + number % 3)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        if number == 20:  # a learning rate that is set from outside, as annealing does
            fused.param_groups[0]["lr"] = plain.param_groups[0]["lr"] = 0.003
        fused.take_step()
        plain.step()
        torch.testing.assert_close(ours.data, theirs.data, rtol=1e-12, atol=1e-12)
    assert fused.param_groups[0]["lr"] == 0.003 and fused.param_groups[0]["eps"] == eps
    assert set(fused.state[ours]) == {"step", "exp_avg", "exp_avg_sq"}


def test_the_first_five_steps_with_the_usual_beta_are_not_rectified() -> None:
    assert [rectification_of(step, 0.999) is None for step in range(1, 8)] == [True] * 5 + [False] * 2
    assert rectification_of(10**6, 0.999) == pytest.approx(1.0)
