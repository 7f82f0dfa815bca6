"""What every algorithm's run is at one moment, and the parts from which its state is built."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from anybatch import envs, seeding
from anybatch.acting.observation_normalizer import ObservationNormalizer
from anybatch.acting.rollout import Collector
from anybatch.batch import controllers
from anybatch.batch.controllers import ControllerState
from anybatch.batch.plan import BatchPlan, Resolved, resolve
from anybatch.batch.rescaling import Hyperparameters
from anybatch.config import ControllerConfig, RunConfig
from anybatch.distributed import collectives
from anybatch.envs.protocol import VectorEnv
from anybatch.errors import CheckpointError, ConfigError
from anybatch.learning.updater import GradientSteps
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.flat import FlatParameters
from anybatch.networks.q_network import QNetwork

Network = TypeVar("Network", ActorCritic, QNetwork)


@dataclass(kw_only=True)
class TrainState(Generic[Network]):
    """What training changes. `resolved` changes only as a whole, when the batch does."""

    resolved: Resolved
    plan_for: Callable[[ControllerState], Resolved]
    """What follows from where the controller stands, always from the numbers tuned at."""
    network: Network
    steps: GradientSteps
    collector: Collector
    controller: ControllerState
    controller_config: ControllerConfig
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

    def follow(self, controller: ControllerState) -> str | None:
        """Take over where the controller stands now. Returns what to say if that is another batch."""
        was, self.controller, self.resolved = self.resolved, controller, self.plan_for(controller)
        if was.plan == self.plan:
            return None
        now = self.plan
        return (
            f"{self.env_steps:,} env steps: rollouts of {was.plan.num_steps:,} → {now.num_steps:,} steps, "
            f"iteration batch {now.iteration_batch:,}, minibatch {now.minibatch:,.0f}, "
            f"{now.epochs} epoch{'s' * (now.epochs > 1)}, "
            f"learning rate {self.hyperparameters.learning_rate:.4g}"
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "iterations": self.iterations,
            "env_steps_per_gradient_step": self.plan.env_steps_per_gradient_step,
            "network": dict(self.network.state_dict()),
            "steps": self.steps.state_dict(),
            "collector": self.collector.state_dict(),
            "controller": None if self.resolved.step_range is None else self.controller.to_dict(),
            "minibatch_generator": self.minibatch_generator.get_state(),
        }

    def segments(self) -> dict[str, dict[str, Tensor]]:
        """Collected data that is still needed, in files of its own."""
        return {}

    def load_state_dict(
        self, state: dict[str, Any], _segments: Mapping[str, dict[str, Tensor]], say: Callable[[str], None]
    ) -> None:
        """Go on from `state`, also at another batch: what belongs to a batch follows the plan of this run."""
        load_network(self.network, state["network"])
        self.env_steps, self.iterations = state["env_steps"], state["iterations"]
        self.steps.load_state_dict(state["steps"])
        if state["controller"] is not None:  # else the batch was fixed, and a controller starts now
            self.controller = ControllerState.from_dict(state["controller"])
        self.controller = controllers.resumed(self.controller_config, self.controller, self.env_steps)
        self.resolved = self.plan_for(self.controller)
        self.minibatch_generator.set_state(state["minibatch_generator"])
        if not self.collector.load_state_dict(state["collector"]):
            say("The episodes under way cannot be restored here: fresh ones are started.")
            self.forget_episodes()

    def forget_episodes(self) -> None:
        """The episodes under way are gone: so is what was being summed over them."""

    def metrics(self) -> dict[str, float | None]:
        """Where the run stands, apart from this iteration's losses."""
        acting, *others = self.steps.noise.values()
        return {
            "charts/iterations": self.iterations,
            "charts/gradient_steps": self.steps.counts.taken,
            "losses/skipped_steps": self.steps.counts.skipped,
            "batch/iteration": self.plan.iteration_batch,
            "batch/minibatch": self.plan.minibatch,
            "batch/num_steps": self.plan.num_steps,
            "batch/microbatch": self.steps.microbatch,
            "batch/noise_scale": acting.scale,
            "batch/noise_scale_value": others[0].scale if others else None,
        }


def planner(config: RunConfig, encoder: str, obs_bytes: int | None) -> Callable[[ControllerState], Resolved]:
    """The plan of a run as a function of where its controller stands."""

    def plan_for(controller: ControllerState) -> Resolved:
        decision = controllers.in_force(config.controller, controller)
        epochs = controllers.epochs(
            config.controller, config.update.epochs, config.tuned_at.num_steps, decision
        )
        return resolve(
            config,
            encoder=encoder,
            ranks=collectives.world_size(),
            obs_bytes=obs_bytes,
            num_steps=decision.num_steps,
            epochs=epochs,
        )

    return plan_for


def shared_parts(
    config: RunConfig,
    env: VectorEnv,
    encoder: str,
    network: ActorCritic | QNetwork,
    *,
    noise_of: Mapping[str, slice],
    normalizer: ObservationNormalizer | None = None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """What a fresh state of any algorithm begins with: the arguments of `TrainState`.

    `noise_of` names the stretches of the network's parameters whose noise scales are measured apart.
    """
    rank, device = collectives.rank(), usable_device(config.device)
    controller = controllers.start(config.controller)
    plan_for = planner(config, encoder, env.spec.obs_bytes)
    resolved = plan_for(controller)
    network = network.to(device)
    return {
        "resolved": resolved,
        "plan_for": plan_for,
        "network": network,
        "steps": GradientSteps(
            FlatParameters(network),
            config.optimizer,
            microbatch=resolved.plan.microbatch,
            say=say,
            networks=noise_of,
        ),
        "collector": Collector(
            env,
            generator=seeding.torch_generator(config.seed, role="actions", rank=rank),
            normalizer=normalizer,
            time_limit_is_terminal=config.env_config.time_limit == "terminal",
            chunk=resolved.plan.microbatch,
            device=device,
        ),
        "controller": controller,
        "controller_config": config.controller,
        "minibatch_generator": seeding.torch_generator(config.seed, role="minibatches", rank=rank),
        "device": device,
    }


def make_env(config: RunConfig, env_steps: int) -> VectorEnv:
    """The training environments. `env_steps` is what a run to be resumed had done: they get other seeds."""
    seeds = seeding.env_seeds(
        config.seed, role="train", rank=collectives.rank(), num_envs=config.num_envs, env_steps=env_steps
    )
    return envs.make(config.env, config.env_config, seeds=seeds)


def usable_device(name: str) -> torch.device:
    """The device of that name, or a refusal if torch cannot put anything there."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device = {name} cannot be used: {textwrap.shorten(str(error), 160)}") from None
    return device


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
