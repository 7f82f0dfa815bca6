"""Running statistics against straight-line ones, with reset steps in between."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anybatch.acting.normalizers import AdvantageNormalizer, ObservationNormalizer, RewardNormalizer
from anybatch.errors import EnvError

T, N = 7, 3


def rollouts(count: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Reward, valid and episode end of consecutive rollouts under next-step reset, [T, N] each."""
    rng = np.random.default_rng(seed)
    ended = np.zeros((count * T, N), dtype=bool)
    valid = np.ones_like(ended)
    for t in range(count * T):
        valid[t] = ~ended[t - 1] if t else True
        ended[t] = valid[t] & (rng.random(N) < 0.3)
    reward = np.where(valid, rng.normal(2.0, 3.0, ended.shape), 0.0).astype(np.float32)
    pieces = zip(*(np.split(part, count) for part in (reward, valid, ended)), strict=True)
    return [tuple(torch.from_numpy(part.copy()) for part in piece) for piece in pieces]


class PlainRewardScale:
    """R ← r + 0.99 R, forgotten at episode ends; variance over all R so far with a prior of weight 1e-4."""

    def __init__(self, discount: float) -> None:
        self.discount = discount
        self.running = [0.0] * N
        self.seen: list[float] = []

    def step(self, reward: list[float], valid: list[bool], ended: list[bool]) -> None:
        for env in range(N):
            if valid[env]:
                self.running[env] = reward[env] + self.discount * self.running[env]
                self.seen.append(self.running[env])
            if ended[env]:
                self.running[env] = 0.0

    def scale(self) -> float:
        weight = 1e-4 + len(self.seen)
        mean = sum(self.seen) / weight
        variance = (1e-4 + sum(value**2 for value in self.seen)) / weight - mean**2
        return math.sqrt(variance + 1e-8)


@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("discount", [0.99, 0.5])
def test_rewards_are_scaled_as_by_a_straight_line_computation(per_step: bool, discount: float):
    normalizer = RewardNormalizer(N, discount=discount, clip=1.0, per_step=per_step)
    plain = PlainRewardScale(discount)
    phantoms = clipped = 0
    for reward, valid, ended in rollouts(4):
        scales = []
        for t in range(T):
            plain.step(reward[t].tolist(), valid[t].tolist(), ended[t].tolist())
            scales.append(plain.scale())
        if not per_step:
            scales = [plain.scale()] * T
        expected = (reward / torch.tensor(scales)[:, None]).clamp(-1.0, 1.0)
        scaled = normalizer(reward, valid, ended)
        torch.testing.assert_close(scaled, expected, rtol=1e-5, atol=1e-6)
        phantoms += int((~valid).sum())
        clipped += int((scaled.abs() == 1.0).sum())
    assert phantoms > 0 and clipped > 0
    assert normalizer.count == pytest.approx(1e-4 + len(plain.seen))
    np.testing.assert_allclose(normalizer.running_return, plain.running, rtol=1e-6)


def test_rewards_are_not_centered():
    normalizer = RewardNormalizer(N, discount=0.0, clip=10.0, per_step=False)
    reward = torch.randn(T, N, generator=torch.Generator().manual_seed(1)) * 0.5 + 2.0
    scaled = normalizer(reward, torch.ones(T, N, dtype=torch.bool), torch.zeros(T, N, dtype=torch.bool))
    torch.testing.assert_close(scaled / scaled[0, 0], reward / reward[0, 0])
    assert scaled.mean() > 2


def test_the_rewards_of_reset_steps_count_for_nothing():
    reward, valid, ended = rollouts(1, seed=4)[0]
    assert (~valid).any()
    plain, disturbed = (RewardNormalizer(N, discount=0.9, clip=10.0, per_step=True) for _ in range(2))
    expected = plain(reward, valid, ended)
    got = disturbed(torch.where(valid, reward, 1e6), valid, ended)
    assert torch.equal(got[valid], expected[valid])
    for name, value in plain.state_dict().items():
        assert np.array_equal(disturbed.state_dict()[name], value)


