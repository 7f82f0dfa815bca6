"""The state of PPO, decoupled PPO and PPO-EWMA."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from anybatch import networks, seeding
from anybatch.acting.normalizers import AdvantageNormalizer, ObservationNormalizer, RewardNormalizer
from anybatch.acting.rollout import rollout_bytes
from anybatch.acting.sources import validate_queue_memory
from anybatch.algorithms.state import (
    Environments,
    Learner,
    RankState,
    TrainState,
    load_network,
    saved_network,
)
from anybatch.backends import Loss
from anybatch.config import PPOConfig, rescale_rules
from anybatch.distributed import collectives
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.custom import NetworkFactory, custom_actor_critic
from anybatch.networks.weight_average import EwmaNetwork, PeriodicCopy, WeightAverage
from anybatch.storage.checkpoint import Snapshot

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class PPOState(TrainState[ActorCritic]):
    """The state that training a policy and its value function changes."""

    reward_normalizer: RewardNormalizer | None
    advantage_normalizer: AdvantageNormalizer

    @property
    def observation_normalizer(self) -> ObservationNormalizer | None:
        return self.source.normalizer

    def batch_changed(self, config: PPOConfig, env_steps_before: float) -> None:
        """Keep the proximal policy's age in env steps when those per gradient step change.

        If the lag of the data decides the age, there is nothing to keep: it is then an age in gradient steps.
        """
        now, average = self.batch.env_steps_per_gradient_step, self.backend.average
        if env_steps_before == now or average is None or config.proximal_follows_lag:
            return
        if average.rule in rescale_rules(config.rescale):
            average.rescale(env_steps_before / now)

    def metrics(self) -> dict[str, float | None]:
        """Current values, apart from this iteration's losses."""
        mean, std = self.advantage_normalizer.mean_std
        proximal = self.backend.average
        return (
            self.learner.metrics()
            | self.source.metrics()
            | {
                "advantage/mean": mean,
                "advantage/std": std,
                "proximal/age_env_steps": proximal.age_env_steps if proximal else None,
                "proximal/age_gradient_steps": proximal.age_gradient_steps if proximal else None,
            }
        )

    def snapshot(self) -> Snapshot | None:
        whole = super().snapshot()
        assert whole is not None
        rewards = self.reward_normalizer
        local = {"running_return": rewards.running_return if rewards else None}
        return replace(whole, local=whole.local | local)

    def shared(self) -> dict[str, Any]:
        """The part that all ranks share."""
        observations, rewards = self.observation_normalizer, self.reward_normalizer
        average = self.backend.average
        return super().shared() | {
            "ewma": average.state_dict() if isinstance(average, EwmaNetwork) else None,
            "periodic_copy": average.state_dict() if isinstance(average, PeriodicCopy) else None,
            "observation_normalizer": observations.state_dict() if observations else None,
            "reward_normalizer": rewards.state_dict() if rewards else None,
            "advantage_normalizer": self.advantage_normalizer.state_dict(),
        }


def start(
    config: PPOConfig,
    env: Environments,
    losses: Mapping[str, Loss],
    *,
    factory: NetworkFactory | None = None,
    was_native: bool | None = None,
    auxiliary: bool = False,
) -> PPOState:
    """A fresh state. `factory` makes the user's own network; `was_native` is the backend of a resumed run.

    `auxiliary` adds the head that PPG's auxiliary phases train.
    """
    validate_queue_memory(config.lag, rollout_bytes(env.spec, config.step_range[1]))
    normalizer = make_observation_normalizer(config, env.spec)
    network = make_network(config, env.spec, factory, auxiliary=auxiliary)
    averages: dict[str, type[WeightAverage]] = {"ewma": EwmaNetwork, "periodic": PeriodicCopy}
    learner = Learner.fresh(
        config,
        network,
        losses,
        env.spec,
        encoder=encoder_name(config, env.spec),
        noise_of=separate_networks(network),
        average=averages.get(config.proximal.policy),
        was_native=was_native,
    )
    return PPOState(
        learner=learner,
        reward_normalizer=make_reward_normalizer(config),
        advantage_normalizer=AdvantageNormalizer(),
        rank=RankState.fresh(config, env, learner, normalizer=normalizer),
    )


