import math
from collections.abc import Callable

import plain_noise_scale
import pytest
import torch
from torch import Tensor

from anybatch import rules
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
    assert rules.noise_scale(trace, signal) == pytest.approx(TRUE_TRACE / TRUE_SIGNAL, rel=0.04)


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
    assert rules.noise_scale(6.0, 2.0) == 3.0
    assert rules.noise_scale(6.0, 0.0) == math.inf
    assert rules.noise_scale(6.0, -1.0) == math.inf


def pooled_over(
    measure: int, groups: int, group_gradients: Callable[[], Tensor], size: int
) -> rules.NoiseEstimate:
    """The estimate from several measurements of `groups` mean gradients of `size` samples each."""
    measurements: list[tuple[float, float]] = []
    for _ in range(measure):
        sums = noise_scale.GroupSums()
        for gradient in group_gradients():
            sums.add(gradient, float(size))
        assert sums.groups == groups
        measurements.append(sums.measurement())
    return rules.pooled_noise_scale(measurements)


def agrees(found: rules.NoiseEstimate, truth: float) -> bool:
    """Whether the truth is within three standard errors, or above what it is more than."""
    if found.scale is None or found.error is None:
        return found.above is not None and found.above < truth
    return abs(found.scale - truth) < 3 * found.error


@pytest.mark.parametrize("size", [4, 16, 64, 512])
def test_independent_gradients_have_their_known_scale_whatever_the_group(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    found = pooled_over(50, 8, lambda: microbatch_gradients((size,) * 8, generator), size)
    assert agrees(found, TRUE_TRACE / TRUE_SIGNAL)
    assert found.scale is not None and found.error is not None and found.error < found.scale / 5


@pytest.mark.parametrize("envs", [4, 16, 64, 256])
def test_correlated_samples_have_one_scale_whatever_the_number_of_envs(envs: int) -> None:
    """Samples of an env share half of their variance: 16 of them have a design effect of 8.5."""
    generator = torch.Generator().manual_seed(envs)
    steps, groups = 16, min(16, envs)
    truth = 8.5 * TRUE_TRACE / TRUE_SIGNAL

    def samples() -> Tensor:
        common = torch.randn(envs, 1, 53, generator=generator, dtype=torch.float64)
        own = torch.randn(envs, steps, 53, generator=generator, dtype=torch.float64)
        return TRUE_GRADIENT + STANDARD_DEVIATIONS * math.sqrt(0.5) * (common + own)

    def by_env() -> Tensor:
        return samples().view(groups, -1, 53).mean(1)

    def mixed() -> Tensor:
        order = torch.randperm(envs * steps, generator=generator)
        return samples().view(-1, 53)[order].view(groups, -1, 53).mean(1)

    assert agrees(pooled_over(60, groups, by_env, envs * steps // groups), truth)
    biased = pooled_over(60, groups, mixed, envs * steps // groups)
    assert not agrees(biased, truth)
    assert biased.scale is not None and biased.scale < truth


def test_no_measurement_is_left_out_of_the_pool_and_hidden_signals_are_bounds() -> None:
    found = rules.pooled_noise_scale([(10.0, 1.0), (10.0, -0.5), (10.0, 4.0), (14.0, 3.5)])
    assert found.scale is None and found.above is not None  # 2 is not above two standard errors of 1.04
    assert found.trace / found.signal > found.above > 2
    clear = rules.pooled_noise_scale([(10.0, 1.0), (10.0, 3.0), (10.0, 2.0), (14.0, 2.0)])
    assert clear.scale == pytest.approx(11 / 2) and clear.above is None
    # residuals t - 5.5 s: 4.5, -6.5, -1, 3
    assert clear.error == pytest.approx(math.sqrt((4.5**2 + 6.5**2 + 1 + 9) / 3 / 4) / 2)


def test_few_measurements_have_no_standard_error_and_no_scale() -> None:
    found = rules.pooled_noise_scale([(10.0, 1.0)] * 3)
    assert found == (10.0, 1.0, None, None, None)
