import math

import pytest
import torch
from torch import Tensor

from anybatch.equations import returns

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


def test_explained_variance_of_perfect_constant_and_opposite_values() -> None:
    target = torch.tensor([1.0, 2.0, 4.0])
    assert returns.explained_variance(target, target).item() == 1.0
    assert returns.explained_variance(torch.full((3,), 9.0), target).item() == pytest.approx(0.0, abs=1e-6)
    assert returns.explained_variance(-target, target).item() == pytest.approx(-3.0)
    assert math.isnan(returns.explained_variance(target, torch.ones(3)).item())