def restore(state: PPOState, saved: Snapshot, config: PPOConfig) -> None:
    """Continue from `saved`, possibly at another batch: numbers that depend on it follow this run's plan."""
    shared, local = saved.shared, saved.local
    state.learner.load_state_dict(shared["learner"], config)
    restore_proximal(state, shared, config)
    # Before the environments: the first observations of fresh episodes are normalized with these statistics.
    if state.observation_normalizer and shared["observation_normalizer"]:
        state.observation_normalizer.load_state_dict(shared["observation_normalizer"])
    state.advantage_normalizer.load_state_dict(shared["advantage_normalizer"])
    continues = state.rank.load_state_dict(local["rank"], saved.segments, plan=state.plan)
    if state.reward_normalizer and shared["reward_normalizer"]:
        state.reward_normalizer.load_state_dict(shared["reward_normalizer"])
        # Waiting data continues the episodes before it, even if the environments start fresh ones.
        if continues or state.source.segments():
            state.reward_normalizer.continue_returns(local["running_return"])


def restore_proximal(state: PPOState, shared: Mapping[str, Any], config: PPOConfig) -> None:
    average = state.backend.average
    if average is None:
        return
    is_ewma = isinstance(average, EwmaNetwork)
    saved = shared["ewma" if is_ewma else "periodic_copy"]
    if saved is None:
        average.reset()
        what = "EWMA" if is_ewma else "copy of the weights"
        logger.info(f"The checkpoint has no proximal {what}: it starts from the current weights.")
        return
    average.load_state_dict(saved)
    state.batch_changed(config, shared["learner"]["control"]["env_steps_per_gradient_step"])


def encoder_name(config: PPOConfig, spec: EnvSpec) -> str:
    """The name of the encoder, which determines the automatic microbatch and the threads of torch."""
    return networks.encoder_name(config.network, layout=spec.obs_layout)


def make_network(
    config: PPOConfig, spec: EnvSpec, factory: NetworkFactory | None = None, *, auxiliary: bool = False
) -> ActorCritic:
    """The network: the same weights for the same seed, on every rank."""
    seed = seeding.torch_generator(config.seed, role="network").initial_seed()
    if factory is not None:
        return custom_actor_critic(factory, config.network, spec, generator_seed=seed, auxiliary=auxiliary)
    return networks.make(
        config.network,
        layout=spec.obs_layout,
        num_actions=spec.action_width,
        continuous=spec.is_continuous,
        action_counts=spec.action_counts,
        generator_seed=seed,
        auxiliary=auxiliary,
    )


def separate_networks(network: ActorCritic) -> dict[str, slice]:
    """Slices of the flat parameters: the policy's come first. With a shared encoder they are one network."""
    if network.shares_encoder:
        return {"policy": slice(None)}
    return {"policy": slice(network.policy_numel), "value": slice(network.policy_numel, None)}


def make_observation_normalizer(config: PPOConfig, spec: EnvSpec) -> ObservationNormalizer | None:
    kind = config.normalize.observations
    if kind == "none":
        return None
    if spec.obs_kind != "vector":
        raise ConfigError(
            f"normalize.observations = {kind} needs vectors, but {spec.env_id} has "
            f"{'images: networks scale them' if spec.obs_kind == 'image' else '0/1 planes'}"
        )
    return ObservationNormalizer(
        spec.obs_shape,
        clip=config.normalize.observation_clip,
        mask_width=spec.obs_layout.mask_width,
        per_step=kind == "step",
    )


def make_reward_normalizer(config: PPOConfig) -> RewardNormalizer | None:
    normalize = config.normalize
    if normalize.rewards == "none":
        return None
    return RewardNormalizer(
        collectives.local_shard(config.num_envs).count,
        discount=normalize.reward_discount,
        clip=normalize.reward_clip,
        per_step=normalize.rewards == "step",
    )


def for_inference(
    config: PPOConfig, spec: EnvSpec, shared: Mapping[str, Any], factory: NetworkFactory | None = None
) -> tuple[ActorCritic, ObservationNormalizer | None]:
    """The network of a checkpoint and its observation normalizer, without what only training needs."""
    saved = saved_network(shared)
    auxiliary = any(str(name).startswith("auxiliary_head.") for name in saved)
    network = make_network(config, spec, factory, auxiliary=auxiliary).to(getattr(torch, config.dtype))
    load_network(network, saved)
    normalizer = make_observation_normalizer(config, spec)
    if normalizer is not None and shared.get("observation_normalizer") is not None:
        normalizer.load_state_dict(shared["observation_normalizer"])
    return network, normalizer
