"""Networks of action values against straight-line versions of themselves, with channels before pixels."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anybatch import networks
from anybatch.config import QNetworkConfig
from anybatch.envs.layout import ObsKind, ObsLayout
from anybatch.errors import ConfigError
from anybatch.networks.q_network import AbsBlock, CastanyerBlock, MultiSkip, NormalizedLinear, QNetwork

ATARI = (4, 84, 84)
KERNELS_AND_STRIDES = ((8, 4), (4, 2), (3, 1))
LARGE = {"channels": (64, 128, 128)}
SMALL = {"channels": (3, 5, 7)}
ACTIONS = 18


def q_network(
    obs_shape: tuple[int, ...] = ATARI, obs_kind: ObsKind = "image", seed: int = 1, **settings: Any
) -> QNetwork:
    return networks.make_q_network(
        QNetworkConfig(**settings),
        layout=ObsLayout.single(obs_shape, obs_kind),
        num_actions=ACTIONS,
        generator_seed=seed,
    )


def shaken(network: QNetwork) -> QNetwork:
    """In float64, with every scale, shift and bias away from where it started: each must be in its place."""
    network = network.double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return network


def images(count: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)


def planes(count: int, *shape: int) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(2)) < 0.3


Weights = dict[str, Tensor]


def plain_dense(weights: Weights, name: str, x: Tensor) -> Tensor:
    """Linear, then layer norm."""
    x = F.linear(x, weights[f"{name}.linear.weight"], weights[f"{name}.linear.bias"])
    return F.layer_norm(x, x.shape[1:], weights[f"{name}.norm.weight"], weights[f"{name}.norm.bias"])


def plain_convolution(weights: Weights, name: str, x: Tensor, stride: int) -> Tensor:
    """Convolution, layer norm over channels, height and width, relu; NCHW throughout."""
    x = F.conv2d(
        x,
        weights[f"{name}.convolution.weight"].contiguous(),
        weights[f"{name}.convolution.bias"],
        stride=stride,
    )
    scale, shift = (weights[f"{name}.norm.{kind}"].permute(2, 0, 1) for kind in ("weight", "bias"))
    return F.layer_norm(x, x.shape[1:], scale, shift).relu()


def plain_features(weights: Weights, obs: Tensor) -> Tensor:
    """Nature's convolutions over bytes; a pixel's channels lie side by side, as the dense layer has them."""
    x = obs.double() / 255
    for layer, (_, stride) in enumerate(KERNELS_AND_STRIDES):
        x = plain_convolution(weights, f"encoder.layers.{layer}", x, stride)
    return x.permute(0, 2, 3, 1).flatten(1)


def plain_baseline(weights: Weights, obs: Tensor) -> Tensor:
    x = plain_dense(weights, "trunk.layers.0", plain_features(weights, obs)).relu()
    return F.linear(x, weights["head.weight"], weights["head.bias"])


def plain_abs(weights: Weights, obs: Tensor, blocks: int) -> Tensor:
    everywhere = x = plain_dense(weights, "trunk.projection", plain_features(weights, obs))
    for block in range(blocks):
        inner = plain_dense(weights, f"trunk.blocks.{block}.first", x).relu()
        x = (x + plain_dense(weights, f"trunk.blocks.{block}.second", inner)).relu() + everywhere
    return plain_dense(weights, "head", x)


def plain_castanyer(weights: Weights, obs: Tensor, blocks: int) -> Tensor:
    everywhere = x = plain_dense(weights, "trunk.projection", plain_features(weights, obs))
    for block in range(blocks):
        inner = plain_dense(weights, f"trunk.blocks.{block}.first", x.relu()).relu()
        x = x + plain_dense(weights, f"trunk.blocks.{block}.second", inner) + everywhere
    x = plain_dense(weights, "trunk.last", x).relu()
    return F.linear(x, weights["head.weight"], weights["head.bias"])


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({}, 1_736_626),
        (LARGE | {"blocks": 5}, 6_238_582),
        (LARGE | {"blocks": 10}, 8_875_382),
        (LARGE | {"blocks": 5, "block_form": "castanyer"}, 6_502_226),
        (LARGE | {"blocks": 10, "block_form": "castanyer"}, 9_139_026),
    ],
    ids=["PQN", "PQN-L", "PQN-XL", "PQN-L castanyer", "PQN-XL castanyer"],
)
def test_networks_have_the_parameters_of_the_references(settings: dict[str, Any], number: int) -> None:
    # Built without their numbers: orthogonal weights of this size take seconds.
    with torch.device("meta"):
        network = q_network(**settings)
    assert sum(parameter.numel() for parameter in network.parameters()) == number


def test_the_baseline_computes_what_plain_layers_compute() -> None:
    network = shaken(q_network(**SMALL))
    obs = images(3, *ATARI)
    expected = plain_baseline(dict(network.state_dict()), obs)
    torch.testing.assert_close(network.policy_params(obs), expected, rtol=1e-10, atol=1e-10)
    assert expected.std() > 0.1  # else anything would be close


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_abs_form_computes_its_formula(blocks: int) -> None:
    network = shaken(q_network(**SMALL, blocks=blocks, block_form="abs"))
    obs = images(3, *ATARI)
    expected = plain_abs(dict(network.state_dict()), obs, blocks)
    torch.testing.assert_close(network.policy_params(obs), expected, rtol=1e-10, atol=1e-10)
    assert expected.std() > 0.1


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_castanyer_form_computes_its_formula(blocks: int) -> None:
    network = shaken(q_network(**SMALL, blocks=blocks, block_form="castanyer"))
    obs = images(3, *ATARI)
    expected = plain_castanyer(dict(network.state_dict()), obs, blocks)
    torch.testing.assert_close(network.policy_params(obs), expected, rtol=1e-10, atol=1e-10)
    assert expected.std() > 0.1


def order_of_layers(network: QNetwork, obs: Tensor) -> list[str]:
    """The layers in the order in which they are called."""
    called: list[str] = []
    kinds = {nn.Conv2d: "conv", nn.Linear: "linear", nn.LayerNorm: "norm"}
    for module in network.modules():
        if type(module) in kinds:
            module.register_forward_hook(lambda layer, *_: called.append(kinds[type(layer)]))
    network.policy_params(obs)
    return called


def test_the_baseline_normalizes_every_hidden_layer_and_neither_input_nor_output() -> None:
    called = order_of_layers(q_network(**SMALL), images(2, *ATARI))
    assert called == ["conv", "norm"] * 3 + ["linear", "norm"] + ["linear"]


def test_what_the_baseline_normalizes_is_what_is_rectified() -> None:
    network = q_network(**SMALL)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("norm.bias"):
                parameter.fill_(-1e6)  # far below zero before the relu: nothing is left behind it
    assert not network.encoder(images(2, *ATARI)).any()
    assert torch.equal(network.policy_params(images(2, *ATARI)), network.head.bias.expand(2, ACTIONS))


def test_the_abs_form_normalizes_action_values_and_the_others_do_not() -> None:
    obs = images(5, *ATARI)
    with torch.no_grad():
        normalized = q_network(**SMALL, blocks=1, block_form="abs").policy_params(obs)
        others = [
            q_network(**SMALL).policy_params(obs),
            q_network(**SMALL, blocks=1, block_form="castanyer").policy_params(obs),
        ]
    torch.testing.assert_close(normalized.mean(1), torch.zeros(5), rtol=0, atol=1e-5)
    torch.testing.assert_close(normalized.std(1, correction=0), torch.ones(5), rtol=0, atol=1e-3)
    for values in others:
        assert (values.std(1, correction=0) - 1).abs().max() > 0.1
        assert values.mean(1).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("settings", "gain"),
    [({}, math.sqrt(2)), ({"blocks": 1, "block_form": "castanyer"}, 0.01), ({"blocks": 1}, math.sqrt(2))],
    ids=["PQN", "castanyer", "abs"],
)
def test_weights_start_orthogonal_with_the_gain_of_the_reference(
    settings: dict[str, Any], gain: float
) -> None:
    network = q_network(**SMALL, **settings)
    head = network.head.linear if isinstance(network.head, NormalizedLinear) else network.head
    assert isinstance(head, nn.Linear)
    torch.testing.assert_close(
        head.weight @ head.weight.T, gain**2 * torch.eye(ACTIONS), rtol=0, atol=1e-5 * gain**2
    )
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            assert module.bias is not None and not module.bias.any()
            if module is not head:
                rows = module.weight.flatten(1)
                square = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
                torch.testing.assert_close(square, 2 * torch.eye(len(square)), rtol=0, atol=1e-4)
        elif isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and not module.bias.any()


def test_the_projection_is_added_once_after_every_castanyer_block() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        trunk = MultiSkip(11, 4, 24, "castanyer").double()
    assert all(isinstance(block, CastanyerBlock) for block in trunk.blocks)
    with torch.no_grad():
        for block in trunk.blocks:
            block.second.norm.weight.zero_()
            block.second.norm.bias.zero_()
    reached: list[Tensor] = []
    for block in trunk.blocks:
        block.register_forward_hook(lambda *call: reached.append(call[-1]))
    features = torch.randn(3, 11, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    skip = trunk.projection(features)
    got = trunk(features)
    for k, output in enumerate(reached, start=1):  # before the skip of block k is added
        torch.testing.assert_close(output, k * skip, rtol=1e-12, atol=1e-12)
    assert trunk.last is not None
    torch.testing.assert_close(got, trunk.last(5 * skip).relu(), rtol=1e-12, atol=1e-12)


def test_an_abs_block_rectifies_its_sum() -> None:
    block = AbsBlock(7)
    with torch.no_grad():
        block.second.norm.weight.zero_()
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    assert torch.equal(block(x), x.relu()) and (x < 0).any()


def test_planes_enter_as_zeros_and_ones() -> None:
    network = shaken(q_network((4, 10, 10), "planes", hidden_sizes=(13, 11)))
    obs = planes(3, 4, 10, 10)
    seen: list[Tensor] = []
    network.encoder.layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    found = network.policy_params(obs)
    assert torch.equal(seen[0], obs.double())

    weights = dict(network.state_dict())
    x = plain_convolution(weights, "encoder.layer", obs.double(), stride=1)
    assert x.shape == (3, 16, 8, 8)
    x = x.permute(0, 2, 3, 1).flatten(1)
    for layer in ("trunk.layers.0", "trunk.layers.1"):
        x = plain_dense(weights, layer, x).relu()
    expected = F.linear(x, weights["head.weight"], weights["head.bias"])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_an_mlp_takes_bytes_planes_and_vectors() -> None:
    obs = images(3, 2, 3, 5)
    as_bytes = q_network((2, 3, 5), "image", encoder="mlp", hidden_sizes=(13, 11))
    torch.testing.assert_close(as_bytes.policy_params(obs), as_bytes.policy_params(obs.float() / 255))
    marks = planes(3, 2, 3, 5)
    as_planes = q_network((2, 3, 5), "planes", encoder="mlp", hidden_sizes=(13, 11))
    assert torch.equal(as_planes.policy_params(marks), as_planes.policy_params(marks.float()))

    as_vector = shaken(q_network((30,), "vector", hidden_sizes=(13, 11)))
    numbers = obs.flatten(1).double()
    weights = dict(as_vector.state_dict())
    x = plain_dense(weights, "trunk.layers.0", numbers).relu()
    x = plain_dense(weights, "trunk.layers.1", x).relu()
    expected = F.linear(x, weights["head.weight"], weights["head.bias"])
    torch.testing.assert_close(as_vector.policy_params(numbers), expected, rtol=1e-10, atol=1e-10)
    assert order_of_layers(as_vector, numbers) == ["linear", "norm"] * 2 + ["linear"]


def test_a_q_network_acts_and_values_by_its_best_action() -> None:
    network = q_network((7,), "vector", hidden_sizes=(11,))
    obs = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    network.epsilon = 0.25
    policy, value = network(obs)
    assert torch.equal(policy.params, network.policy_params(obs)) and policy.epsilon == 0.25
    assert torch.equal(value, policy.params.max(1).values)
    assert torch.equal(network.value(obs), value)
    assert torch.equal(policy.mode(), policy.params.argmax(1))


def test_weights_depend_on_their_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = q_network((7,), "vector", seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    same, other = q_network((7,), "vector", seed=5), q_network((7,), "vector", seed=6)
    weights = [dict(network.state_dict()) for network in (one, same, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    different = {name for name in weights[0] if not torch.equal(weights[0][name], weights[2][name])}
    assert different == {name for name in weights[0] if name.endswith(("linear.weight", "head.weight"))}


@pytest.mark.parametrize(
    ("shape", "kind", "name"),
    [((7,), "vector", "mlp"), (ATARI, "image", "nature"), ((4, 10, 10), "planes", "minatar")],
)
def test_auto_chooses_the_encoder_by_the_observations(
    shape: tuple[int, ...], kind: ObsKind, name: str
) -> None:
    assert networks.encoder_name(QNetworkConfig(), layout=ObsLayout.single(shape, kind)) == name


@pytest.mark.parametrize(
    ("encoder", "shape", "kind", "said"),
    [
        (
            "nature",
            (7,),
            "vector",
            "nature needs images of channels × height × width, these .* are 7 n",
        ),
        ("nature", (4, 10, 10), "planes", "nature needs images .* are 4×10×10 0/1 planes; mlp works"),
        ("minatar", ATARI, "image", "minatar needs 0/1 planes .* are 4×84×84 bytes; mlp works for them"),
        ("nature", (3, 16, 16), "image", "nature needs images of at least 36 pixels a side, .* 16×16; .*mlp"),
    ],
)
def test_observations_an_encoder_cannot_take_are_refused_in_one_sentence(
    encoder: Any, shape: tuple[int, ...], kind: ObsKind, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        q_network(shape, kind, encoder=encoder)
