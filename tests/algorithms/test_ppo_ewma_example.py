"""The example is our straight-line PPO-EWMA: it gives the losses and weights of the package."""

from collections.abc import Iterable

import pytest
import torch
from ppo_ewma import ActorCritic, Hyperparameters, Rollout, Trainer
from torch import Tensor
from toy_runs import changed, prepare, start_in_float64, toy_config

from anybatch.algorithms import ppo

NUMBERS = Hyperparameters(
    num_envs=3,
    num_steps=23,
    minibatches=4,
    learning_rate=2e-2,
    proximal_decay=8 / 9,
    advantage_decay=0.5,
    clip=0.05,
    discount=0.97,
    gae_lambda=0.9,
    value_coefficient=0.25,
)
CONFIG = toy_config(
    num_envs=NUMBERS.num_envs,
    num_steps=NUMBERS.num_steps,
    env_config={"max_episode_steps": 5},
    network={"hidden_sizes": [11, 11]},
    update={"epochs": 1, "minibatches_per_epoch": NUMBERS.minibatches},
    proximal={"policy": "ewma", "ewma_decay": NUMBERS.proximal_decay},
    objective={
        "clip": NUMBERS.clip,
        "discount": NUMBERS.discount,
        "gae_lambda": NUMBERS.gae_lambda,
        "entropy_coefficient": NUMBERS.entropy_coefficient,
        "value_coefficient": NUMBERS.value_coefficient,
        "advantage_normalization": "iteration",
        "advantage_decay": NUMBERS.advantage_decay,
    },
    optimizer={"learning_rate": NUMBERS.learning_rate, "eps": 1e-5, "max_grad_norm": None},
)


class RecordingTrainer(Trainer):
    """Keeps what each gradient step reports, and its number of samples."""

    def gradient_step(self, obs: Tensor, *columns: Tensor) -> dict[str, float]:
        seen = super().gradient_step(obs, *columns)
        self.steps.append((len(obs), seen))
        return seen

    def sample_mean(self, name: str) -> float:
        return sum(size * seen[name] for size, seen in self.steps) / sum(size for size, _ in self.steps)


def equal(package: Iterable[Tensor], example: Iterable[Tensor]) -> None:
    torch.testing.assert_close([*package], [*example], rtol=1e-9, atol=1e-9)


def test_the_package_gives_the_losses_and_weights_of_the_example():
    state = start_in_float64(CONFIG)
    network = ActorCritic(5, 5, width=11).double()
    with torch.no_grad():
        for own, theirs in zip(network.parameters(), state.network.parameters(), strict=True):
            own.copy_(theirs)
    example = RecordingTrainer(network, NUMBERS, seed=0)
    example.generator.set_state(state.rank.minibatch_generator.get_state())
    config = changed(CONFIG, precision="float64")
    invalid, clipped = 0, 0.0
    for _ in range(3):  # the average of weights and the advantages' moments last from one to the next
        data = state.source.collector.collect(state.network, NUMBERS.num_steps)
        metrics = ppo.update_policy(prepare(data, state, config), state, config, NUMBERS.learning_rate)
        example.steps = []
        example.iterate(Rollout(*(getattr(data, name) for name in Rollout._fields)))

        loss = NUMBERS.value_coefficient * metrics["losses/value_loss"] + metrics["losses/policy_loss"]
        loss -= NUMBERS.entropy_coefficient * metrics["losses/entropy"]
        assert loss == pytest.approx(example.sample_mean("loss"), rel=1e-9)
        assert metrics["losses/entropy"] == pytest.approx(example.sample_mean("entropy"), rel=1e-9)
        assert metrics["losses/clipfrac"] == pytest.approx(example.sample_mean("clipped"), rel=1e-6)
        equal(state.network.parameters(), network.parameters())
        equal(state.backend.average.policy.parameters(), example.proximal.policy.parameters())
        invalid, clipped = invalid + int((~data.valid).sum()), clipped + metrics["losses/clipfrac"]
    assert invalid > 0 and clipped > 0.02
