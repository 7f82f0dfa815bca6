import math
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from anybatch import networks
from anybatch.config import NetworkConfig
from anybatch.envs.layout import ObsKind, ObsLayout
from anybatch.errors import ConfigError
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import Categorical, DiagonalGaussian
from anybatch.networks.encoders import ImpalaEncoder, NatureEncoder, fold_pixels

Heads = Literal["shared", "detached", "dual"]
IMPALA_ENCODER = 622_144


def vector_network(heads: Heads = "dual", *, continuous: bool = False, seed: int = 1) -> ActorCritic:
    return networks.make(
        NetworkConfig(heads=heads, hidden_sizes=(11, 13)),
        layout=ObsLayout.single((7,), "vector"),
        num_actions=5,
        continuous=continuous,
        generator_seed=seed,
    )


def image_network(shape: tuple[int, int, int], heads: Heads = "shared", **settings: object) -> ActorCritic:
    return networks.make(
        NetworkConfig(heads=heads, **settings),  # pyright: ignore[reportArgumentType]
        layout=ObsLayout.single(shape, "image"),
        num_actions=15,
        continuous=False,
        generator_seed=1,
    )


def images(count: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_impala_has_the_parameters_of_the_reference() -> None:
    shared, dual = image_network((3, 64, 64)), image_network((3, 64, 64), "dual")
    auxiliary_head = 256 + 1  # the reference counts one more value head, which only PPG trains
    assert size(shared.policy.encoder) == IMPALA_ENCODER
    assert size(shared) + auxiliary_head == 626_513
    assert size(dual) + auxiliary_head == 1_248_657


def test_impala_starts_with_the_row_norms_of_the_reference() -> None:
    network = image_network((3, 64, 64))
    encoder = network.policy.encoder
    assert isinstance(encoder, ImpalaEncoder)
    expected = {"convolution": 1.0, "first": 0.638943, "second": 0.638943, "dense": 1.4}
    for name, layer in encoder.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            norms = layer.weight.detach().flatten(1).norm(dim=1)
            scale = expected[name.rsplit(".", 1)[-1]]
            torch.testing.assert_close(norms, torch.full_like(norms, scale), rtol=1e-5, atol=0)
            assert layer.bias is not None and not layer.bias.any()
    for head in (network.policy.head, network.value_head):
        torch.testing.assert_close(head.weight.norm(dim=1), torch.full((head.out_features,), 0.1))


def test_other_networks_start_orthogonal() -> None:
    network = vector_network()
    first = dict(network.named_parameters())["policy.encoder.layers.0.weight"]
    torch.testing.assert_close(first.T @ first, 2 * torch.eye(7), rtol=0, atol=1e-5)
    head = network.policy.head.weight
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(5), rtol=0, atol=1e-8)
    assert network.value_head.weight.norm().item() == pytest.approx(1.0, rel=1e-5)


def test_encoders_compute_what_plain_layers_compute() -> None:
    encoder = image_network((4, 84, 84)).policy.encoder
    assert isinstance(encoder, NatureEncoder)
    obs = images(3, 4, 84, 84)
    plain = obs.float() / 255
    for convolution in encoder.convolutions:
        plain = convolution(plain.contiguous()).relu()
    plain = encoder.dense(plain.contiguous().flatten(1)).relu()
    torch.testing.assert_close(encoder(obs), plain, rtol=1e-4, atol=1e-5)
    assert encoder(obs).shape == (3, 512)


def test_impala_halves_odd_images_upward() -> None:
    network = image_network((3, 13, 17), impala_channels=(5, 7))
    policy, value = network(images(2, 3, 13, 17))
    assert (policy.params.shape, value.shape) == ((2, 15), (2,))
    assert dict(network.named_parameters())["policy.encoder.dense.weight"].shape[1] == 7 * 4 * 5


