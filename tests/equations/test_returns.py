import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anybatch.equations import moments, returns

DISCOUNT, GAE_LAMBDA = 0.9, 0.8


def rollout(num_steps: int = 7, num_envs: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(num_steps)
    reward, value, next_value = torch.randn(3, num_steps, num_envs, generator=generator, dtype=torch.float64)
    terminated = torch.rand(num_steps, num_envs, generator=generator) < 0.25
    truncated = torch.rand(num_steps, num_envs, generator=generator) < 0.25
    cut = terminated | truncated
    return {"reward": reward, "value": value, "next_value": next_value, "terminated": terminated, "cut": cut}


def brute_force(data: dict[str, Tensor], discount: float, gae_lambda: float) -> Tensor:
    """The definition: every advantage is a sum over later errors of the same episode."""
    num_steps, num_envs = data["reward"].shape
    advantage = torch.zeros(num_steps, num_envs, dtype=torch.float64)
    for env in range(num_envs):
        for start in range(num_steps):
            weight = 1.0
            for t in range(start, num_steps):
                successor = 0.0 if data["terminated"][t, env] else float(data["next_value"][t, env])
                delta = float(data["reward"][t, env]) + discount * successor - float(data["value"][t, env])
                advantage[start, env] += weight * delta
                if data["cut"][t, env]:
                    break
                weight *= discount * gae_lambda
    return advantage


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 8, 31])
def test_gae_is_the_sum_over_later_errors_of_the_episode(num_steps: int) -> None:
    data = rollout(num_steps)
    advantage = returns.gae(**data, discount=DISCOUNT, gae_lambda=GAE_LAMBDA)
    torch.testing.assert_close(advantage, brute_force(data, DISCOUNT, GAE_LAMBDA), rtol=1e-12, atol=1e-12)


def test_gae_at_lambda_one_is_return_minus_value() -> None:
    data = rollout()
    data["next_value"][:-1] = torch.where(data["cut"][:-1], data["next_value"][:-1], data["value"][1:])
    returned = torch.empty_like(data["reward"])
    following = data["next_value"][-1]
    for t in reversed(range(7)):
        following = torch.where(data["cut"][t], data["next_value"][t], following)
        following = data["reward"][t] + DISCOUNT * torch.where(data["terminated"][t], 0.0, following)
        returned[t] = following
    advantage = returns.gae(**data, discount=DISCOUNT, gae_lambda=1.0)
    torch.testing.assert_close(advantage, returned - data["value"])


def test_gae_at_lambda_zero_is_the_one_step_error() -> None:
    data = rollout()
    successor = torch.where(data["terminated"], 0.0, data["next_value"])
    error = data["reward"] + DISCOUNT * successor - data["value"]
    torch.testing.assert_close(returns.gae(**data, discount=DISCOUNT, gae_lambda=0.0), error)


def test_truncation_bootstraps_and_termination_does_not() -> None:
    one, flag = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    truncated = returns.gae(one, one, 5 * one, ~flag, flag, discount=0.9, gae_lambda=0.95)
    terminated = returns.gae(one, one, 5 * one, flag, flag, discount=0.9, gae_lambda=0.95)
    assert truncated.item() == pytest.approx(4.5)
    assert terminated.item() == 0.0


def test_nothing_flows_across_an_episode_end() -> None:
    data = rollout()
    data["terminated"][:], data["cut"][:] = False, False
    data["cut"][3] = True
    before = returns.gae(**data, discount=DISCOUNT, gae_lambda=GAE_LAMBDA)
    data["reward"][4:] += 1000.0
    after = returns.gae(**data, discount=DISCOUNT, gae_lambda=GAE_LAMBDA)
    assert torch.equal(before[:4], after[:4])
    assert not torch.isclose(before[4:], after[4:]).any()


def test_gae_leaves_its_arguments_alone() -> None:
    data = rollout()
    kept = {name: tensor.clone() for name, tensor in data.items()}
    returns.gae(**data, discount=DISCOUNT, gae_lambda=GAE_LAMBDA)
    assert all(torch.equal(data[name], kept[name]) for name in data)


def column(*numbers: float) -> Tensor:
    """One env over time, [T, 1]."""
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


def flags(*where: int, num_steps: int) -> Tensor:
    """True at the given steps of one env, [T, 1]."""
    return torch.tensor([t in where for t in range(num_steps)])[:, None]


