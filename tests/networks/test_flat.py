import copy

import pytest
import torch
from torch import Tensor, nn

from anybatch import networks
from anybatch.config import NetworkConfig
from anybatch.envs.layout import ObsLayout
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.flat import FlatParameters

SHAPES = {"mlp": (7,), "nature": (2, 36, 36), "impala": (3, 9, 11)}


def make(encoder: str) -> ActorCritic:
    return networks.make(
        NetworkConfig(encoder=encoder, impala_channels=(3, 5), impala_features=17),  # pyright: ignore
        layout=ObsLayout.single(SHAPES[encoder], "vector" if encoder == "mlp" else "image"),
        num_actions=5,
        continuous=encoder == "mlp",
        generator_seed=1,
    )


def observations(encoder: str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if encoder == "mlp":
        return torch.randn(3, *SHAPES[encoder], generator=generator)
    return torch.randint(0, 256, (3, *SHAPES[encoder]), dtype=torch.uint8, generator=generator)


def loss(network: ActorCritic, obs: Tensor) -> Tensor:
    policy, value = network(obs)
    return policy.entropy().sum() + policy.params.square().sum() + (value - 1).square().sum()


def are_views(network: nn.Module, flat: FlatParameters) -> bool:
    parameters = list(network.parameters())
    return all(
        parameter.untyped_storage().data_ptr() == flat.values.untyped_storage().data_ptr()
        and parameter.grad is not None
        and parameter.grad.untyped_storage().data_ptr() == flat.grads.untyped_storage().data_ptr()
        for parameter in parameters
    )


@pytest.mark.parametrize("encoder", list(SHAPES))
def test_flat_training_equals_plain_training(encoder: str) -> None:
    plain = make(encoder).double()  # Adam blows float32 rounding up where gradients are tiny
    network = copy.deepcopy(plain)
    flat = FlatParameters(network)
    plain_optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2)
    optimizer = torch.optim.Adam([flat.as_parameter()], lr=1e-2, fused=True)
    for step in range(5):
        obs = observations(encoder, step)
        obs = obs.double() if obs.is_floating_point() else obs
        plain_optimizer.zero_grad()
        loss(plain, obs).backward()
        plain_optimizer.step()
        flat.grads.zero_()
        loss(network, obs).backward()
        optimizer.step()
    assert are_views(network, flat)
    for name, expected in plain.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("encoder", list(SHAPES))
def test_gradients_are_added_into_the_flat_vector(encoder: str) -> None:
    network, obs = make(encoder), observations(encoder, 1)
    flat = FlatParameters(network)
    loss(network, obs).backward()
    once = flat.grads.clone()
    assert once.count_nonzero() > 0
    loss(network, obs).backward()
    torch.testing.assert_close(flat.grads, 2 * once)
    assert are_views(network, flat)


@pytest.mark.parametrize("encoder", list(SHAPES))
def test_flattening_changes_no_number_and_keeps_the_memory_format(encoder: str) -> None:
    network, obs = make(encoder), observations(encoder, 1)
    before = copy.deepcopy(network)
    flat = FlatParameters(network)
    assert flat.values.numel() == sum(parameter.numel() for parameter in network.parameters())
    for (name, ours), (_, theirs) in zip(network.named_parameters(), before.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name
        assert ours.stride() == theirs.stride(), name
    assert torch.equal(network.policy_params(obs), before.policy_params(obs))


def test_policy_values_are_the_prefix() -> None:
    network = make("impala")
    flat = FlatParameters(network)
    with torch.no_grad():
        flat.values[: network.policy_numel].zero_()
    assert all(not parameter.any() for parameter in network.policy.parameters())
    assert network.value_head.weight.any()


def test_state_dicts_load_into_the_views() -> None:
    network, other = make("nature"), make("nature")
    flat = FlatParameters(network)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(3))
    network.load_state_dict(other.state_dict())
    assert are_views(network, flat)
    assert torch.equal(network.state_dict()["value_head.weight"], other.state_dict()["value_head.weight"])
    fresh = FlatParameters(other)
    assert torch.equal(flat.values, fresh.values)


def test_float64_stays_float64() -> None:
    network = make("mlp").double()
    flat = FlatParameters(network)
    loss(network, observations("mlp", 1).double()).backward()
    assert flat.values.dtype == flat.grads.dtype == torch.float64
    assert are_views(network, flat)


def test_the_optimizer_parameter_shares_values_and_gradients() -> None:
    flat = FlatParameters(make("mlp"))
    parameter = flat.as_parameter()
    assert parameter.data_ptr() == flat.values.data_ptr()
    assert parameter.grad is flat.grads
    assert flat.as_parameter() is parameter


def test_other_memory_formats_are_refused() -> None:
    layer = nn.Linear(3, 5)
    layer.weight.data = torch.zeros(3, 5).T
    with pytest.raises(ValueError, match="contiguous or channels_last"):
        FlatParameters(layer)
