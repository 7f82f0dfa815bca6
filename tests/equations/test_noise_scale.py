import math

import plain_noise_scale
import pytest
import torch
from torch import Tensor

from anybatch.equations import noise_scale

SIZES = (64, 64, 64, 7)
STANDARD_DEVIATIONS = torch.linspace(0.5, 1.5, 53, dtype=torch.float64)
TRUE_TRACE = float(STANDARD_DEVIATIONS.square().sum())
TRUE_GRADIENT = torch.full((53,), 0.3, dtype=torch.float64)
TRUE_SIGNAL = float(TRUE_GRADIENT.square().sum())


def microbatch_gradients(sizes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Mean gradients of microbatches, of samples with known noise and known mean."""
    samples = torch.randn(sum(sizes), 53, generator=generator, dtype=torch.float64)
    samples = TRUE_GRADIENT + STANDARD_DEVIATIONS * samples
    return torch.stack([part.mean(0) for part in samples.split(sizes)])


def from_squares(gradients: Tensor, sizes: tuple[int, ...]) -> tuple[float, float]:
    """tr(Σ) and |G|² from the sums that training keeps of the mean gradients of microbatches."""
    weights = torch.tensor(sizes, dtype=torch.float64)
    weighted_squares = float(weights @ gradients.square().sum(1))
    mean_square = float((weights @ gradients / weights.sum()).square().sum())
    return noise_scale.noise_scale_from_squares(weighted_squares, mean_square, sum(sizes), len(sizes))


def test_uneven_microbatches_give_unbiased_noise_and_signal() -> None:
    generator = torch.Generator().manual_seed(3)
    estimates = [from_squares(microbatch_gradients(SIZES, generator), SIZES) for _ in range(1000)]
    trace, signal = (sum(part) / len(part) for part in zip(*estimates, strict=True))
    assert trace == pytest.approx(TRUE_TRACE, rel=0.02)
    assert signal == pytest.approx(TRUE_SIGNAL, rel=0.02)
    assert noise_scale.noise_scale(trace, signal) == pytest.approx(TRUE_TRACE / TRUE_SIGNAL, rel=0.04)


@pytest.mark.parametrize("sizes", [SIZES, (16,) * 5, (1, 2), (3, 1, 1, 1)])
def test_the_sums_give_what_the_gradients_themselves_give(sizes: tuple[int, ...]) -> None:
    gradients = microbatch_gradients(sizes, torch.Generator().manual_seed(3))
    expected = plain_noise_scale.from_microbatches(gradients, torch.tensor(sizes))
    assert from_squares(gradients, sizes) == pytest.approx(expected, rel=1e-9)


def test_microbatches_of_one_size_and_the_pair_of_norms_agree() -> None:
    sizes = (16,) * 5
    gradients = microbatch_gradients(sizes, torch.Generator().manual_seed(3))
    small = gradients.square().sum(1).mean().item()
    big = gradients.mean(0).square().sum().item()
    pair = plain_noise_scale.from_pair(small, big, 16, 80)
    assert from_squares(gradients, sizes) == pytest.approx(pair, rel=1e-9)


def test_noise_that_hides_the_signal_is_infinite() -> None:
    assert noise_scale.noise_scale(6.0, 2.0) == 3.0
    assert noise_scale.noise_scale(6.0, 0.0) == math.inf
    assert noise_scale.noise_scale(6.0, -1.0) == math.inf
