"""Everything that a run is at one moment, and all that a resume needs."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anybatch import envs, networks
from anybatch.batch_plan import BatchPlan, Hyperparameters, Resolved, resolve
from anybatch.config import PPOConfig
from anybatch.distributed import collectives
from anybatch.envs.protocol import BoxActions, EnvSpec
from anybatch.errors import CheckpointError, ConfigError
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.ewma import EwmaNetwork
from anybatch.networks.flat import FlatParameters
from anybatch.normalizers import AdvantageNormalizer, ObservationNormalizer, RewardNormalizer
from anybatch.rollout import Collector, action_width, observation_bytes, rollout_bytes
from anybatch.runs import seeding
from anybatch.staleness import DelayQueue, refuse_beyond_memory
from anybatch.update import GradientSteps


@dataclass
class TrainState:
    """What training changes. `resolved` changes only as a whole, when the batch does."""

    resolved: Resolved
    network: ActorCritic
    steps: GradientSteps
    ewma: EwmaNetwork | None
    collector: Collector
    reward_normalizer: RewardNormalizer | None
    advantage_normalizer: AdvantageNormalizer
    queue: DelayQueue
    minibatch_generator: torch.Generator
    device: torch.device
    env_steps: int = 0
    iterations: int = 0

    @property
    def plan(self) -> BatchPlan:
        return self.resolved.plan

    @property
    def hyperparameters(self) -> Hyperparameters:
        return self.resolved.hyperparameters

    @property
    def can_be_saved(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        normalizer = self.collector.normalizer
        return {
            "env_steps": self.env_steps,
            "iterations": self.iterations,
            "env_steps_per_gradient_step": self.plan.env_steps_per_gradient_step,
            "network": dict(self.network.state_dict()),
            "steps": self.steps.state_dict(),
            "ewma": self.ewma.state_dict() if self.ewma else None,
            "collector": self.collector.state_dict(),
            "observation_normalizer": normalizer.state_dict() if normalizer else None,
            "reward_normalizer": self.reward_normalizer.state_dict() if self.reward_normalizer else None,
            "advantage_normalizer": self.advantage_normalizer.state_dict(),
            "queue": self.queue.state_dict(),
            "minibatch_generator": self.minibatch_generator.get_state(),
        }

    def segments(self) -> dict[str, dict[str, Tensor]]:
        """Collected data that is still needed, in files of its own."""
        return self.queue.segments()

    def load_state_dict(
        self, state: dict[str, Any], segments: Mapping[str, dict[str, Tensor]], say: Callable[[str], None]
    ) -> None:
        """Go on from `state`, also at another batch: what belongs to a batch follows the plan of this run."""
        load_network(self.network, state["network"])
        self.env_steps, self.iterations = state["env_steps"], state["iterations"]
        self.steps.load_state_dict(state["steps"])
        self._load_ewma(state, say)
        if self.collector.normalizer and state["observation_normalizer"]:
            self.collector.normalizer.load_state_dict(state["observation_normalizer"])
        if self.reward_normalizer and state["reward_normalizer"]:
            self.reward_normalizer.load_state_dict(state["reward_normalizer"])
        self.advantage_normalizer.load_state_dict(state["advantage_normalizer"])
        batch_shape = (self.plan.num_steps, self.plan.num_envs)
        self.queue.load_state_dict(state["queue"], segments, batch_shape=batch_shape, say=say)
        self.minibatch_generator.set_state(state["minibatch_generator"])
        if not self.collector.load_state_dict(state["collector"]):
            say("The episodes under way cannot be restored here: fresh ones are started.")
            # Data that wait go on with the episodes before them: the returns under way are theirs.
            if self.reward_normalizer and not len(self.queue):
                self.reward_normalizer.running_return[:] = 0.0

    def _load_ewma(self, state: dict, say: Callable[[str], None]) -> None:
        if self.ewma is None:
            return
        if state["ewma"] is None:
            self.ewma.reset()
            say("The checkpoint has no proximal EWMA: it starts from the current weights.")
            return
        self.ewma.load_state_dict(state["ewma"])
        was, now = state["env_steps_per_gradient_step"], self.plan.env_steps_per_gradient_step
        if was != now:
            # The age of the average in env steps is what must not jump.
            self.ewma.rescale_weight(was / now)

    def metrics(self) -> dict[str, float | None]:
        """Where the run stands, apart from this iteration's losses."""
        mean, std = self.advantage_normalizer.mean_std
        return {
            "charts/iterations": self.iterations,
            "charts/gradient_steps": self.steps.counts.taken,
            "losses/skipped_steps": self.steps.counts.skipped,
            "batch/iteration": self.plan.iteration_batch,
            "batch/minibatch": self.plan.minibatch,
            "batch/microbatch": self.steps.microbatch,
            "batch/noise_scale": self.steps.noise["policy"].scale,
            "batch/noise_scale_value": self.steps.noise["value"].scale
            if "value" in self.steps.noise
            else None,
            "advantage/mean": mean,
            "advantage/std": std,
            "proximal/age_env_steps": self.ewma.age_env_steps if self.ewma else None,
            "proximal/age_gradient_steps": self.ewma.age_gradient_steps if self.ewma else None,
        }


