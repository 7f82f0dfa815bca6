import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from anybatch.networks.distributions import Categorical, DiagonalGaussian, draw_noise

GENERATOR_SEED = 7


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


def test_noise_depends_on_its_generator_alone() -> None:
    torch.manual_seed(1)
    one = draw_noise((7, 3), torch.Generator().manual_seed(5), continuous=True)
    torch.manual_seed(2)
    assert torch.equal(one, draw_noise((7, 3), torch.Generator().manual_seed(5), continuous=True))
