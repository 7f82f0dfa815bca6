"""A new algorithm in one file: REINFORCE with reward-to-go (Williams 1992).

    python examples/new_algorithm.py                  # CartPole-v1

The package supplies the rest: environments, the dial, checkpoints and resuming, evaluation, metrics. An
algorithm is a config class and a module with the functions of `anybatch.algorithms.Algorithm`.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

import anybatch
from anybatch import algorithms
from anybatch.acting.rollout import Rollout
from anybatch.algorithms.ppo_state import encoder_name, make_network
from anybatch.algorithms.state import Learner, RankState, TrainState, load_network, restore, saved_network
from anybatch.backends import Columns, Loss
from anybatch.config import NetworkConfig, OptimizerConfig, RunConfig
from anybatch.distributed import collectives
from anybatch.equations import returns

__all__ = ["encoder_name", "make_network", "restore"]


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(RunConfig):
    """The settings that every run has, and those of REINFORCE."""

    algorithm: ClassVar[str] = "reinforce"
    network: NetworkConfig = field(default_factory=NetworkConfig)
    discount: float = 0.99


@dataclass
class Samples(Columns):
    """What a gradient step needs of each sample, [B, …]."""

    COLUMNS: ClassVar = ("obs", "action", "reward_to_go")
    obs: Tensor
    action: Tensor
    reward_to_go: Tensor
    all_valid: Tensor


class Record(NamedTuple):
    """What is kept of each sample for the metrics."""

    logp: Tensor


def loss(network: Any, batch: Samples, _config: Any, _average: Any) -> tuple[Tensor, Record]:
    """-log π(a|s) · R, sample by sample."""
    policy, _ = network(batch.obs)
    logp = policy.log_prob(batch.action)
    return -logp * batch.reward_to_go, Record(logp.detach())


def prepare(data: Rollout, config: ReinforceConfig) -> Samples:
    """Discounted rewards to go are advantages with λ = 1 and values of 0."""
    none = torch.zeros_like(data.reward)
    ends = data.terminated, data.episode_end
    total = returns.gae(data.reward, none, none, *ends, discount=config.discount, gae_lambda=1.0)
    valid = collectives.envs_of_all_ranks(data.valid, config.num_envs, axis=1)
    return Samples(data.obs[:-1].flatten(0, 1), data.action.flatten(0, 1), total.flatten(), valid)


def train(config: ReinforceConfig, state: TrainState[Any], run: Any) -> None:
    """The loop: collect, improve, record."""
    run.begin(state)
    for rollout in state.rollouts(config, run):
        with run.timer("update"):
            samples = prepare(rollout, config)
            state.backend.begin_iteration(state.learner.learning_rate, state.plan)
            state.backend.take_steps(samples, state.minibatches(samples, config))
        state.learner.count(rollout)
        run.record(state, rollout.episodes, state.metrics() | state.steps.metrics())
    run.save(state)


def start(
    config: ReinforceConfig,
    env: Any,
    *,
    factory: Any = None,
    was_native: Any = None,
) -> TrainState[Any]:
    """A fresh state: the network, its loss and the environments."""
    losses = {"policy": Loss(function=loss, objective=config, record=Record, optimizer=config.optimizer)}
    network, encoder = make_network(config, env.spec, factory), encoder_name(config, env.spec)
    parts: Any = {"encoder": encoder, "noise_of": {"all": slice(None)}, "was_native": was_native}
    learner = Learner.fresh(config, network, losses, env.spec, **parts)
    return TrainState(learner=learner, rank=RankState.fresh(config, env, learner))


def make_observation_normalizer(_config: Any, _spec: Any) -> None:
    return None


def for_inference(config: Any, spec: Any, shared: Mapping[str, Any], factory: Any = None) -> tuple[Any, None]:
    network = make_network(config, spec, factory)
    load_network(network, saved_network(shared))
    return network, None


def main() -> None:
    parser = argparse.ArgumentParser(description="REINFORCE, as an algorithm that the package did not have.")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--total-env-steps", type=int, default=200_000)
    args = parser.parse_args()
    algorithms.register(ReinforceConfig, sys.modules[__name__])
    try:
        config = ReinforceConfig(optimizer=OptimizerConfig(learning_rate=3e-3))
        run = anybatch.train(config, **vars(args))
    except anybatch.UserError as error:
        parser.error(str(error))
    print(f"return {run.evaluate().mean_return:.1f}")


if __name__ == "__main__":
    main()
