"""The state of PPO, decoupled PPO and PPO-EWMA."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from anybatch import networks
from anybatch.config import PPOConfig, rescale_rules
from anybatch.controllers import ControllerState
from anybatch.distributed import collectives
from anybatch.envs.protocol import BoxActions, EnvSpec
from anybatch.errors import ConfigError
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.ewma import EwmaNetwork
from anybatch.normalizers import AdvantageNormalizer, ObservationNormalizer, RewardNormalizer
from anybatch.rollout import rollout_bytes
from anybatch.runs import seeding
from anybatch.staleness import DelayQueue, refuse_rollouts_beyond_memory
from anybatch.train_state import TrainState, load_network, make_env, shared_parts


@dataclass(kw_only=True)
class PPOState(TrainState[ActorCritic]):
    """What training a policy and its value function changes."""

    ewma: EwmaNetwork | None
    compensates: bool
    """Whether the numbers of the dial follow a batch that changes within the run."""
    rescales_proximal: bool
    """Whether the proximal decay is among those numbers."""
    reward_normalizer: RewardNormalizer | None
    advantage_normalizer: AdvantageNormalizer
    queue: DelayQueue

    def follow(self, controller: ControllerState) -> str | None:
        was = self.plan.env_steps_per_gradient_step
        sentence = super().follow(controller)
        if self.compensates:
            self._keep_proximal_age(was)
        return sentence

    def _keep_proximal_age(self, was: float) -> None:
        """The age of the average in env steps is what must not jump; `was` is those per gradient step."""
        now = self.plan.env_steps_per_gradient_step
        if self.ewma is not None and self.rescales_proximal and was != now:
            self.ewma.rescale_weight(was / now)

    def state_dict(self) -> dict[str, Any]:
        normalizer = self.collector.normalizer
        return super().state_dict() | {
            "ewma": self.ewma.state_dict() if self.ewma else None,
            "observation_normalizer": normalizer.state_dict() if normalizer else None,
            "reward_normalizer": self.reward_normalizer.state_dict() if self.reward_normalizer else None,
            "advantage_normalizer": self.advantage_normalizer.state_dict(),
            "queue": self.queue.state_dict(),
        }

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return self.queue.segments()

    def load_state_dict(
        self, state: dict[str, Any], segments: Mapping[str, dict[str, Tensor]], say: Callable[[str], None]
    ) -> None:
        # Before the rest: the first observations of fresh episodes are seen with these statistics.
        if self.collector.normalizer and state["observation_normalizer"]:
            self.collector.normalizer.load_state_dict(state["observation_normalizer"])
        if self.reward_normalizer and state["reward_normalizer"]:
            self.reward_normalizer.load_state_dict(state["reward_normalizer"])
        self.advantage_normalizer.load_state_dict(state["advantage_normalizer"])
        length = self.plan.num_steps if self.resolved.step_range is None else None
        self.queue.load_state_dict(
            state["queue"], segments, num_envs=self.plan.num_envs, num_steps=length, say=say
        )
        super().load_state_dict(state, segments, say)
        self._load_ewma(state, say)

    def forget_episodes(self) -> None:
        # Data that wait go on with the episodes before them: the returns under way are theirs.
        if self.reward_normalizer and not len(self.queue):
            self.reward_normalizer.running_return[:] = 0.0

    def _load_ewma(self, state: dict[str, Any], say: Callable[[str], None]) -> None:
        if self.ewma is None:
            return
        if state["ewma"] is None:
            self.ewma.reset()
            say("The checkpoint has no proximal EWMA: it starts from the current weights.")
            return
        self.ewma.load_state_dict(state["ewma"])
        self._keep_proximal_age(state["env_steps_per_gradient_step"])

    def metrics(self) -> dict[str, float | None]:
        mean, std = self.advantage_normalizer.mean_std
        return super().metrics() | {
            "advantage/mean": mean,
            "advantage/std": std,
            "proximal/age_env_steps": self.ewma.age_env_steps if self.ewma else None,
            "proximal/age_gradient_steps": self.ewma.age_gradient_steps if self.ewma else None,
        }


def start(
    config: PPOConfig, *, say: Callable[[str], None], env_steps: int = 0, auxiliary: bool = False
) -> PPOState:
    """A fresh state. `env_steps` is what a run to be resumed had done: engines then get other seeds.

    `auxiliary` gives the network the head that PPG's auxiliary phases train.
    """
    env = make_env(config, env_steps)
    refuse_rollouts_beyond_memory(config.staleness.iterations, rollout_bytes(env.spec, config.step_range[1]))
    encoder, network = make_network(config, env.spec, auxiliary=auxiliary)
    parts = shared_parts(
        config,
        env,
        encoder,
        network,
        noise_of=separate_networks(network),
        normalizer=observation_normalizer(config, env.spec),
        say=say,
    )
    averages = config.proximal.policy == "ewma"
    return PPOState(
        **parts,
        ewma=EwmaNetwork(parts["network"], parts["steps"].flat) if averages else None,
        compensates=config.controller.compensate == "all",
        rescales_proximal="proximal-ewma" in rescale_rules(config.rescale),
        reward_normalizer=reward_normalizer(config),
        advantage_normalizer=AdvantageNormalizer(),
        queue=DelayQueue(config.staleness.iterations),
    )


def make_network(config: PPOConfig, spec: EnvSpec, *, auxiliary: bool) -> tuple[str, ActorCritic]:
    """The encoder's name and the network: the same weights for the same seed, on every rank."""
    generator = seeding.torch_generator(config.seed, role="network", rank=0)
    encoder = networks.encoder_name(config.network, layout=spec.obs_layout)
    return encoder, networks.make(
        config.network,
        layout=spec.obs_layout,
        num_actions=spec.action_width,
        continuous=isinstance(spec.actions, BoxActions),
        action_counts=spec.action_counts,
        generator_seed=generator.initial_seed(),
        auxiliary=auxiliary,
    )