def start(
    config: PPOConfig, *, say: Callable[[str], None], env_steps: int = 0, auxiliary: bool = False
) -> TrainState:
    """A fresh state. `env_steps` is what a run to be resumed had done: engines then get other seeds.

    `auxiliary` gives the network the head that PPG's auxiliary phases train.
    """
    device = usable_device(config.device)
    rank = collectives.rank()
    seeds = seeding.env_seeds(
        config.seed, role="train", rank=rank, num_envs=config.num_envs, env_steps=env_steps
    )
    env = envs.make(config.env, config.env_config, seeds=seeds)
    refuse_beyond_memory(config.staleness.iterations, rollout_bytes(env.spec, config.num_steps))
    encoder, network = make_network(config, env.spec, auxiliary=auxiliary)
    network = network.to(device)
    flat = FlatParameters(network)
    resolved = resolve(
        config, encoder=encoder, ranks=collectives.world_size(), obs_bytes=observation_bytes(env.spec)
    )
    normalize = config.normalize
    return TrainState(
        resolved=resolved,
        network=network,
        steps=GradientSteps(
            flat,
            config.optimizer,
            microbatch=resolved.plan.microbatch,
            say=say,
            networks=separate_networks(network),
        ),
        ewma=EwmaNetwork(network, flat) if config.proximal.policy == "ewma" else None,
        collector=Collector(
            env,
            generator=seeding.torch_generator(config.seed, role="actions", rank=rank),
            normalizer=observation_normalizer(config, env.spec),
            time_limit_is_terminal=config.env_config.time_limit == "terminal",
            chunk=resolved.plan.microbatch,
            device=device,
        ),
        reward_normalizer=None
        if normalize.rewards == "none"
        else RewardNormalizer(
            config.num_envs,
            discount=normalize.reward_discount,
            clip=normalize.reward_clip,
            per_step=normalize.rewards == "step",
        ),
        advantage_normalizer=AdvantageNormalizer(),
        queue=DelayQueue(config.staleness.iterations),
        minibatch_generator=seeding.torch_generator(config.seed, role="minibatches", rank=rank),
        device=device,
    )


def usable_device(name: str) -> torch.device:
    """The device of that name, or a refusal if torch cannot put anything there."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device = {name} cannot be used: {textwrap.shorten(str(error), 160)}") from None
    return device


def make_network(config: PPOConfig, spec: EnvSpec, *, auxiliary: bool) -> tuple[str, ActorCritic]:
    """The encoder's name and the network: the same weights for the same seed, on every rank."""
    generator = seeding.torch_generator(config.seed, role="network", rank=0)
    is_image = spec.obs_dtype == np.uint8
    encoder = networks.encoder_name(config.network, obs_shape=spec.obs_shape, obs_is_image=is_image)
    return encoder, networks.make(
        config.network,
        obs_shape=spec.obs_shape,
        obs_is_image=is_image,
        num_actions=action_width(spec.actions),
        continuous=isinstance(spec.actions, BoxActions),
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
    if spec.obs_dtype == np.uint8:
        raise ConfigError(
            f"normalize.observations = True is for vectors, but {spec.env_id} has images: networks scale them"
        )
    return ObservationNormalizer(spec.obs_shape, clip=config.normalize.observation_clip)


def load_network(network: torch.nn.Module, saved: dict[str, torch.Tensor]) -> None:
    """Copy saved weights in, or say what differs."""
    here = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    there = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    if here != there:
        name = next(name for name in (*here, *there) if here.get(name) != there.get(name))
        raise CheckpointError(
            f"the saved network is another one: {name} is {there.get(name, 'absent')} there "
            f"and {here.get(name, 'absent')} here"
        )
    network.load_state_dict(saved)
