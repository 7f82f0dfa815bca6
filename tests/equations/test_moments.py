import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anybatch.equations import moments
from anybatch.equations.moments import Moments, RunningMoments

EMPTY = Moments(0.0, 0.0, 0.0)


def running(x: np.ndarray) -> RunningMoments[np.ndarray]:
    return RunningMoments(len(x), x.mean(0), x.var(0) * len(x))


def test_advantage_moments_without_decay_normalize_the_batch() -> None:
    x = 3 + 2 * torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    stale = Moments(1e6, 5e6, 9e9)
    state = moments.ewma_moments(stale, 21.0, x.mean().item(), x.square().mean().item(), decay=0.0)
    mean, std = moments.moments_mean_std(state)
    normalized = (x - mean) / (std + 1e-8)
    assert normalized.mean().item() == pytest.approx(0.0, abs=1e-12)
    assert normalized.std(correction=0).item() == pytest.approx(1.0, abs=1e-7)


def test_advantage_moments_with_decay_have_the_worked_numbers() -> None:
    state = moments.ewma_moments(EMPTY, 5.0, 0.0, 0.0, decay=0.6)
    state = moments.ewma_moments(state, 5.0, 1.0, 1.0, decay=0.6)
    mean, std = moments.moments_mean_std(state)
    assert mean == pytest.approx(0.625, abs=1e-12)
    assert std**2 == pytest.approx(0.234375, abs=1e-12)


def test_a_batch_of_equal_advantages_has_no_imaginary_std() -> None:
    state = moments.ewma_moments(EMPTY, 3.0, 0.1, 0.1 * 0.1 - 1e-18, decay=0.0)
    assert moments.moments_mean_std(state) == (pytest.approx(0.1), 0.0)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(0, 1000))
def test_merged_moments_are_those_of_the_union(sizes: list[int], seed: int) -> None:
    x = 100 + np.random.default_rng(seed).normal(size=(sum(sizes), 3))
    merged = RunningMoments(0, np.zeros(3), np.zeros(3))
    merged = moments.merge_moments(merged, merged)
    numbers = RunningMoments(0, 0.0, 0.0)  # of the first column alone
    for part in np.split(x, np.cumsum(sizes)[:-1]):
        batch = running(part)
        merged = moments.merge_moments(merged, batch)
        first = RunningMoments(batch.samples, float(batch.mean[0]), float(batch.m2[0]))
        numbers = moments.merge_moments(numbers, first)
    for ours, whole in zip(merged, running(x), strict=True):
        np.testing.assert_allclose(ours, whole, rtol=1e-9, atol=1e-9)
    assert numbers == (merged.samples, merged.mean[0], merged.m2[0])


def test_merged_moments_have_the_worked_numbers() -> None:
    # 1 and 3, then 8: mean 4, and (1-4)² + (3-4)² + (8-4)² = 26.
    merged = moments.merge_moments(RunningMoments(2, 2.0, 2.0), RunningMoments(1, 8.0, 0.0))
    assert merged == (3, pytest.approx(4.0, rel=1e-15), pytest.approx(26.0, rel=1e-15))


def test_effective_samples_of_equal_single_and_uneven_weights() -> None:
    assert moments.effective_samples(torch.full((7,), -500.0)).item() == pytest.approx(1.0)
    assert moments.effective_samples(torch.tensor([0.0] * 4 + [900.0])).item() == pytest.approx(0.2)
    weights = torch.tensor([1.0, 2.0, 3.0])
    assert moments.effective_samples(weights.log()).item() == pytest.approx(36 / (3 * 14))
