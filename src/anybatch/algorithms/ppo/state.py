"""The state of PPO, decoupled PPO and PPO-EWMA."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from anybatch import networks, seeding
from anybatch.acting.observation_normalizer import ObservationNormalizer
from anybatch.acting.rollout import rollout_bytes
from anybatch.acting.sources import refuse_rollouts_beyond_memory
from anybatch.algorithms.arithmetic import compile_choice, keep_arithmetic, native_threads
from anybatch.algorithms.state import (
    Environments,
    Learner,
    RankState,
    TrainState,
    load_network,
    saved_network,
)
from anybatch.batch.stale import proximal_follows_lag
from anybatch.config import PPOConfig, rescale_rules
from anybatch.distributed import collectives
from anybatch.envs.protocol import BoxActions, EnvSpec
from anybatch.errors import ConfigError
from anybatch.kernels.choice import policy_kernel
from anybatch.kernels.policy import PolicyKernel
from anybatch.learning.normalizers import AdvantageNormalizer, RewardNormalizer
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.own import NetworkFactory, own_actor_critic
from anybatch.networks.weight_average import EwmaNetwork, PeriodicCopy, WeightAverage
from anybatch.runs.checkpoint import Snapshot


@dataclass(kw_only=True)
class PPOState(TrainState[ActorCritic]):
    """The state that training a policy and its value function changes."""

    learner: Learner[ActorCritic]
    ewma: EwmaNetwork | None
    periodic_copy: PeriodicCopy | None
    kernel: PolicyKernel | None
    reward_normalizer: RewardNormalizer | None
    advantage_normalizer: AdvantageNormalizer
    rank: RankState

    @property
    def observation_normalizer(self) -> ObservationNormalizer | None:
        return self.source.normalizer

    @property
    def proximal_network(self) -> WeightAverage | None:
        """The weights that the update is held near; None if stored log-probabilities are enough."""
        return self.ewma or self.periodic_copy

    def metrics(self) -> dict[str, float | None]:
        """Current values, apart from this iteration's losses."""
        mean, std = self.advantage_normalizer.mean_std
        proximal = self.proximal_network
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

    def snapshot(self) -> Snapshot:
        rewards = self.reward_normalizer
        return Snapshot(
            shared=self.shared(),
            own={
                "rank": self.rank.state_dict(),
                "running_return": rewards.running_return if rewards else None,
            },
            segments=self.source.segments(),
        )

    def shared(self) -> dict[str, Any]:
        """The part that all ranks share."""
        observations, rewards = self.observation_normalizer, self.reward_normalizer
        return {
            "learner": self.learner.state_dict(),
            "native": self.kernel is not None,
            "ewma": self.ewma.state_dict() if self.ewma else None,
            "periodic_copy": self.periodic_copy.state_dict() if self.periodic_copy else None,
            "observation_normalizer": observations.state_dict() if observations else None,
            "reward_normalizer": rewards.state_dict() if rewards else None,
            "advantage_normalizer": self.advantage_normalizer.state_dict(),
        }


def start(
    config: PPOConfig,
    env: Environments,
    *,
    say: Callable[[str], None],
    factory: NetworkFactory | None = None,
    auxiliary: bool = False,
) -> PPOState:
    """A fresh state. `factory` makes the user's own network.

    `auxiliary` adds the head that PPG's auxiliary phases train.
    """
    refuse_rollouts_beyond_memory(config.lag, rollout_bytes(env.spec, config.step_range[1]))
    normalizer = make_observation_normalizer(config, env.spec)
    network = make_network(config, env.spec, factory, auxiliary=auxiliary)
    learner = Learner.fresh(
        config,
        network,
        encoder=networks.encoder_name(config.network, layout=env.spec.obs_layout),
        obs_bytes=env.spec.obs_bytes,
        noise_of=separate_networks(network),
        say=say,
    )
    weights, policy = (learner.network, learner.steps.flat), config.proximal.policy
    ewma = EwmaNetwork(*weights) if policy == "ewma" else None
    periodic_copy = PeriodicCopy(*weights) if policy == "periodic" else None
    kept = ewma or periodic_copy
    proximal = kept.policy if kept else None
    kernel = policy_kernel(
        compile_choice(config),
        learner.network,
        proximal,
        env.spec,
        threads=native_threads(config),
        say=say,
    )
    if kernel is not None:
        learner.steps.use_native_code()
    return PPOState(
        learner=learner,
        ewma=ewma,
        periodic_copy=periodic_copy,
        kernel=kernel,
        reward_normalizer=make_reward_normalizer(config),
        advantage_normalizer=AdvantageNormalizer(),
        rank=RankState.fresh(config, env, learner, normalizer=normalizer, kernel=kernel),
    )


