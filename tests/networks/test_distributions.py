import math

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from anybatch.networks.distributions import (
    FORBIDDEN,
    Categorical,
    DiagonalGaussian,
    EpsilonGreedy,
    MultiCategorical,
    draw_noise,
    forbid,
    make_distribution,
)

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
    assert torch.equal(ours.params, normal(7, 5))
    other = Categorical(2 * normal(7, 5))
    torch.testing.assert_close(
        ours.kl_from(other), kl_divergence(TorchCategorical(logits=other.params), theirs)
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


COUNTS = (2, 3, 5)
FLOATS = [torch.float32, torch.float64]


def parts_of(logits: torch.Tensor, counts: tuple[int, ...] = COUNTS) -> list[TorchCategorical]:
    return [TorchCategorical(logits=part) for part in logits.split(counts, -1)]


@pytest.mark.parametrize("counts", [COUNTS, (5, 5), (7,), (1, 2, 7)])
def test_several_choices_are_sums_over_torchs_categoricals(counts: tuple[int, ...]) -> None:
    logits = normal(7, sum(counts))
    ours, theirs = MultiCategorical(logits, counts), parts_of(logits, counts)
    action = torch.stack([torch.arange(7) % count for count in counts], dim=-1)
    logp = sum(part.log_prob(taken) for part, taken in zip(theirs, action.unbind(-1), strict=True))
    torch.testing.assert_close(ours.log_prob(action), logp)
    torch.testing.assert_close(ours.entropy(), sum(part.entropy() for part in theirs))
    assert torch.equal(ours.mode(), torch.stack([part.logits.argmax(-1) for part in theirs], -1))
    assert torch.equal(ours.params, logits)
    other = MultiCategorical(2 * logits, counts)
    kl = sum(
        kl_divergence(part, mine) for part, mine in zip(parts_of(2 * logits, counts), theirs, strict=True)
    )
    torch.testing.assert_close(ours.kl_from(other), kl)
    assert torch.equal(ours.kl_from(ours), torch.zeros(7, dtype=torch.float64))


def test_several_choices_in_numbers() -> None:
    """Probabilities 1/4, 3/4 and 1/2, 1/3, 1/6, whose logarithms are known."""
    logits = torch.tensor([1.0, 3.0, 3.0, 2.0, 1.0], dtype=torch.float64).log()
    policy = MultiCategorical(logits, (2, 3))
    assert float(policy.log_prob(torch.tensor([1, 2]))) == pytest.approx(math.log(3 / 4 / 6), abs=1e-12)
    entropy = math.log(4) - 3 / 4 * math.log(3) + math.log(2) / 2 + math.log(3) / 3 + math.log(6) / 6
    assert float(policy.entropy()) == pytest.approx(entropy, abs=1e-12)
    uniform = MultiCategorical(torch.zeros(5, dtype=torch.float64), (2, 3))
    kl = math.log(2 * 3) - entropy
    assert float(uniform.kl_from(policy)) == pytest.approx(kl, abs=1e-12)
    assert policy.mode().tolist() == [1, 0]


@pytest.mark.parametrize("counts", [COUNTS, (5, 5)])
def test_several_choices_have_torch_gradients(counts: tuple[int, ...]) -> None:
    logits = normal(7, 10).requires_grad_()
    action = torch.stack([torch.arange(7) % count for count in counts], dim=-1)
    policy, fixed = MultiCategorical(logits, counts), 0.5 * normal(7, 10)
    ours = (
        policy.log_prob(action) + 2 * policy.entropy() + 3 * policy.kl_from(MultiCategorical(fixed, counts))
    )
    theirs = torch.zeros(7, dtype=torch.float64)
    for part, other, taken in zip(
        parts_of(logits, counts), parts_of(fixed, counts), action.unbind(-1), strict=True
    ):
        theirs = theirs + part.log_prob(taken) + 2 * part.entropy() + 3 * kl_divergence(other, part)
    torch.testing.assert_close(
        torch.autograd.grad(ours.sum(), logits), torch.autograd.grad(theirs.sum(), logits)
    )


def test_samples_of_several_choices_have_their_probabilities_and_are_independent() -> None:
    logits = torch.tensor([1.0, 3.0, 3.0, 2.0, 1.0]).log() + 3.0
    action = MultiCategorical(logits, (2, 3)).sample(gumbel(5))
    joint = torch.bincount(3 * action[:, 0] + action[:, 1], minlength=6) / DRAWS
    expected = torch.outer(torch.tensor([1 / 4, 3 / 4]), torch.tensor([1 / 2, 1 / 3, 1 / 6])).flatten()
    torch.testing.assert_close(joint, expected, rtol=0, atol=0.006)


def test_one_choice_is_a_categorical_to_the_bit() -> None:
    logits = normal(7, 5).float()
    one, plain = MultiCategorical(logits, (5,)), Categorical(logits)
    action, noise = torch.arange(7) % 5, gumbel(5)[:7]
    assert torch.equal(one.log_prob(action[:, None]), plain.log_prob(action))
    assert torch.equal(one.entropy(), plain.entropy())
    assert torch.equal(one.sample(noise)[:, 0], plain.sample(noise))
    assert torch.equal(one.mode()[:, 0], plain.mode())


def test_a_distribution_is_made_for_what_there_is() -> None:
    logits = normal(7, 10)
    assert isinstance(make_distribution(logits, None, None), Categorical)
    assert isinstance(make_distribution(logits, None, COUNTS), MultiCategorical)
    assert isinstance(make_distribution(logits, normal(10), None), DiagonalGaussian)


def some_mask(rows: int = 7) -> torch.Tensor:
    """bool [rows, 5]: which actions are allowed; between one and all of them."""
    codes = torch.arange(rows) * 9 % 31 + 1
    return (codes[:, None] >> torch.arange(5)) % 2 == 1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_masked_logits_are_the_distribution_of_the_allowed_actions(dtype: torch.dtype, scale: float) -> None:
    """Values, divergences and gradients, against torch's categorical of the allowed logits alone."""
    whole, fixed, mask = (scale * normal(7, 5)).to(dtype), normal(5, 7).T.to(dtype), some_mask()
    assert mask.sum(-1).min() > 0 and not mask.all()
    for row, allowed in enumerate(mask):
        logits = whole[row].clone().requires_grad_()
        policy = Categorical(forbid(logits, ~allowed))
        other = Categorical(forbid(fixed[row], ~allowed))
        index = int(allowed.nonzero()[-1])
        ours = (policy.log_prob(torch.tensor(index)), policy.entropy(), policy.kl_from(other))
        few = TorchCategorical(logits=logits[allowed])
        theirs = (
            few.log_prob(torch.tensor(int(allowed.sum()) - 1)),
            few.entropy(),
            kl_divergence(TorchCategorical(logits=fixed[row][allowed]), few),
        )
        for mine, torchs in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, torchs, rtol=1e-5, atol=1e-6)
            (slope,) = torch.autograd.grad(mine, logits, retain_graph=True)
            torch.testing.assert_close(slope, torch.autograd.grad(torchs, logits, retain_graph=True)[0])
            assert slope.isfinite().all() and (slope[~allowed] == 0).all()
        assert (policy.log_probs.exp()[~allowed] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_masked_entropy_is_at_most_that_of_the_allowed_actions_and_no_policy_is_far_from_itself(
    dtype: torch.dtype,
) -> None:
    mask = some_mask(31)
    for scale in (0.0, 1.0, 50.0):
        policy = Categorical(forbid((scale * normal(31, 5)).to(dtype), ~mask))
        assert (policy.entropy() <= mask.sum(-1).log() + 1e-6).all() and (policy.entropy() >= 0).all()
        assert torch.equal(policy.kl_from(policy), torch.zeros(31, dtype=dtype))
    uniform = Categorical(forbid(torch.zeros(31, 5, dtype=dtype), ~mask))
    torch.testing.assert_close(uniform.entropy(), mask.sum(-1).to(dtype).log())


def test_forbidden_actions_are_never_sampled() -> None:
    mask = some_mask(31)
    noise = gumbel(5)
    rows = torch.arange(DRAWS) % 31
    for logits in (torch.zeros(31, 5), 20 * normal(31, 5).float()):
        action = Categorical(forbid(logits, ~mask)[rows]).sample(noise)
        assert mask[rows, action].all()
        assert mask[torch.arange(31), Categorical(forbid(logits, ~mask)).mode()].all()
    counts = (2, 3)
    mask = mask[(mask[:, :2].any(-1)) & (mask[:, 2:].any(-1))]
    rows = torch.arange(DRAWS) % len(mask)
    policy = MultiCategorical(forbid(20 * normal(len(mask), 5).float(), ~mask)[rows], counts)
    for action in (policy.sample(noise), policy.mode()):
        assert mask[rows, action[:, 0]].all() and mask[rows, 2 + action[:, 1]].all()


def test_noise_is_finite_so_that_it_cannot_choose_forbidden_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    plain = torch.empty(1000, 5).exponential_(generator=generator).log().neg()
    generator.manual_seed(1)
    assert torch.equal(draw_noise((1000, 5), generator, continuous=False), plain)
    # Some machines draw exponential numbers that are 0.
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda noise, **_: noise.zero_())
    noise = draw_noise((1, 3), generator, continuous=False)
    assert noise.isfinite().all()
    noise[0, 1] = 0.0
    assert Categorical(torch.tensor([[FORBIDDEN, 0.0, FORBIDDEN]])).sample(noise).tolist() == [1]


