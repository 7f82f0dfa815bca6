import math

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from anybatch.equations import divergence


def test_categorical_kl_matches_torch() -> None:
    p, q = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = kl_divergence(Categorical(logits=p), Categorical(logits=q))
    torch.testing.assert_close(divergence.categorical_kl(p, q), expected)
    assert not torch.isclose(divergence.categorical_kl(q, p), expected).any()


def test_gaussian_kl_matches_torch_and_sums_over_dimensions() -> None:
    generator = torch.Generator().manual_seed(1)
    mean_p, mean_q = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    log_std_p, log_std_q = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    expected = kl_divergence(
        Independent(Normal(mean_p, log_std_p.exp()), 1), Independent(Normal(mean_q, log_std_q.exp()), 1)
    )
    torch.testing.assert_close(divergence.gaussian_kl(mean_p, log_std_p, mean_q, log_std_q), expected)


def test_sampled_kl_squared_of_a_log_ratio_of_a_tenth() -> None:
    kl = divergence.sampled_kl_squared(torch.tensor([0.1, -0.1]), torch.zeros(2))
    assert kl.tolist() == pytest.approx([0.005, 0.005])


def test_sampled_kl_is_never_negative_and_unbiased() -> None:
    p, q = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.4, 0.4, 0.2])
    kl = divergence.sampled_kl(q.log(), p.log())
    assert (kl >= 0).all()
    assert (p * kl).sum().item() == pytest.approx((p * (p / q).log()).sum().item())


def test_clip_fraction_counts_ratios_outside_the_range() -> None:
    logratio = torch.tensor([0.79, 0.81, 1.0, 1.19, 1.21]).log()
    assert divergence.is_clipped(logratio, 0.2).float().mean().item() == pytest.approx(0.4)
    assert divergence.is_clipped(torch.tensor([-30.0, 1.0]), 1.0).tolist() == [False, True]
    assert not divergence.is_clipped(torch.tensor([-30.0, 30.0]), math.inf).any()


def test_greedy_action_churn_counts_states_whose_best_action_changed() -> None:
    before = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    after = before.clone()
    after[1, 2] = 4.0
    assert divergence.greedy_action_churn(before, after + 7.0).item() == pytest.approx(1 / 3)
