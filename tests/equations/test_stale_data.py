import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anybatch.equations import moments, rescale, stale_data

CAP = 100.0


def share(weights: list[float]) -> float:
    log_weights = torch.tensor(weights, dtype=torch.float64).log()
    return stale_data.effective_share(*stale_data.capped_weight_sums(log_weights, CAP).tolist())


def test_golden_shares_and_factors() -> None:
    assert share([1.0, 2.0, 3.0]) == pytest.approx(36 / 42)
    assert stale_data.learning_rate_factor(36 / 42) == pytest.approx(0.9258200998)
    assert share([0.5] * 7) == pytest.approx(1.0)
    assert stale_data.learning_rate_factor(1.0) == 1.0
    # e¹⁰ counts as the 100 that the objective lets through: 101² / (2 · 10,001).
    assert share([1.0, 22026.465794806718]) == pytest.approx(10201 / 20002)
    # One of four outweighs all: a quarter of the samples, half of the learning rate.
    assert stale_data.learning_rate_factor(share([1e-9, 1e-9, 1e-9, 1.0])) == pytest.approx(0.5)


weights = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20)


@given(weights, weights)
def test_a_share_lies_between_one_sample_and_all_and_ranks_add_up(
    one: list[float], other: list[float]
) -> None:
    both = one + other
    assert 1 / len(both) - 1e-9 <= share(both) <= 1 + 1e-9
    sums = sum(
        stale_data.capped_weight_sums(torch.tensor(part, dtype=torch.float64).log(), CAP)
        for part in (one, other)
    )
    assert isinstance(sums, torch.Tensor)
    assert stale_data.effective_share(*sums.tolist()) == pytest.approx(share(both))


@given(st.lists(st.floats(1e-3, 99), min_size=1, max_size=20))
def test_below_the_cap_it_is_the_share_of_the_metric(some: list[float]) -> None:
    log_weights = torch.tensor(some, dtype=torch.float64).log()
    assert share(some) == pytest.approx(moments.effective_samples(log_weights).item())


@pytest.mark.parametrize(("lag", "decay"), [(2, 0.5), (16, 8 / 9), (192, 192 / 194), (1536, 1536 / 1538)])
def test_half_of_the_lag_as_a_decay(lag: int, decay: float) -> None:
    assert rescale.half_lag_decay(lag) == pytest.approx(decay, rel=1e-12)


@given(st.integers(1, 10**6))
def test_half_of_the_lag_is_the_center_of_mass_and_the_age_of_a_copy(lag: int) -> None:
    age = rescale.half_lag_age(lag)
    assert rescale.center_of_mass(rescale.half_lag_decay(lag)) == pytest.approx(age, rel=1e-6)
    assert rescale.copy_every_from_mean_age(age) == lag + 1