def test_choices_seen_while_acting_can_be_trained() -> None:
    counts = (4, 1, 2)  # which no other test has
    with torch.inference_mode():
        MultiCategorical(torch.zeros(2, 7), counts).mode()
    logits = torch.zeros(2, 7, requires_grad=True)
    (slope,) = torch.autograd.grad(MultiCategorical(logits, counts).entropy().sum(), logits)
    assert slope.shape == (2, 7)


@pytest.mark.parametrize("dtype", FLOATS)
def test_masked_choices_have_the_sums_of_their_parts(dtype: torch.dtype) -> None:
    mask = torch.tensor([True, False, False, True, True, True, False, True, False, True])
    logits, fixed = normal(1, 10)[0].to(dtype).requires_grad_(), normal(10, 1)[:, 0].to(dtype)
    policy = MultiCategorical(forbid(logits, ~mask), COUNTS)
    other = MultiCategorical(forbid(fixed, ~mask), COUNTS)
    values = policy.log_prob(torch.tensor([0, 1, 2])), policy.entropy(), policy.kl_from(other)
    few = [TorchCategorical(logits=logits[index]) for index in ([0], [3, 4], [5, 7, 9])]
    anchors = [TorchCategorical(logits=fixed[index]) for index in ([0], [3, 4], [5, 7, 9])]
    expected = (
        sum(part.log_prob(torch.tensor(taken)) for part, taken in zip(few, (0, 0, 1), strict=True)),
        sum(part.entropy() for part in few),
        sum(kl_divergence(anchor, part) for anchor, part in zip(anchors, few, strict=True)),
    )
    for mine, theirs in zip(values, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
        (slope,) = torch.autograd.grad(mine, logits, retain_graph=True)
        torch.testing.assert_close(slope, torch.autograd.grad(theirs, logits, retain_graph=True)[0])
        assert (slope[~mask] == 0).all()


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("allowed", [[0, 3, 4], [2], [0, 1, 2, 3, 4]])
def test_masked_epsilon_greedy_explores_the_allowed_actions_uniformly(
    epsilon: float, allowed: list[int]
) -> None:
    forbidden = torch.ones(5, dtype=torch.bool).index_fill(0, torch.tensor(allowed), False)
    values = forbid(torch.tensor([0.1, 0.5, 0.2, 0.4, 0.3]), forbidden)
    best = max(allowed, key=lambda action: float(values[action]))
    policy = EpsilonGreedy(values.expand(DRAWS, 5), epsilon, masked=True)
    counts = torch.bincount(policy.sample(gumbel(5)), minlength=5).tolist()
    for action, count in enumerate(counts):
        expected = 0.0
        if action in allowed:
            expected = epsilon / len(allowed) + (1 - epsilon if action == best else 0.0)
        assert within_five_sigma(count, DRAWS, expected), action
        logp = EpsilonGreedy(values, epsilon, masked=True).log_prob(torch.tensor(action))
        assert math.exp(float(logp)) == pytest.approx(expected, abs=1e-7)


def test_masked_exploration_does_not_depend_on_which_random_action() -> None:
    forbidden = torch.tensor([False, True, False, False, True])
    values = forbid(torch.tensor([0.0, 9.0, 1.0, 0.0, 9.0]), forbidden)
    noise = gumbel(5)
    named = noise.masked_fill(forbidden, -math.inf).argmax(-1)
    taken = EpsilonGreedy(values.expand(DRAWS, 5), 0.3, masked=True).sample(noise)
    for action in (0, 3):
        explored = int(((named == action) & (taken == action)).sum())
        assert within_five_sigma(explored, DRAWS, 0.3 / 3)
        assert within_five_sigma(int(((named == action) & (taken == 2)).sum()), DRAWS, 0.7 / 3)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1 / 3, 1.0])
def test_a_mask_that_allows_everything_changes_no_bit(epsilon: float) -> None:
    values, noise = normal(DRAWS, 5).float(), gumbel(5)
    plain, masked = EpsilonGreedy(values, epsilon), EpsilonGreedy(values, epsilon, masked=True)
    action = plain.sample(noise)
    assert torch.equal(masked.sample(noise), action)
    assert torch.equal(masked.log_prob(action), plain.log_prob(action))
    nothing = torch.zeros(DRAWS, 5, dtype=torch.bool)
    assert torch.equal(forbid(values, nothing), values)


def test_noise_depends_on_its_generator_alone() -> None:
    torch.manual_seed(1)
    one = draw_noise((7, 3), torch.Generator().manual_seed(5), continuous=True)
    torch.manual_seed(2)
    assert torch.equal(one, draw_noise((7, 3), torch.Generator().manual_seed(5), continuous=True))