def separate_networks(network: ActorCritic) -> dict[str, slice]:
    """Stretches of the flat parameters: the policy's come first. A shared encoder makes them one network."""
    if network.shares_encoder:
        return {"policy": slice(None)}
    return {"policy": slice(network.policy_numel), "value": slice(network.policy_numel, None)}


def observation_normalizer(config: PPOConfig, spec: EnvSpec) -> ObservationNormalizer | None:
    if not config.normalize.observations:
        return None
    if collectives.world_size() > 1:
        raise ConfigError(
            "normalize.observations = True works in one process only: its statistics change while acting, "
            "where ranks are not in step"
        )
    if spec.obs_kind != "vector":
        raise ConfigError(
            f"normalize.observations = True is for vectors, but {spec.env_id} has "
            f"{'images: networks scale them' if spec.obs_kind == 'image' else '0/1 planes'}"
        )
    return ObservationNormalizer(
        spec.obs_shape, clip=config.normalize.observation_clip, mask_width=spec.obs_layout.mask_width
    )


def reward_normalizer(config: PPOConfig) -> RewardNormalizer | None:
    normalize = config.normalize
    if normalize.rewards == "none":
        return None
    return RewardNormalizer(
        config.num_envs,
        discount=normalize.reward_discount,
        clip=normalize.reward_clip,
        per_step=normalize.rewards == "step",
    )


def for_playing(
    config: PPOConfig, spec: EnvSpec, saved: dict[str, Any]
) -> tuple[ActorCritic, ObservationNormalizer | None]:
    """The network of a checkpoint and its view of observations, without what only training needs."""
    auxiliary = any(name.startswith("auxiliary_head.") for name in saved["network"])
    _, network = make_network(config, spec, auxiliary=auxiliary)
    load_network(network, saved["network"])
    normalizer = observation_normalizer(config, spec)
    if normalizer is not None and saved["observation_normalizer"] is not None:
        normalizer.load_state_dict(saved["observation_normalizer"])
    return network, normalizer
