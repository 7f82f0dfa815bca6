"""The copy of the weights as the proximal policy: when it is taken, and how old it is."""

import pytest
import torch

from anybatch import networks
from anybatch.config import NetworkConfig
from anybatch.envs.layout import ObsLayout
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.flat import FlatParameters
from anybatch.networks.weight_average import PeriodicCopy


def pair() -> tuple[ActorCritic, FlatParameters, PeriodicCopy]:
    network = networks.make(
        NetworkConfig(heads="dual", hidden_sizes=(11,)),
        layout=ObsLayout.single((7,), "vector"),
        num_actions=5,
        continuous=True,
        generator_seed=1,
    ).double()
    flat = FlatParameters(network)
    return network, flat, PeriodicCopy(network, flat)


def copied_number(copy: PeriodicCopy) -> float:
    numbers = torch.cat([parameter.flatten() for parameter in copy.policy.parameters()])
    assert numbers.min() == numbers.max()
    return float(numbers[0])


def on_a_line(flat: FlatParameters, copy: PeriodicCopy, every: int, steps: range) -> list[float]:
    """The weights that the copy has in each gradient step, whose own weights are its number less 1."""
    used = []
    for step in steps:
        used.append(copied_number(copy))
        flat.values.fill_(step)
        copy.update(every, env_steps=32.0)
    return used


def test_a_copy_is_taken_after_every_nth_gradient_step() -> None:
    _, flat, copy = pair()
    flat.values.fill_(0.0)
    copy.reset()
    assert on_a_line(flat, copy, 3, range(1, 9)) == [0, 0, 0, 3, 3, 3, 6, 6]
    assert copy.clock == 2


@pytest.mark.parametrize("every", [1, 2, 5, 17])
def test_its_mean_age_over_periods_is_half_of_one_step_less_than_the_period(every: int) -> None:
    _, flat, copy = pair()
    flat.values.fill_(0.0)
    copy.reset()
    steps = 4 * every
    used = on_a_line(flat, copy, every, range(1, steps + 1))
    lag = sum(step - number for step, number in enumerate(used)) / steps
    assert copy.age_gradient_steps == lag == (every - 1) / 2
    assert copy.age_env_steps == 32 * lag
    copy.begin_iteration()
    assert copy.age_gradient_steps is None and copy.age_env_steps is None


def test_the_copy_is_gradient_free_and_separate() -> None:
    _, flat, copy = pair()
    obs = torch.ones(3, 7, dtype=torch.float64)
    before = copy.policy_at(obs).params
    assert not before.requires_grad
    flat.values.add_(1.0)
    assert torch.equal(copy.policy_at(obs).params, before)
    copy.reset()
    assert not torch.equal(copy.policy_at(obs).params, before)


def test_state_survives_a_round_trip() -> None:
    _, flat, copy = pair()
    on_a_line(flat, copy, 10**6, range(0))
    flat.values.fill_(0.0)
    copy.reset()
    on_a_line(flat, copy, 4, range(1, 7))
    state = copy.state_dict()
    state["policy"] = {name: tensor.clone() for name, tensor in state["policy"].items()}
    _, other_flat, other = pair()
    other.load_state_dict(state)
    for values, one in ((flat, copy), (other_flat, other)):
        one.begin_iteration()
        on_a_line(values, one, 4, range(7, 12))
    assert other.state_dict().keys() == copy.state_dict().keys()
    assert (other.clock, other.age_env_steps, other.age_gradient_steps) == (
        copy.clock,
        copy.age_env_steps,
        copy.age_gradient_steps,
    )
    assert copied_number(other) == copied_number(copy) == 8


@pytest.mark.parametrize(("before", "after"), [(1.0, 4.0), (4.0, 1.0)])
def test_the_time_since_the_copy_continues_in_env_steps_through_a_batch_change(
    before: float, after: float
) -> None:
    _, flat, copy = pair()
    period = 16.0  # env steps
    flat.values.fill_(0.0)
    copy.reset()
    done = 0.0
    while done < period / 2:
        copy.update(int(period / before), before)
        done += before
    copy.rescale(before / after)
    flat.values.fill_(1.0)
    while copied_number(copy) == 0:
        copy.update(int(period / after), after)
        done += after
    assert done == period
