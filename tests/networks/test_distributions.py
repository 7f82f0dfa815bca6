import math

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from anybatch.networks.distributions import Categorical, DiagonalGaussian, EpsilonGreedy, draw_noise

GENERATOR_SEED = 7
DRAWS = 100_003


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_categorical_matches_torch() -> None:
    ours, theirs = Categorical(normal(7, 5)), TorchCategorical(logits=normal(7, 5))
    action = torch.arange(7) % 5
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), theirs.logits.argmax(-1))
    assert torch.equal(ours.location, normal(7, 5))
    other = Categorical(2 * normal(7, 5))
    torch.testing.assert_close(
        ours.kl_from(other), kl_divergence(TorchCategorical(logits=other.location), theirs)
    )


def test_gaussian_matches_torch() -> None:
    mean, log_std = normal(7, 5), normal(5)
    ours, theirs = DiagonalGaussian(mean, log_std), Independent(Normal(mean, log_std.exp()), 1)
    action = normal(7, 5) + 0.3
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), mean)
    other = DiagonalGaussian(2 * mean, log_std - 0.5)
    torch_other = Independent(Normal(2 * mean, (log_std - 0.5).exp()), 1)
    torch.testing.assert_close(ours.kl_from(other), kl_divergence(torch_other, theirs))


def test_log_probabilities_and_entropies_have_torch_gradients() -> None:
    mean = normal(7, 5).requires_grad_()
    log_std = normal(5).requires_grad_()
    action = normal(7, 5) + 0.3
    ours, theirs = DiagonalGaussian(mean, log_std), Independent(Normal(mean, log_std.exp()), 1)
    for mine, torchs in zip(
        torch.autograd.grad((ours.log_prob(action) + 2 * ours.entropy()).sum(), (mean, log_std)),
        torch.autograd.grad((theirs.log_prob(action) + 2 * theirs.entropy()).sum(), (mean, log_std)),
        strict=True,
    ):
        torch.testing.assert_close(mine, torchs)
    index = torch.arange(7) % 5
    picked, reference = Categorical(mean), TorchCategorical(logits=mean)
    torch.testing.assert_close(
        torch.autograd.grad((picked.log_prob(index) + 2 * picked.entropy()).sum(), mean),
        torch.autograd.grad((reference.log_prob(index) + 2 * reference.entropy()).sum(), mean),
    )


def test_categorical_samples_have_the_probabilities() -> None:
    logits = torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25]).log() + 3.0
    noise = draw_noise((100_003, 5), torch.Generator().manual_seed(GENERATOR_SEED), continuous=False)
    share = torch.bincount(Categorical(logits).sample(noise), minlength=5) / 100_003
    torch.testing.assert_close(share, logits.softmax(-1), rtol=0, atol=0.006)


def test_gaussian_samples_have_mean_and_standard_deviation() -> None:
    mean, log_std = torch.tensor([1.0, -2.0, 0.0]), torch.tensor([0.0, -1.0, 1.0])
    noise = draw_noise((100_003, 3), torch.Generator().manual_seed(GENERATOR_SEED), continuous=True)
    action = DiagonalGaussian(mean, log_std).sample(noise)
    torch.testing.assert_close(action.mean(0), mean, rtol=0, atol=0.03)
    torch.testing.assert_close(action.std(0), log_std.exp(), rtol=0.01, atol=0)


def gumbel(num_actions: int, seed: int = GENERATOR_SEED) -> torch.Tensor:
    return draw_noise((DRAWS, num_actions), torch.Generator().manual_seed(seed), continuous=False)


def within_five_sigma(count: float, trials: float, probability: float) -> bool:
    return abs(count - trials * probability) <= 5 * math.sqrt(trials * probability * (1 - probability))


@pytest.mark.parametrize("epsilon", [0.001, 0.05, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("num_actions", [2, 5, 18])
def test_epsilon_greedy_takes_the_best_but_for_a_uniform_share(epsilon: float, num_actions: int) -> None:
    best = num_actions // 2
    values = torch.zeros(num_actions).index_fill(0, torch.tensor(best), 1e-3)
    action = EpsilonGreedy(values, epsilon).sample(gumbel(num_actions))
    counts = torch.bincount(action, minlength=num_actions).tolist()
    for index, count in enumerate(counts):
        expected = epsilon / num_actions + (1 - epsilon if index == best else 0.0)
        assert within_five_sigma(count, DRAWS, expected), index


def test_whether_to_explore_does_not_depend_on_which_random_action() -> None:
    """Each cell of the table (action the noise names × whether it is taken) has its product probability."""
    noise, epsilon, num_actions = gumbel(5), 0.3, 5
    named = noise.argmax(-1)
    for best in range(num_actions):
        values = torch.zeros(num_actions).index_fill(0, torch.tensor(best), 1.0)
        taken = EpsilonGreedy(values, epsilon).sample(noise)
        for action in set(range(num_actions)) - {best}:
            explored = int(((named == action) & (taken == action)).sum())
            kept = int(((named == action) & (taken == best)).sum())
            assert explored + kept == int((named == action).sum())
            assert within_five_sigma(explored, DRAWS, epsilon / num_actions)
            assert within_five_sigma(kept, DRAWS, (1 - epsilon) / num_actions)


def test_without_exploration_the_best_is_always_taken_and_with_all_of_it_never_looked_at() -> None:
    noise = gumbel(5)
    values = torch.randn(DRAWS, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(EpsilonGreedy(values, 0.0).sample(noise), values.argmax(-1))
    assert torch.equal(EpsilonGreedy(values, 1.0).sample(noise), noise.argmax(-1))


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_epsilon_greedy_probabilities_sum_to_one(epsilon: float) -> None:
    values = normal(7, 5)
    policy = EpsilonGreedy(values, epsilon)
    logp = torch.stack([policy.log_prob(torch.full((7,), action)) for action in range(5)], dim=-1)
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(7, dtype=torch.float64))
    assert torch.equal(policy.mode(), values.argmax(-1))
    best = logp.gather(-1, policy.mode()[:, None])
    torch.testing.assert_close(best.exp(), torch.full_like(best, 1 - epsilon + epsilon / 5))


def test_epsilon_greedy_uses_nothing_but_the_noise_given() -> None:
    noise, values = gumbel(5)[:1000], torch.zeros(1000, 5)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = EpsilonGreedy(values, 0.5).sample(noise)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(EpsilonGreedy(values, 0.5).sample(noise), one)
    assert not torch.equal(EpsilonGreedy(values, 0.5).sample(gumbel(5, seed=8)[:1000]), one)


def test_noise_depends_on_its_generator_alone() -> None:
    torch.manual_seed(1)
    one = draw_noise((7, 3), torch.Generator().manual_seed(5), continuous=True)
    torch.manual_seed(2)
    assert torch.equal(one, draw_noise((7, 3), torch.Generator().manual_seed(5), continuous=True))