def test_reward_statistics_come_back_always_and_returns_for_the_same_envs():
    reward, valid, ended = rollouts(1)[0]
    normalizer = RewardNormalizer(N, discount=0.9, clip=10.0, per_step=True)
    normalizer(reward, valid, ended)
    saved = normalizer.state_dict()
    for envs in (N, 5):
        restored = RewardNormalizer(envs, discount=0.9, clip=10.0, per_step=True)
        restored.load_state_dict(saved)
        restored.continue_returns(normalizer.running_return)
        assert restored.count == normalizer.count and restored.total_squares == normalizer.total_squares
        expected = normalizer.running_return if envs == N else np.zeros(5)
        assert np.array_equal(restored.running_return, expected)


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    shift=st.floats(-100, 100),
    seed=st.integers(0, 99),
)
def test_observation_moments_are_those_of_the_concatenation(counts: list[int], shift: float, seed: int):
    rng = np.random.default_rng(seed)
    pieces = [(rng.normal(shift, 3.0, (count, 5))).astype(np.float32) for count in counts]
    normalizer = ObservationNormalizer((5,), clip=10.0)
    for piece in pieces:
        normalizer.update(piece)
    # The prior of mean 0 and variance 1 weighs as much as 1e-4 samples.
    everything, total = np.concatenate(pieces).astype(np.float64), 1e-4 + sum(counts)
    mean = everything.sum(0) / total
    variance = (1e-4 + np.square(everything).sum(0)) / total - np.square(mean)
    np.testing.assert_allclose(normalizer.mean, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(normalizer.square_sum / normalizer.count, variance, rtol=1e-6, atol=1e-6)
    expected = np.clip((everything - mean) / np.sqrt(variance + 1e-8), -10, 10)
    np.testing.assert_allclose(normalizer.normalize(everything), expected, rtol=1e-4, atol=1e-4)


def test_normalized_observations_have_mean_0_and_variance_1():
    obs = np.random.default_rng(0).normal(50.0, 7.0, (9973, 2)).astype(np.float32)
    normalizer = ObservationNormalizer((2,), clip=10.0)
    normalizer.update(obs)
    scaled = normalizer.normalize(obs)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-4)


def test_normalized_observations_are_clipped():
    normalizer = ObservationNormalizer((1,), clip=3.0)
    normalizer.update(np.array([[-1.0], [1.0]]))
    assert normalizer.normalize(np.array([[100.0], [-100.0], [0.5]])).flatten() == pytest.approx(
        [3.0, -3.0, 0.5], rel=1e-3
    )


def test_restored_observation_normalizer_goes_on_the_same_way():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 5, 3))
    whole, restored = ObservationNormalizer((3,), clip=9.0), ObservationNormalizer((3,), clip=9.0)
    whole.update(first)
    restored.load_state_dict(whole.state_dict())
    whole.update(second)
    restored.update(second)
    assert np.array_equal(whole.normalize(first), restored.normalize(first))


