"""Networks of the user's own: what is added to an encoder, what it sees, and what is refused."""

import threading

import numpy as np
import pytest
import torch
from toy_runs import toy_config, toy_pqn_config, train_own

from anybatch.config import NetworkConfig, QNetworkConfig
from anybatch.envs.protocol import BoxActions, DiscreteActions, EnvSpec
from anybatch.errors import ConfigError
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.custom import NetworkFactory, custom_actor_critic, custom_q_network
from anybatch.networks.q_network import QNetwork
from anybatch.user_objects import UserObjects


def spec_of(shape: tuple[int, ...] = (3,), dtype: type = np.float32, actions: int = 4) -> EnvSpec:
    return EnvSpec(
        env_id="Own",
        engine="test",
        num_envs=2,
        obs_shape=shape,
        obs_dtype=np.dtype(dtype),
        actions=DiscreteActions(actions),
    )


SPEC = spec_of()


def encoder(spec: EnvSpec) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(spec.obs_shape[0], 6), torch.nn.Tanh())


def actor_critic(
    factory: NetworkFactory = encoder,
    spec: EnvSpec = SPEC,
    *,
    seed: int = 1,
    heads: str = "dual",
    auxiliary: bool = False,
) -> ActorCritic:
    config = NetworkConfig(heads=heads)  # type: ignore[arg-type]
    return custom_actor_critic(factory, config, spec, generator_seed=seed, auxiliary=auxiliary)


def q_network(factory: NetworkFactory = encoder, *, seed: int = 1) -> QNetwork:
    return custom_q_network(factory, QNetworkConfig(), SPEC, generator_seed=seed)


def test_policy_and_value_have_an_encoder_each_unless_they_share_it():
    obs = torch.randn(5, 3)
    for heads in ("dual", "shared"):
        network = actor_critic(heads=heads)
        policy, value = network(obs)
        assert policy.params.shape == (5, 4) and value.shape == (5,)
        value.sum().backward()
        reached = [weight.grad is not None for weight in network.policy.encoder.parameters()]
        assert reached == [heads == "shared"] * 2
        assert sum(weight.numel() for weight in network.parameters()) == 24 * (1 + (heads == "dual")) + 28 + 7


@pytest.mark.parametrize("make", [actor_critic, q_network])
def test_the_weights_are_those_of_the_seed(make: type):
    before = torch.random.get_rng_state()
    first, other = make(seed=7), make(seed=8)
    assert torch.equal(torch.random.get_rng_state(), before)  # the program's own stream goes on as it was
    torch.rand(3)
    again = make(seed=7)
    weights = [torch.cat([weight.flatten() for weight in network.parameters()]) for network in (first, again)]
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], torch.cat([weight.flatten() for weight in other.parameters()]))


class Watching(torch.nn.Module):
    """An encoder that keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.empty(0)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.seen = obs
        return obs.flatten(1)


@pytest.mark.parametrize(
    ("dtype", "shown", "seen"),
    [
        (np.uint8, torch.tensor([0, 51, 255], dtype=torch.uint8), [0.0, 0.2, 1.0]),
        (np.bool_, torch.tensor([False, True, True]), [0.0, 1.0, 1.0]),
        (np.float32, torch.tensor([-3.0, 0.5, 400.0]), [-3.0, 0.5, 400.0]),
    ],
)
def test_an_encoder_sees_numbers_and_images_between_0_and_1(
    dtype: type, shown: torch.Tensor, seen: list[float]
):
    shape = (3,) if dtype is np.float32 else (3, 1, 1)
    watching = Watching()
    network = actor_critic(lambda _: watching, spec_of(shape, dtype), heads="shared")
    network(shown.view(1, *shape))
    assert watching.seen.dtype == torch.float32 and watching.seen.shape == (1, *shape)
    assert watching.seen.flatten().tolist() == pytest.approx(seen)


def test_a_whole_network_is_taken_as_it_is():
    whole = actor_critic()
    assert actor_critic(lambda _: whole) is whole
    values = q_network()
    assert q_network(lambda _: values) is values


def test_a_policy_for_continuous_actions_has_a_standard_deviation():
    bounds = np.ones(2, np.float32)
    spec = EnvSpec(
        env_id="Own",
        engine="test",
        num_envs=1,
        obs_shape=(3,),
        obs_dtype=np.dtype(np.float32),
        actions=BoxActions(-bounds, bounds),
    )
    policy, _ = actor_critic(spec=spec)(torch.randn(5, 3))
    assert policy.params.shape == (5, 2) and policy.log_std is not None


@pytest.mark.parametrize(
    ("factory", "auxiliary", "sentence"),
    [
        (lambda _: actor_critic(spec=spec_of(actions=5)), False, "has 5 outputs, but Own needs 4"),
        (lambda _: actor_critic(), True, "PPG needs an ActorCritic with an auxiliary_head"),
        (lambda _: q_network(), False, "QNetwork, which is for PQN"),
        (lambda _: "a string", False, "must make a torch.nn.Module, but it made str"),
        (lambda _: torch.nn.Unflatten(1, (3, 1)), False, r"for one observation it returned \(1, 3, 1\)"),
    ],
)
def test_what_cannot_be_a_network_is_refused_in_one_sentence(
    factory: NetworkFactory, auxiliary: bool, sentence: str
):
    with pytest.raises(ConfigError, match=sentence):
        actor_critic(factory, auxiliary=auxiliary)


def test_pqn_refuses_an_actor_critic():
    with pytest.raises(ConfigError, match="ActorCritic, which is for PPO"):
        q_network(lambda _: actor_critic())


@pytest.mark.parametrize("make", [toy_config, toy_pqn_config])
def test_the_network_of_the_program_is_the_start_and_stays_as_it_is(make: type, tmp_path):
    given = torch.nn.Linear(5, 6)
    before = {name: weight.clone() for name, weight in given.state_dict().items()}
    own = UserObjects.of(network=given)
    config = own.named_in(make(optimizer={"learning_rate": 0.1}))
    saved = train_own(config, own, tmp_path)["learner"]["network"]
    assert all(torch.equal(weight, before[name]) for name, weight in given.state_dict().items())
    trained = [weight for name, weight in saved.items() if name.endswith("encoder.encoder.weight")]
    assert trained and all(not torch.equal(weight, before["weight"]) for weight in trained)


def test_weights_depend_on_the_seed_also_where_two_threads_make_networks():
    alone = actor_critic(seed=1).state_dict()
    inside, done = threading.Event(), threading.Event()

    def waiting(spec: EnvSpec) -> torch.nn.Module:
        inside.set()
        done.wait()
        return encoder(spec)

    other = threading.Thread(target=lambda: actor_critic(waiting, seed=2))

    def interrupted(spec: EnvSpec) -> torch.nn.Module:
        if other.ident is None:
            other.start()
            inside.wait(timeout=0.5)  # time enough to seed torch's generator, were it allowed to
        return encoder(spec)

    together = actor_critic(interrupted, seed=1).state_dict()
    done.set()
    other.join()
    assert together.keys() == alone.keys()
    assert all(torch.equal(together[name], alone[name]) for name in alone)