def q_data(num_steps: int, num_envs: int = 3, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    reward, next_value = torch.randn(2, num_steps, num_envs, generator=generator, dtype=torch.float64)
    terminated, truncated = torch.rand(2, num_steps, num_envs, generator=generator) < 0.2
    return {
        "reward": reward,
        "next_value": next_value,
        "terminated": terminated,
        "cut": terminated | truncated,
    }


def backward_loop(data: dict[str, Tensor], discount: float, q_lambda: float) -> Tensor:
    """Q(λ) in plain numbers, one env and one step after the other."""
    num_steps, num_envs = data["reward"].shape
    target = torch.zeros(num_steps, num_envs, dtype=torch.float64)
    for env in range(num_envs):
        for t in reversed(range(num_steps)):
            following = float(data["next_value"][t, env])
            if t < num_steps - 1 and not data["cut"][t, env]:
                following = q_lambda * float(target[t + 1, env]) + (1 - q_lambda) * following
            if data["terminated"][t, env]:
                following = 0.0
            target[t, env] = float(data["reward"][t, env]) + discount * following
    return target


@settings(deadline=None)
@given(
    num_steps=st.integers(1, 40),
    seed=st.integers(0, 2**31),
    discount=st.floats(0, 1),
    q_lambda=st.floats(0, 1),
)
def test_q_lambda_is_the_backward_loop(num_steps: int, seed: int, discount: float, q_lambda: float) -> None:
    data = q_data(num_steps, seed=seed)
    target = returns.q_lambda(**data, discount=discount, q_lambda=q_lambda)
    torch.testing.assert_close(target, backward_loop(data, discount, q_lambda), rtol=1e-12, atol=1e-12)


def test_q_lambda_of_the_worked_example() -> None:
    def target(*ends: int) -> list[float]:
        terminated = flags(*ends, num_steps=3)
        found = returns.q_lambda(
            column(1, 0, 2), column(1.0, 1.5, 2.0), terminated, terminated, discount=0.99, q_lambda=0.65
        )
        return found.flatten().tolist()

    assert target() == pytest.approx([3.329046, 3.080880, 3.98], abs=5e-7)
    # One place too late, values would give 3.440533 and 3.254130.
    assert abs(target()[0] - 3.440533) > 0.1 and abs(target()[1] - 3.254130) > 0.1
    assert target(1) == pytest.approx([1.3465, 0.0, 3.98], abs=1e-12)


def test_q_lambda_bootstraps_a_truncated_episode_from_its_own_end() -> None:
    # Row 2 is the reset step: what it holds is of the next episode.
    found = returns.q_lambda(
        column(1, 1, 0, 1),
        column(9, 5, 20, 20),
        flags(num_steps=4),
        flags(1, num_steps=4),
        discount=0.99,
        q_lambda=0.65,
    )
    assert found[:2].flatten().tolist() == pytest.approx([7.947325, 5.95], abs=1e-12)


def test_q_lambda_at_lambda_zero_looks_one_step_ahead() -> None:
    data = q_data(17)
    successor = torch.where(data["terminated"], 0.0, data["next_value"])
    found = returns.q_lambda(**data, discount=DISCOUNT, q_lambda=0.0)
    torch.testing.assert_close(found, data["reward"] + DISCOUNT * successor, rtol=1e-14, atol=1e-14)


def test_q_lambda_at_lambda_one_is_the_return_up_to_the_cut() -> None:
    data = q_data(17)
    found = returns.q_lambda(**data, discount=DISCOUNT, q_lambda=1.0)
    for env in range(3):
        for start in range(17):
            end = next((t for t in range(start, 17) if data["cut"][t, env]), 16)
            rewards = sum(DISCOUNT ** (t - start) * data["reward"][t, env] for t in range(start, end + 1))
            rest = 0.0 if data["terminated"][end, env] else data["next_value"][end, env]
            expected = rewards + DISCOUNT ** (end + 1 - start) * rest
            torch.testing.assert_close(found[start, env], expected, rtol=1e-12, atol=1e-12)


def test_q_lambda_takes_nothing_from_beyond_an_episode_end() -> None:
    data = q_data(9)
    data["terminated"][:], data["cut"][:] = False, False
    data["cut"][4] = True
    before = returns.q_lambda(**data, discount=DISCOUNT, q_lambda=0.65)
    data["reward"][5:] += 1000.0
    data["next_value"][5:] += 1000.0
    after = returns.q_lambda(**data, discount=DISCOUNT, q_lambda=0.65)
    assert torch.equal(before[:5], after[:5])
    assert not torch.isclose(before[5:], after[5:]).any()


def test_q_lambda_is_the_same_with_and_without_reset_steps() -> None:
    same_step = q_data(31, num_envs=1)
    ends = same_step["cut"][:, 0].tolist()
    assert any(ends) and same_step["terminated"].any() and (same_step["cut"] & ~same_step["terminated"]).any()
    # After every end comes a row that is no data: garbage, but neither an end nor terminated.
    valid = [is_data for end in ends for is_data in ([True, False] if end else [True])]
    rows = torch.tensor(valid)
    next_step = {
        name: torch.full((len(valid), 1), 0 if tensor.dtype == torch.bool else 77, dtype=tensor.dtype)
        for name, tensor in same_step.items()
    }
    for name, tensor in same_step.items():
        next_step[name][rows] = tensor
    expected = returns.q_lambda(**same_step, discount=DISCOUNT, q_lambda=0.65)
    found = returns.q_lambda(**next_step, discount=DISCOUNT, q_lambda=0.65)[rows]
    # The number of rows decides the order of the additions, and so the last digits.
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_q_lambda_leaves_its_arguments_alone() -> None:
    data = q_data(9)
    kept = {name: tensor.clone() for name, tensor in data.items()}
    returns.q_lambda(**data, discount=DISCOUNT, q_lambda=0.65)
    assert all(torch.equal(data[name], kept[name]) for name in data)


def explained(value: torch.Tensor, target: torch.Tensor) -> float:
    """Of samples that are in two parts, one of them empty."""

    def of_all(samples: torch.Tensor) -> moments.RunningMoments[float]:
        parts = [moments.moment_sums(samples[:0]), moments.moment_sums(samples[:1])]
        return moments.merged_moments(torch.stack([*parts, moments.moment_sums(samples[1:])]))

    return returns.explained_variance(of_all(target - value), of_all(target))


def test_explained_variance_of_perfect_constant_and_opposite_values() -> None:
    target = torch.tensor([1.0, 2.0, 4.0])
    assert explained(target, target) == 1.0
    assert explained(torch.full((3,), 9.0), target) == pytest.approx(0.0, abs=1e-6)
    assert explained(-target, target) == pytest.approx(-3.0)
    assert math.isnan(explained(target, torch.ones(3)))