def test_statistics_of_iterations_change_at_their_ends_and_count_every_observation_once():
    normalizer = ObservationNormalizer((3,), clip=9.0, per_step=False)
    by_hand = ObservationNormalizer((3,), clip=9.0)
    for steps in np.random.default_rng(0).normal(3.0, 2.0, (3, 4, 5, 3)):  # iterations, steps, envs, numbers
        before = normalizer.normalize(steps[0])
        for obs in steps:
            normalizer.update(obs)
        assert np.array_equal(normalizer.normalize(steps[0]), before)
        normalizer.end_iteration()
        by_hand.update(np.concatenate(steps))
        np.testing.assert_allclose(normalizer.normalize(steps[0]), by_hand.normalize(steps[0]), rtol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_a_number_is_refused_by_env(bad: float):
    obs = np.zeros((3, 5), dtype=np.float32)
    obs[1, 4] = bad
    normalizer = ObservationNormalizer((5,), clip=10.0)
    with pytest.raises(EnvError, match="environment 1 returned a non-finite observation"):
        normalizer.update(obs)
    with pytest.raises(EnvError, match="environment 7 returned a non-finite observation"):
        normalizer.update(obs, envs=np.array([2, 7, 11]))
    assert np.isfinite(normalizer.mean).all()


def test_advantage_moments_decay_over_iterations():
    normalizer = AdvantageNormalizer()
    valid = torch.ones(T, N, dtype=torch.bool)
    normalizer.update(torch.zeros(T, N), valid, decay=0.6)
    normalizer.update(torch.ones(T, N), valid, decay=0.6)
    mean, std = normalizer.mean_std
    assert mean == pytest.approx(0.625, rel=1e-12)
    assert std**2 == pytest.approx(0.234375, rel=1e-12)
    normalized = normalizer.normalize(torch.ones(T, N, dtype=torch.float64))
    torch.testing.assert_close(
        normalized, torch.full((T, N), (1 - 0.625) / (math.sqrt(0.234375) + 1e-8), dtype=torch.float64)
    )


def test_decay_0_is_ordinary_normalization_of_the_valid_samples():
    normalizer = AdvantageNormalizer()
    advantage = torch.randn(T, N, generator=torch.Generator().manual_seed(2)) * 5 + 3
    valid = torch.rand(T, N, generator=torch.Generator().manual_seed(3)) < 0.7
    normalizer.update(torch.full((T, N), 99.0), valid, decay=0.0)  # forgotten
    normalizer.update(torch.where(valid, advantage, torch.nan), valid, decay=0.0)
    normalized = normalizer.normalize(advantage)[valid]
    assert float(normalized.mean()) == pytest.approx(0, abs=1e-6)
    assert float(normalized.std(correction=0)) == pytest.approx(1, abs=1e-6)


def test_advantage_moments_see_valid_samples_only():
    advantage = torch.tensor([[1.0, math.nan, 3.0], [8.0, math.inf, 4.0]])
    valid = torch.tensor([[True, False, True], [True, False, False]])
    normalizer = AdvantageNormalizer()
    normalizer.update(advantage, valid, decay=0.0)
    mean, std = normalizer.mean_std
    assert normalizer.moments.weight == 3.0 and mean == 4.0
    assert std**2 == pytest.approx(26 / 3)


def test_an_iteration_without_valid_samples_leaves_the_moments():
    normalizer = AdvantageNormalizer()
    assert normalizer.mean_std == (0.0, 0.0)
    nothing = torch.zeros(T, N, dtype=torch.bool)
    normalizer.update(torch.full((T, N), 1e6), nothing, decay=0.5)
    assert normalizer.mean_std == (0.0, 0.0)
    normalizer.update(torch.full((T, N), 2.0), ~nothing, decay=0.5)
    before = normalizer.moments
    normalizer.update(torch.full((T, N), 1e6), nothing, decay=0.5)
    assert normalizer.moments == before


def test_a_mask_behind_the_observations_stays_as_it_is_and_counts_for_nothing():
    rng = np.random.default_rng(1)
    plain = ObservationNormalizer((3,), clip=2.0)
    masked = ObservationNormalizer((5,), clip=2.0, mask_width=2)
    for _ in range(4):
        obs = rng.normal(3.0, 5.0, (7, 3)).astype(np.float32)
        mask = (rng.random((7, 2)) < 0.5).astype(np.float32)
        plain.update(obs)
        masked.update(np.concatenate([obs, mask], axis=1))
        seen = masked.normalize(np.concatenate([obs, mask], axis=1))
        assert np.array_equal(seen, np.concatenate([plain.normalize(obs), mask], axis=1))
    for name, number in plain.state_dict().items():
        assert np.array_equal(masked.state_dict()[name], number), name


@pytest.mark.parametrize("per_step", [True, False])
def test_restored_observation_statistics_normalize_as_the_saved_ones(per_step: bool):
    """An evaluation of a checkpoint uses them as they are, without counting anything before."""
    obs = np.random.default_rng(2).normal(3.0, 5.0, (9, 4)).astype(np.float32)
    saved, restored = (ObservationNormalizer((4,), clip=10.0, per_step=per_step) for _ in range(2))
    saved.update(obs)
    saved.end_iteration()
    restored.load_state_dict(saved.state_dict())
    assert np.array_equal(restored.normalize(obs), saved.normalize(obs))
    assert not np.allclose(saved.normalize(obs), obs)