@pytest.mark.parametrize("fold", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("view", ["whole", "sliced", "strided"])
def test_folded_pixels_are_unshuffled_pixels(fold: int, view: str) -> None:
    obs = images(5, 3, 24, 48)
    obs = {"whole": obs, "sliced": obs[1:4], "strided": obs.transpose(2, 3)}[view]
    folded = fold_pixels(obs, fold)
    assert torch.equal(folded, F.pixel_unshuffle(obs, fold))
    assert folded.dtype == torch.uint8


def test_a_folded_impala_sees_every_pixel_and_refuses_sides_that_do_not_divide() -> None:
    encoder = image_network((3, 64, 64), impala_fold=4, impala_channels=(16, 32)).policy.encoder
    obs = images(1, 3, 64, 64)
    before = encoder(obs)
    for pixel in ((0, 0, 0), (1, 31, 34), (2, 63, 63)):
        changed = obs.clone()
        changed[0, *pixel] ^= 255
        assert not torch.equal(encoder(changed), before)
    with pytest.raises(ConfigError, match="impala-fold = 3 must divide"):
        image_network((3, 64, 64), impala_fold=3)


@pytest.mark.parametrize("heads", ["shared", "detached", "dual"])
@pytest.mark.parametrize("continuous", [False, True])
def test_forward_is_the_policy_and_the_value(heads: Heads, continuous: bool) -> None:
    network = vector_network(heads, continuous=continuous)
    obs = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
    policy, value = network(obs)
    torch.testing.assert_close(policy.params, network.policy_params(obs))
    torch.testing.assert_close(value, network.value(obs))
    assert (policy.params.shape, value.shape) == ((3, 5), (3,))
    assert isinstance(network.distribution(policy.params), DiagonalGaussian if continuous else Categorical)
    assert network.shares_encoder == (heads != "dual")


def test_log_std_starts_where_the_config_says() -> None:
    network = networks.make(
        NetworkConfig(log_std=-0.7),
        layout=ObsLayout.single((7,), "vector"),
        num_actions=5,
        continuous=True,
        generator_seed=1,
    )
    policy, _ = network(torch.zeros(3, 7))
    torch.testing.assert_close(policy.log_std, torch.full((5,), -0.7))


@pytest.mark.parametrize(("heads", "trained"), [("shared", True), ("detached", False), ("dual", False)])
def test_the_value_loss_trains_the_policy_encoder_only_when_shared(heads: Heads, trained: bool) -> None:
    network = vector_network(heads)
    network.value(torch.ones(3, 7)).square().sum().backward()
    gradients = [parameter.grad for parameter in network.policy.encoder.parameters()]
    assert all((gradient is not None) == trained for gradient in gradients)
    assert network.value_head.weight.grad is not None


@pytest.mark.parametrize("heads", ["shared", "dual"])
def test_policy_only_is_a_separate_copy_without_the_value(heads: Heads) -> None:
    network = vector_network(heads, continuous=True)
    copy = network.policy_only()
    obs = torch.ones(3, 7)
    before = network.policy_params(obs)
    assert torch.equal(copy.policy_params(obs), before)
    assert size(copy) == network.policy_numel < size(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert torch.equal(copy.policy_params(obs), before)


def test_policy_parameters_come_first() -> None:
    names = [name for name, _ in vector_network(continuous=True).named_parameters()]
    belongs = [name.startswith("policy.") for name in names]
    assert belongs == sorted(belongs, reverse=True)


def test_weights_depend_on_their_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = vector_network(seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    same, other = vector_network(seed=5), vector_network(seed=6)
    assert torch.equal(one.value_head.weight, same.value_head.weight)
    assert not torch.equal(one.value_head.weight, other.value_head.weight)


@pytest.mark.parametrize(
    ("shape", "kind", "name"),
    [
        ((7,), "vector", "mlp"),
        ((4, 84, 84), "image", "nature"),
        ((3, 64, 64), "image", "impala"),
        ((4, 10, 10), "planes", "minatar"),
    ],
)
def test_auto_chooses_the_encoder_by_the_observations(
    shape: tuple[int, ...], kind: ObsKind, name: str
) -> None:
    assert networks.encoder_name(NetworkConfig(), layout=ObsLayout.single(shape, kind)) == name


def test_images_too_small_for_nature_are_refused_in_one_sentence() -> None:
    with pytest.raises(
        ConfigError, match=r"nature needs images of at least 36 pixels a side, these are 35×84"
    ):
        image_network((4, 35, 84), encoder="nature")
    assert image_network((4, 36, 36), encoder="nature")(images(2, 4, 36, 36))[1].shape == (2,)


@pytest.mark.parametrize("encoder", ["nature", "impala"])
def test_image_encoders_refuse_vectors(encoder: Literal["nature", "impala"]) -> None:
    with pytest.raises(ConfigError, match=f"network.encoder = {encoder} needs images"):
        networks.encoder_name(NetworkConfig(encoder=encoder), layout=ObsLayout.single((7,), "vector"))


def test_mlp_takes_images_scaled_to_one() -> None:
    network = image_network((1, 3, 5), encoder="mlp")
    obs = images(2, 1, 3, 5)
    torch.testing.assert_close(network.policy_params(obs), network.policy_params(obs.float() / 255))
    assert math.isfinite(network.value(obs).sum().item())
