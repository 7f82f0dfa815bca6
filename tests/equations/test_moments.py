import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anybatch.equations import moments
from anybatch.equations.moments import Moments, RunningMoments

EMPTY = Moments(0.0, 0.0, 0.0)


def running(x: torch.Tensor) -> RunningMoments:
    count = torch.tensor(float(len(x)), dtype=torch.float64)
    return RunningMoments(count, x.mean(0), x.var(0, correction=0) * count)


def test_masked_moments_see_valid_entries_only() -> None:
    x = torch.tensor([[1.0, math.nan, 3.0], [8.0, math.inf, 4.0]])
    valid = torch.tensor([[True, False, True], [True, False, False]])
    count, mean, variance = moments.masked_moments(x, valid)
    assert (count.item(), mean.item()) == (3.0, 4.0)
    assert variance.item() == pytest.approx(26 / 3)
    assert [float(m) for m in moments.masked_moments(x, torch.zeros_like(valid))] == [0.0, 0.0, 0.0]


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
    generator = torch.Generator().manual_seed(seed)
    x = 100 + torch.randn(sum(sizes), 3, generator=generator, dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    merged = RunningMoments(torch.tensor(0.0, dtype=torch.float64), zero, zero)
    merged = moments.merge_moments(merged, merged)
    for part in x.split(sizes):
        merged = moments.merge_moments(merged, running(part))
    for ours, whole in zip(merged, running(x), strict=True):
        torch.testing.assert_close(ours, whole, rtol=1e-9, atol=1e-9)


def test_effective_samples_of_equal_single_and_uneven_weights() -> None:
    assert moments.effective_samples(torch.full((7,), -500.0)).item() == pytest.approx(1.0)
    assert moments.effective_samples(torch.tensor([0.0] * 4 + [900.0])).item() == pytest.approx(0.2)
    weights = torch.tensor([1.0, 2.0, 3.0])
    assert moments.effective_samples(weights.log()).item() == pytest.approx(36 / (3 * 14))