def restore(state: PPOState, saved: Snapshot, config: PPOConfig, say: Callable[[str], None]) -> None:
    """Continue from `saved`, possibly at another batch: numbers that depend on it follow this run's plan."""
    shared, own = saved.shared, saved.own
    state.learner.load_state_dict(shared["learner"], config, say)
    keep_arithmetic(state, config, was_native=bool(shared.get("native")), say=say)
    restore_proximal(state, shared, config, say)
    # Before the environments: the first observations of fresh episodes are normalized with these statistics.
    if state.observation_normalizer and shared["observation_normalizer"]:
        state.observation_normalizer.load_state_dict(shared["observation_normalizer"])
    state.advantage_normalizer.load_state_dict(shared["advantage_normalizer"])
    continues = state.rank.load_state_dict(own["rank"], saved.segments, plan=state.plan, say=say)
    if state.reward_normalizer and shared["reward_normalizer"]:
        state.reward_normalizer.load_state_dict(shared["reward_normalizer"])
        # Waiting data continues the episodes before it, even if the environments start fresh ones.
        if continues or state.source.segments():
            state.reward_normalizer.continue_returns(own["running_return"])


def restore_proximal(
    state: PPOState, shared: Mapping[str, Any], config: PPOConfig, say: Callable[[str], None]
) -> None:
    proximal = state.proximal_network
    if proximal is None:
        return
    saved = shared["ewma" if state.ewma else "periodic_copy"]
    if saved is None:
        proximal.reset()
        what = "EWMA" if state.ewma else "copy of the weights"
        say(f"The checkpoint has no proximal {what}: it starts from the current weights.")
        return
    proximal.load_state_dict(saved)
    keep_proximal_age(state, config, shared["learner"]["control"]["env_steps_per_gradient_step"])


def keep_proximal_age(state: PPOState, config: PPOConfig, before: float) -> None:
    """Keep the proximal policy's age in env steps when those per gradient step change from `before`.

    If the lag of the data decides the age, there is nothing to keep: it is then an age in gradient steps.
    """
    now, average = state.batch.env_steps_per_gradient_step, state.proximal_network
    if before == now or average is None or proximal_follows_lag(config):
        return
    if average.rule in rescale_rules(config.rescale):
        average.rescale(before / now)


def make_network(
    config: PPOConfig, spec: EnvSpec, factory: NetworkFactory | None = None, *, auxiliary: bool
) -> ActorCritic:
    """The network: the same weights for the same seed, on every rank."""
    seed = seeding.torch_generator(config.seed, role="network").initial_seed()
    if factory is not None:
        return own_actor_critic(factory, config.network, spec, generator_seed=seed, auxiliary=auxiliary)
    return networks.make(
        config.network,
        layout=spec.obs_layout,
        num_actions=spec.action_width,
        continuous=isinstance(spec.actions, BoxActions),
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
        collectives.own_shard(config.num_envs).count,
        discount=normalize.reward_discount,
        clip=normalize.reward_clip,
        per_step=normalize.rewards == "step",
    )


def for_playing(
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
