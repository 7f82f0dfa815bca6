"""REINFORCE with reward-to-go (Williams 1992), added to the package from outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.algorithms.ppo_state import encoder_name, make_network
from anybatch.algorithms.state import Learner, RankState, TrainState, load_network, restore, saved_network
from anybatch.backends import Columns, Loss
from anybatch.config import NetworkConfig, RunConfig
from anybatch.distributed import collectives
from anybatch.equations import returns

__all__ = ["encoder_name", "make_network", "restore"]


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(RunConfig):
    algorithm: ClassVar[str] = "reinforce"
    network: NetworkConfig = field(default_factory=NetworkConfig)
    discount: float = 0.99


@dataclass
class Samples(Columns):
    COLUMNS: ClassVar = ("obs", "action", "reward_to_go")
    obs: Tensor
    action: Tensor
    reward_to_go: Tensor
    all_valid: Tensor


class Record(NamedTuple):
    logp: Tensor


def loss(network: Any, batch: Samples, _config: Any, _average: Any) -> tuple[Tensor, Record]:
    policy, _ = network(batch.obs)
    logp = policy.log_prob(batch.action)
    return -logp * batch.reward_to_go, Record(logp.detach())


def prepare(data: Rollout, config: ReinforceConfig) -> Samples:
    none = torch.zeros_like(data.reward)
    ends = data.terminated, data.episode_end
    total = returns.gae(data.reward, none, none, *ends, discount=config.discount, gae_lambda=1.0)
    valid = collectives.envs_of_all_ranks(data.valid, config.num_envs, axis=1)
    return Samples(data.obs[:-1].flatten(0, 1), data.action.flatten(0, 1), total.flatten(), valid)


def train(config: ReinforceConfig, state: TrainState[Any], run: Any) -> None:
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
