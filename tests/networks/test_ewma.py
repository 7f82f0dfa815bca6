from typing import Literal

import pytest
import torch

from anybatch import networks
from anybatch.config import NetworkConfig
from anybatch.envs.layout import ObsLayout
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.flat import FlatParameters
from anybatch.networks.weight_average import EwmaNetwork
from anybatch.rules import decay_from_center_of_mass

DECAY = 8 / 9


def pair(heads: Literal["shared", "dual"] = "dual") -> tuple[ActorCritic, FlatParameters, EwmaNetwork]:
    network = networks.make(
        NetworkConfig(heads=heads, hidden_sizes=(11,)),
        layout=ObsLayout.single((7,), "vector"),
        num_actions=5,
        continuous=True,
        generator_seed=1,
    ).double()
    flat = FlatParameters(network)
    return network, flat, EwmaNetwork(network, flat)


def proximal_number(ewma: EwmaNetwork) -> float:
    numbers = torch.cat([parameter.flatten() for parameter in ewma.policy.parameters()])
    assert numbers.min() == numbers.max()
    return float(numbers[0])


@pytest.mark.parametrize("heads", ["shared", "dual"])
def test_weights_on_a_line_have_the_worked_averages(heads: Literal["shared", "dual"]) -> None:
    _, flat, ewma = pair(heads)
    flat.values.fill_(0.0)
    ewma.reset()
    seen = []
    for step in (1, 2, 3):
        flat.values.fill_(step)
        ewma.update(DECAY)
        seen.append((proximal_number(ewma), ewma.total_weight))
    assert [number for number, _ in seen] == pytest.approx([0.529412, 1.078341, 1.646653], abs=5e-7)
    assert [weight for _, weight in seen] == pytest.approx([1.888889, 2.679012, 3.381344], abs=5e-7)


def test_the_lag_behind_a_line_is_the_center_of_mass_and_the_age() -> None:
    _, flat, ewma = pair()
    flat.values.fill_(0.0)
    ewma.reset()
    for step in range(1, 301):
        flat.values.fill_(step)
        ewma.update(DECAY, env_steps=32.0)
        assert ewma.age_gradient_steps == pytest.approx(step - proximal_number(ewma), abs=1e-9)
    assert 300 - proximal_number(ewma) == pytest.approx(8, abs=1e-9)
    assert ewma.age_env_steps == pytest.approx(8 * 32, abs=1e-6)


def moved() -> tuple[ActorCritic, FlatParameters, EwmaNetwork]:
    network, flat, ewma = pair()
    for _ in range(3):
        flat.values.add_(0.1)
        ewma.update(DECAY, env_steps=5.0)
    flat.values.add_(0.1)
    return network, flat, ewma


def log_ratio(network: ActorCritic, ewma: EwmaNetwork) -> torch.Tensor:
    obs, action = torch.ones(3, 7, dtype=torch.float64), torch.zeros(3, 5, dtype=torch.float64)
    policy, _ = network(obs)
    return policy.log_prob(action) - ewma.policy_at(obs).log_prob(action)


def test_after_a_reset_the_proximal_policy_is_the_current_one() -> None:
    network, _, ewma = moved()
    assert log_ratio(network, ewma).abs().min() > 1e-3
    ewma.reset()
    assert not log_ratio(network, ewma).any()
    assert (ewma.total_weight, ewma.age_env_steps, ewma.age_gradient_steps) == (1.0, 0.0, 0.0)


def test_an_update_without_decay_is_a_reset() -> None:
    network, _, ewma = moved()
    ewma.update(0.0, env_steps=5.0)
    assert not log_ratio(network, ewma).any()
    assert (ewma.total_weight, ewma.age_env_steps, ewma.age_gradient_steps) == (1.0, 0.0, 0.0)


def test_the_proximal_policy_is_gradient_free_and_apart() -> None:
    network, flat, ewma = moved()
    policy = ewma.policy_at(torch.ones(3, 7, dtype=torch.float64))
    assert not policy.params.requires_grad
    before = policy.params.clone()
    log_ratio(network, ewma).sum().backward()
    assert flat.grads.count_nonzero() > 0
    flat.values.add_(1.0)
    assert torch.equal(ewma.policy_at(torch.ones(3, 7, dtype=torch.float64)).params, before)


def test_state_survives_a_round_trip() -> None:
    _, flat, ewma = moved()
    state = ewma.state_dict()
    state["policy"] = {name: tensor.clone() for name, tensor in state["policy"].items()}
    _, other_flat, other = pair()
    other_flat.values.copy_(flat.values)
    other.load_state_dict(state)
    for one in (ewma, other):
        one.update(DECAY, env_steps=3.0)
    assert (other.total_weight, other.age_env_steps) == (ewma.total_weight, ewma.age_env_steps)
    for name, tensor in ewma.policy.state_dict().items():
        assert torch.equal(other.policy.state_dict()[name], tensor)


@pytest.mark.parametrize(
    ("steps_before", "steps_after", "worst_without"), [(1.0, 16.0, 307), (16.0, 1.0, 42)]
)
def test_the_age_in_env_steps_goes_on_through_a_batch_change(
    steps_before: float, steps_after: float, worst_without: float
) -> None:
    def ages(rescaled: bool) -> list[float]:
        _, _, ewma = pair()
        for _ in range(5000):
            ewma.update(decay_from_center_of_mass(128 / steps_before), steps_before)
        assert ewma.age_env_steps == pytest.approx(128, rel=1e-6)
        if rescaled:
            ewma.rescale(steps_before / steps_after)
        seen = []
        for _ in range(2000):
            ewma.update(decay_from_center_of_mass(128 / steps_after), steps_after)
            seen.append(ewma.age_env_steps)
        return seen

    assert all(age == pytest.approx(128, rel=1e-6) for age in ages(rescaled=True))
    assert max(ages(rescaled=False), key=lambda age: abs(age / 128 - 1)) == pytest.approx(
        worst_without, abs=0.5
    )
