"""Networks on observations of several parts, and on action masks."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anybatch import networks
from anybatch.config import NetworkConfig, QNetworkConfig
from anybatch.dial import automatic_microbatch
from anybatch.envs.layout import ObsLayout
from anybatch.errors import ConfigError
from anybatch.networks import packed
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import FORBIDDEN, Categorical, MultiCategorical
from anybatch.networks.flat import FlatParameters
from anybatch.networks.q_network import QNetwork
from anybatch.networks.weight_average import EwmaNetwork

BATCH, ACTIONS, VECTOR = 7, 5, 3
IMAGE = (3, 40, 36)
FLOAT32 = np.dtype(np.float32)
PLANES = np.dtype(np.bool_)
SMALL: dict[str, Any] = {"hidden_sizes": (11,), "impala_channels": (2, 3), "impala_features": 13}


def make(layout: ObsLayout, *, auxiliary: bool = False, counts: Any = None, **settings: Any) -> ActorCritic:
    return networks.make(
        NetworkConfig(**(SMALL | settings)),
        layout=layout,
        num_actions=ACTIONS,
        continuous=False,
        generator_seed=1,
        action_counts=counts,
        auxiliary=auxiliary,
    )


def make_q(layout: ObsLayout, **settings: Any) -> QNetwork:
    settings = {"hidden_sizes": (11,)} | settings
    return networks.make_q_network(
        QNetworkConfig(**settings), layout=layout, num_actions=ACTIONS, generator_seed=1
    )


def observations(layout: ObsLayout, *, allow_all: bool = False) -> tuple[Tensor, dict[str, Any]]:
    """Packed observations [B, …] and their parts."""
    rng = np.random.default_rng(1)
    parts: dict[str, Any] = {"image": None, "vector": None, "mask": None}
    if layout.image_shape is not None:
        numbers = rng.integers(0, 256, (BATCH, *layout.image_shape))
        kinds = {"uint8": numbers.astype(np.uint8), "bool": numbers % 2 == 1}
        parts["image"] = kinds.get(layout.image_dtype.name, (numbers / 255).astype(np.float32))
    if layout.vector_width:
        parts["vector"] = rng.normal(size=(BATCH, layout.vector_width)).astype(np.float32)
    if layout.mask_width:
        codes = np.arange(BATCH) * 9 % 31 + 1
        parts["mask"] = np.ones((BATCH, ACTIONS), dtype=bool)
        if not allow_all:
            parts["mask"] = (codes[:, None] >> np.arange(ACTIONS)) % 2 == 1
    if layout.is_packed:
        return torch.from_numpy(layout.pack(**parts)), parts
    return torch.from_numpy(parts["image"] if parts["vector"] is None else parts["vector"]), parts


MASKED_LAYOUTS = {
    "vector": ObsLayout(vector_width=VECTOR, mask_width=ACTIONS),
    "image": ObsLayout(image_shape=IMAGE, mask_width=ACTIONS),
    "image and vector": ObsLayout(image_shape=IMAGE, vector_width=VECTOR, mask_width=ACTIONS),
    "planes": ObsLayout(image_shape=IMAGE, image_dtype=PLANES, vector_width=VECTOR, mask_width=ACTIONS),
    "floats": ObsLayout(image_shape=IMAGE, image_dtype=FLOAT32, vector_width=VECTOR, mask_width=ACTIONS),
}


def unmasked(layout: ObsLayout) -> ObsLayout:
    return ObsLayout(
        image_shape=layout.image_shape, image_dtype=layout.image_dtype, vector_width=layout.vector_width
    )


@pytest.mark.parametrize("name", MASKED_LAYOUTS)
@pytest.mark.parametrize("heads", ["shared", "dual"])
def test_a_mask_that_allows_everything_changes_no_bit(name: str, heads: str):
    layout = MASKED_LAYOUTS[name]
    masked = make(layout, heads=heads, auxiliary=True)
    plain = make(unmasked(layout), heads=heads, auxiliary=True)
    assert torch.equal(parameters_of(masked), parameters_of(plain))
    obs, _ = observations(layout, allow_all=True)
    same, _ = observations(unmasked(layout))
    for ours, theirs in zip(masked(obs), plain(same), strict=True):
        assert torch.equal(getattr(ours, "params", ours), getattr(theirs, "params", theirs))
    assert torch.equal(masked.auxiliary(obs)[0].params, plain.auxiliary(same)[0].params)
    assert torch.equal(masked.value(obs), plain.value(same))


def parameters_of(network: nn.Module) -> Tensor:
    return torch.cat([parameter.flatten() for parameter in network.parameters()])


@pytest.mark.parametrize("name", ["vector", "image", "image and vector", "planes", "floats"])
def test_a_q_network_with_a_mask_that_allows_everything_changes_no_bit(name: str):
    layout = MASKED_LAYOUTS[name]
    masked, plain = make_q(layout), make_q(unmasked(layout))
    assert torch.equal(parameters_of(masked), parameters_of(plain))
    obs, _ = observations(layout, allow_all=True)
    same, _ = observations(unmasked(layout))
    assert torch.equal(masked.policy_params(obs), plain.policy_params(same))
    assert torch.equal(masked.value(obs), plain.value(same))


@pytest.mark.parametrize("name", MASKED_LAYOUTS)
def test_every_way_to_the_policy_is_masked(name: str):
    layout = MASKED_LAYOUTS[name]
    network = make(layout, auxiliary=True)
    network.policy.head.weight.data.mul_(100)
    obs, parts = observations(layout)
    raw = network.policy.head(network.policy.encoder(obs))
    expected = torch.where(torch.from_numpy(parts["mask"]), raw, torch.tensor(FORBIDDEN))
    ewma = EwmaNetwork(network, FlatParameters(network))
    ways = {
        "locate": network.policy_params(obs),
        "forward": network(obs)[0].params,
        "auxiliary": network.auxiliary(obs)[0].params,
        "policy": network.policy_only().policy_params(obs),
        "ewma": ewma.policy_at(obs).params,
    }
    for way, params in ways.items():
        assert torch.equal(params, expected), way


@pytest.mark.parametrize("name", ["vector", "image and vector"])
def test_action_values_of_forbidden_actions_are_no_ones_best(name: str):
    layout = MASKED_LAYOUTS[name]
    network = make_q(layout)
    obs, parts = observations(layout)
    allowed = torch.from_numpy(parts["mask"])
    raw = network.head(network.trunk(network.encoder(obs)))
    assert (raw.argmax(1) != network.policy_params(obs).argmax(1)).any()
    best = torch.stack([row[mask].max() for row, mask in zip(raw, allowed, strict=True)])
    assert torch.equal(network.value(obs), best) and torch.equal(network(obs)[1], best)
    rows = torch.arange(BATCH)
    assert allowed[rows, network(obs)[0].mode()].all()
    network.epsilon = 1.0
    noise = torch.rand(BATCH, ACTIONS)
    assert allowed[rows, network.distribution(network.policy_params(obs)).sample(noise)].all()


def test_an_image_and_a_vector_are_encoded_apart_and_then_together():
    """512 features of the image and 64 of the vector, then 512 of both, by weights written out."""
    layout = ObsLayout(image_shape=IMAGE, vector_width=VECTOR)
    network = make(layout, heads="shared", encoder="nature")
    alone = make(ObsLayout(image_shape=IMAGE), heads="shared", encoder="nature")
    obs, parts = observations(layout)
    weights = network.state_dict()
    image = alone.policy.encoder(torch.from_numpy(parts["image"]))
    vector = torch.from_numpy(parts["vector"]) @ weights["policy.encoder.branch.weight"].T
    both = torch.cat([image, vector.relu()], 1) @ weights["policy.encoder.joint.weight"].T  # biases are 0
    features = network.policy.encoder(obs)
    assert features.shape == (BATCH, 512) and both.shape == (BATCH, 512)
    torch.testing.assert_close(features, both.relu())
    for name, gram in (("branch", 2 * torch.eye(VECTOR)), ("joint", 2 * torch.eye(512))):
        weight = weights[f"policy.encoder.{name}.weight"]
        product = weight.T @ weight if name == "branch" else weight @ weight.T
        torch.testing.assert_close(product, gram, rtol=0, atol=1e-5)  # orthogonal, of gain √2


def test_layers_beside_impala_have_its_row_norms():
    layout = ObsLayout(image_shape=IMAGE, vector_width=VECTOR)
    encoder = make(layout, encoder="impala").policy.encoder
    assert isinstance(encoder, packed.PackedImage) and encoder.num_features == 13
    for name, shape in (("branch", (64, VECTOR)), ("joint", (13, 13 + 64))):
        weight = encoder.state_dict()[f"{name}.weight"]
        assert weight.shape == shape
        torch.testing.assert_close(weight.norm(dim=1), torch.full(shape[:1], 1.4))


def test_what_an_image_means_may_depend_on_the_vector():
    """Logits are no sum of one part for the image and one for the vector."""
    layout = ObsLayout(image_shape=IMAGE, vector_width=VECTOR)
    obs, _ = observations(layout)
    first, second = obs[:1], obs[1:2]
    for network in (make(layout, encoder="impala"), make(layout, encoder="nature"), make_q(layout)):
        crossed = [
            torch.cat([a[:, : 4 * VECTOR], b[:, 4 * VECTOR :]], 1)
            for a, b in ((first, second), (second, first))
        ]
        straight = network.policy_params(first) + network.policy_params(second)
        assert not torch.allclose(
            straight, network.policy_params(crossed[0]) + network.policy_params(crossed[1]), atol=1e-6
        )


def test_a_q_networks_vector_has_a_normalized_branch():
    layout = ObsLayout(image_shape=IMAGE, vector_width=VECTOR)
    network = make_q(layout)
    obs, parts = observations(layout)
    features = network.encoder(obs)
    branch = network.encoder.branch
    assert isinstance(branch, nn.Module) and features.shape[1] == network.encoder.num_features
    assert torch.equal(features[:, -64:], branch(torch.from_numpy(parts["vector"])).relu())


@pytest.mark.parametrize("name", ["image", "image and vector", "planes", "floats"])
@pytest.mark.parametrize("kind", [make, make_q])
def test_an_mlp_sees_all_numbers_but_the_mask(name: str, kind: Any):
    layout = MASKED_LAYOUTS[name]
    obs, parts = observations(layout)
    image = torch.from_numpy(parts["image"]).flatten(1)
    image = image.float() / 255 if image.dtype == torch.uint8 else image.float()
    vector = torch.from_numpy(parts["vector"]) if layout.vector_width else image[:, :0]
    numbers = packed.side_by_side(*packed.parts_of(layout, obs)).float()
    torch.testing.assert_close(numbers, torch.cat([vector, image], 1))
    network = kind(layout, encoder="mlp")
    other = obs.clone()
    other[:, layout.mask_part] = 1
    assert torch.equal(network.value(obs), network.value(other)) == (kind is make)
    assert torch.equal(
        network.policy_params(other),
        kind(unmasked(layout), encoder="mlp").policy_params(observations(unmasked(layout))[0]),
    )


@pytest.mark.parametrize("encoder", ["nature", "impala", "mlp"])
@pytest.mark.parametrize("fold", [1, 2])
def test_float_images_are_taken_as_they_are(encoder: str, fold: int):
    """A float image of shares of 255 is the same picture as its bytes."""
    network = make(ObsLayout(image_shape=IMAGE, image_dtype=FLOAT32), encoder=encoder, impala_fold=fold)
    of_bytes = make(ObsLayout(image_shape=IMAGE), encoder=encoder, impala_fold=fold)
    image = observations(ObsLayout(image_shape=IMAGE))[0]
    before = image.float() / 255
    given = before.clone()
    torch.testing.assert_close(network.policy_params(given), of_bytes.policy_params(image))
    assert torch.equal(given, before)


def test_a_q_networks_float_images_are_taken_as_they_are():
    image = observations(ObsLayout(image_shape=IMAGE))[0]
    ours = make_q(ObsLayout(image_shape=IMAGE, image_dtype=FLOAT32)).policy_params(image.float() / 255)
    torch.testing.assert_close(ours, make_q(ObsLayout(image_shape=IMAGE)).policy_params(image))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MASKED_LAYOUTS)
def test_masked_losses_have_finite_gradients(name: str, dtype: torch.dtype):
    layout = MASKED_LAYOUTS[name]
    network = make(layout).to(dtype)
    obs, parts = observations(layout)
    policy, value = network(obs.to(dtype) if obs.is_floating_point() else obs)
    other = Categorical(policy.params.detach() * 1.5)
    action = torch.from_numpy(parts["mask"]).int().argmax(1)
    loss = policy.log_prob(action) + policy.entropy() + policy.kl_from(other) + value
    loss.sum().backward()
    assert loss.dtype == dtype and loss.isfinite().all()
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    bias = network.policy.head.bias.grad
    assert bias is not None and bias.abs().max() > 0


def test_a_head_gets_no_gradient_from_actions_that_are_always_forbidden():
    layout = MASKED_LAYOUTS["vector"]
    network = make(layout)
    obs, _ = observations(layout, allow_all=True)
    obs[:, layout.mask_part][:, 2] = 0
    policy, _ = network(obs)
    (policy.entropy() + policy.log_prob(torch.zeros(BATCH, dtype=torch.int64))).sum().backward()
    bias = network.policy.head.bias.grad
    assert bias is not None and bias[2] == 0 and (bias[[0, 1, 3, 4]] != 0).all()


def test_several_choices_have_their_own_distribution():
    network = make(ObsLayout(vector_width=VECTOR, mask_width=ACTIONS), counts=(2, 3))
    obs, _ = observations(ObsLayout(vector_width=VECTOR, mask_width=ACTIONS), allow_all=True)
    policy, _ = network(obs)
    assert isinstance(policy, MultiCategorical) and policy.mode().shape == (BATCH, 2)
    assert network.action_counts == (2, 3)
    averaged = EwmaNetwork(network, FlatParameters(network)).policy_at(obs)
    assert isinstance(averaged, MultiCategorical) and torch.equal(
        averaged.kl_from(policy), torch.zeros(BATCH)
    )


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (ObsLayout(vector_width=3, mask_width=5), "mlp"),
        (ObsLayout(image_shape=(3, 64, 64), vector_width=3), "impala"),
        (ObsLayout(image_shape=(4, 84, 84), mask_width=5), "nature"),
        (ObsLayout(image_shape=(3, 64, 64), image_dtype=FLOAT32), "impala"),
        (ObsLayout(image_shape=(6, 10, 10), image_dtype=PLANES, vector_width=3), "minatar"),
    ],
)
def test_the_image_decides_the_encoder_and_with_it_the_microbatch(layout: ObsLayout, name: str):
    assert networks.encoder_name(NetworkConfig(), layout=layout) == name
    sizes = {"mlp": 4096, "nature": 128, "impala": 64, "minatar": 1024}
    assert automatic_microbatch(name, "cpu") == sizes[name]
    takes = {"vector": ["mlp"], "image": ["mlp", "nature", "impala"], "planes": ["mlp", "minatar"]}
    for other in sizes.keys() - takes[layout.kind]:
        with pytest.raises(ConfigError, match=f"network.encoder = {other} needs .*; mlp works for them"):
            networks.encoder_name(NetworkConfig(encoder=other), layout=layout)  # type: ignore[arg-type]
