"""The parts that the state of every algorithm is composed of.

All ranks share the `Learner`; each rank has its own `RankState`. Each algorithm lists its parts in its state
module, with one function that starts them and one that restores them.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from anybatch import backends, envs, machine, seeding
from anybatch.acting.actors.source import ActorPool, ActorSource
from anybatch.acting.collector import Collector
from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.acting.rollout import Origin, Rollout, rollout_bytes
from anybatch.acting.sources import QueueSource, Source, validate_queue_memory
from anybatch.algorithms import noise, schedules
from anybatch.algorithms.noise import NoiseMeter
from anybatch.algorithms.schedules import Schedules
from anybatch.backends import Acting, Backend, Columns, Loss, LossSteps, Minibatch, minibatches
from anybatch.config import RunConfig
from anybatch.dial import BatchControl, BatchSizes, Plan
from anybatch.distributed import collectives
from anybatch.distributed.shard import Shard
from anybatch.envs.protocol import EnvSpec, VectorEnv
from anybatch.errors import CheckpointError, ConfigError
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.encoders import compute_in_bf16
from anybatch.networks.q_network import QNetwork
from anybatch.networks.weight_average import WeightAverage
from anybatch.runs.run import Run
from anybatch.storage.checkpoint import Snapshot
from anybatch.storage.state_fit import validate_fit

logger = logging.getLogger(__name__)

Network = TypeVar("Network", ActorCritic, QNetwork)
Environments = VectorEnv | ActorPool
"""The environments of this process, or actors."""


@dataclass(kw_only=True)
class Learner(Generic[Network]):
    """The backend, the current plan and the counters: the same on every rank."""

    backend: Backend[Network]
    control: BatchControl
    schedules: Schedules
    noise: NoiseMeter
    env_steps: int = 0
    iterations: int = 0
    wants_metrics: bool = True
    """Whether the losses of this iteration, as means over its samples, are read by anybody."""
    imbalances: list[float] = field(default_factory=list[float])
    """How unevenly this iteration's minibatches are spread over several ranks; empty for one rank."""

    @classmethod
    def fresh(
        cls,
        config: RunConfig,
        network: Network,
        losses: Mapping[str, Loss],
        spec: EnvSpec,
        *,
        encoder: str,
        noise_of: Mapping[str, slice],
        average: type[WeightAverage] | None = None,
        was_native: bool | None,
    ) -> "Learner[Network]":
        """A learner before its first step; for the arguments see `backends.choose`."""
        device = place_network(config, network)
        if config.precision == "bf16" and device.type == "cpu":
            check_bf16()
        control = BatchControl(config, encoder=encoder, obs_bytes=spec.obs_bytes)
        backend = backends.choose(
            config,
            network,
            losses,
            spec,
            average=average,
            noise_of=noise_of,
            microbatch=control.plan.batch.microbatch,
            device=device,
            was_native=was_native,
        )
        return cls(
            backend=backend,
            control=control,
            schedules=Schedules.of(config),
            noise=NoiseMeter(tuple(backend.gradient_shapes())),
        )

    @property
    def plan(self) -> Plan:
        return self.control.plan

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next iteration: the plan's, annealed."""
        return self.schedules.annealed(self.plan.hyperparameters.learning_rate, self.env_steps)

    @property
    def origin(self) -> Origin:
        """The origin of a rollout collected now."""
        return Origin(
            iteration=self.iterations, gradient_steps=self.backend.main.counts.taken, version=self.iterations
        )

    def age_of(self, rollout: Rollout) -> int:
        """Iterations since a rollout was collected: 0 if the current policy acted."""
        return self.iterations - rollout.origin.iteration

    def count(self, rollout: Rollout) -> None:
        """Count an iteration and the valid env steps of the rollout it trained on, over all ranks."""
        self.iterations += 1
        self.env_steps += int(collectives.sum_over_ranks(torch.tensor(rollout.num_valid)))

    def metrics(self) -> dict[str, float | None]:
        """Counters and batches."""
        steps, batch = self.backend.main, self.plan.batch
        uneven = self.imbalances
        return {
            "charts/iterations": self.iterations,
            "charts/gradient_steps": steps.counts.taken,
            "losses/skipped_steps": steps.counts.skipped,
            "batch/iteration": batch.iteration_batch,
            "batch/minibatch": batch.minibatch,
            "batch/num_steps": batch.num_steps,
            "batch/minibatch_limit": self.plan.minibatch_limit.samples if self.plan.minibatch_limit else None,
            "batch/microbatch": self.backend.microbatch,
            "batch/rank_imbalance": sum(uneven) / len(uneven) if uneven else None,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "iterations": self.iterations,
            "network": dict(self.backend.network.state_dict()),
            "steps": self.backend.main.state_dict(),
            "noise": self.noise.state_dict(),
            "control": self.control.state_dict(),
            "schedules": self.schedules.to_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], config: RunConfig) -> None:
        """Continue from `state`, possibly at another batch or to another end: the plan is this run's."""
        load_network(self.backend.network, state["network"])
        self.env_steps, self.iterations = state["env_steps"], state["iterations"]
        self.backend.main.load_state_dict(state["steps"])
        self.noise.load_state_dict(state["noise"], self.backend.gradient_shapes())
        self.control.load_state_dict(state["control"], env_steps=self.env_steps)
        before = Schedules.from_dict(state["schedules"])
        self.schedules = before.continued(config, self.env_steps)
        full = self.plan.hyperparameters.learning_rate
        for sentence in schedules.changes(before, self.schedules, config, self.env_steps, full):
            logger.info(sentence)


@dataclass(kw_only=True)
class RankState:
    """A rank's own part: its environments, waiting data, and the random stream of minibatches."""

    source: Source
    minibatch_generator: torch.Generator

    @classmethod
    def fresh(
        cls,
        config: RunConfig,
        env: Environments,
        learner: Learner[Any],
        *,
        normalizer: ObservationNormalizer | None = None,
    ) -> "RankState":
        if isinstance(env, ActorPool):
            source: Source = ActorSource(
                env,
                config.lag,
                normalizer=normalizer,
                native=learner.backend.is_native,
                dtype=getattr(torch, config.dtype),
            )
        else:
            collector = make_collector(
                config,
                env,
                shard=collectives.local_shard(config.num_envs),
                normalizer=normalizer,
                chunk=learner.plan.batch.microbatch,
                device=learner.backend.device,
                acting=learner.backend.acting,
            )
            source = QueueSource(collector, config.lag)
        return cls(
            source=source,
            minibatch_generator=seeding.torch_generator(config.seed, role="minibatches"),
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "source": self.source.state_dict(),
            "minibatch_generator": self.minibatch_generator.get_state(),
        }

    def load_state_dict(
        self,
        state: dict[str, Any],
        segments: Mapping[str, dict[str, Tensor]],
        *,
        plan: Plan,
    ) -> bool:
        """Continue from `state`. Returns whether the episodes in progress were restored."""
        self.minibatch_generator.set_state(state["minibatch_generator"])
        num_steps = plan.batch.num_steps if plan.step_range is None else None
        restored = self.source.load_state_dict(state["source"], segments, num_steps=num_steps)
        if not restored:
            logger.info("The episodes in progress cannot be restored here: fresh ones are started.")
        return restored


def make_collector(
    config: RunConfig,
    env: VectorEnv,
    *,
    shard: Shard,
    normalizer: ObservationNormalizer | None,
    chunk: int,
    device: torch.device,
    acting: Acting,
) -> Collector:
    """The collector of a shard's environments, in the learner's process or in an actor."""
    return Collector(
        env,
        shard=shard,
        generator=seeding.torch_generator(config.seed, role="actions"),
        normalizer=normalizer,
        time_limit_is_terminal=config.env_config.time_limit == "terminal",
        chunk=chunk,
        device=device,
        dtype=getattr(torch, config.dtype),
        acting=acting,
    )


class IterationSamples(Protocol):
    """What minibatches are made of."""

    @property
    def obs(self) -> Tensor: ...

    @property
    def all_valid(self) -> Tensor:
        """[T, N] over all envs of the run, on the host."""
        ...


@dataclass(kw_only=True)
class TrainState(Generic[Network]):
    """What the state of every algorithm consists of, and short names for its parts.

    An algorithm with further parts extends it, and what is saved of them.
    """

    learner: Learner[Network]
    rank: RankState

    def rollouts(self, config: RunConfig, run: Run) -> Iterator[Rollout]:
        """Rollouts to train on, one per iteration, until the run is over or a stop is requested.

        The first of them may arrive some iterations late: until then there is nothing to learn from, or to
        count.
        """
        while self.should_continue(config, run):
            self.begin_rollout(config)
            run.pace.begin_iteration(
                samples=self.batch.iteration_batch, gradient_steps=self.gradient_steps(config)
            )
            self.learner.wants_metrics = run.begin_iteration(
                self.iterations + 1, iteration_batch=self.batch.iteration_batch, env_steps=self.env_steps
            )
            with run.timer("rollout"):
                rollout = self.source.next(self.network, self.batch.num_steps, self.learner.origin)
            run.pace.begin_learning()
            if rollout is None:
                self.learner.iterations += 1
                run.save_if_due(self)
            else:
                self.learner.imbalances.clear()
                yield rollout

    def should_continue(self, config: RunConfig, run: Run) -> bool:
        return self.env_steps < config.total_env_steps and not run.should_stop

    def gradient_steps(self, config: Any) -> int:
        """How many an iteration has, at most."""
        del config
        return self.batch.gradient_steps_per_iteration

    def begin_rollout(self, config: Any) -> None:
        """Set what the policy that collects depends on, apart from its weights."""

    def batch_changed(self, config: Any, env_steps_before: float) -> None:
        """Adapt what counts in gradient steps, which stood for `env_steps_before` each."""

    def metrics(self) -> dict[str, float | None]:
        """Current values, apart from this iteration's losses."""
        return self.learner.metrics() | self.source.metrics()

    def snapshot(self) -> Snapshot | None:
        """The state to be saved; None at a point that a resume could not continue from."""
        return Snapshot(
            shared=self.shared(),
            local={"rank": self.rank.state_dict()},
            num_envs=self.batch.num_envs,
            segments=self.source.segments(),
        )

    def drop_episodes_of_another_engine(self, local: dict[str, Any]) -> None:
        """Remove from a snapshot's local part the episodes in progress that this engine cannot continue."""
        self.source.drop_episodes_of_another_engine(local["rank"]["source"])

    def shared(self) -> dict[str, Any]:
        """The part of a snapshot that all ranks share."""
        return {"learner": self.learner.state_dict(), "native": self.backend.is_native}

    def minibatches(self, samples: IterationSamples, config: RunConfig) -> list[Minibatch]:
        """The minibatches of one epoch: one draw over the samples of all ranks, which are not moved."""
        parts = minibatches.epoch(
            samples.all_valid,
            self.batch.minibatches_per_epoch,
            config.update.minibatch_of,
            self.rank.minibatch_generator,
            config.update.draw,
        )
        shard, device = self.shard, samples.obs.device
        drawn = [Minibatch.of(part, shard, device) for part in parts if part.numel()]
        if not shard.is_whole:
            self.learner.imbalances += minibatches.imbalances([part.of_all for part in drawn], shard.total)
        return drawn

    def measures_noise(self, config: RunConfig) -> bool:
        """Whether this iteration measures the noise of its gradients."""
        done = self.iterations
        return noise.is_measured(config, done) or noise.is_measured_for_controller(config, done)

    def measure_noise(
        self, config: RunConfig, samples: Columns, all_valid: Tensor
    ) -> dict[str, float | None]:
        """Measure the noise of the gradients at the current weights, if this iteration does. Takes no step.

        `all_valid` is [T, N] over all envs of the run. Returns metrics.
        """
        meter, metrics = self.learner.noise, dict[str, float | None]()
        if noise.is_measured(config, self.iterations):
            groups = self._groups(noise.env_groups(all_valid))
            metrics = meter.add(noise.mean_gradients(self.backend, samples, groups))
        meter.of_batch = None
        if noise.is_measured_for_controller(config, self.iterations):
            parts = self._groups(noise.random_parts(all_valid, config.seed, self.iterations))
            meter.of_batch = noise.measured_by_paper(self.backend, samples, parts)
        if meter.of_batch is not None:
            metrics["noise/batch_trace"], metrics["noise/batch_signal"] = meter.of_batch
        return metrics

    def _groups(self, groups: list[Tensor]) -> list[Minibatch]:
        return [Minibatch.of(group, self.shard, self.device) for group in groups]

    @property
    def backend(self) -> Backend[Network]:
        return self.learner.backend

    @property
    def network(self) -> Network:
        return self.learner.backend.network

    @property
    def steps(self) -> LossSteps:
        """The gradient steps on the main loss."""
        return self.learner.backend.main

    @property
    def device(self) -> torch.device:
        return self.learner.backend.device

    @property
    def plan(self) -> Plan:
        return self.learner.plan

    @property
    def batch(self) -> BatchSizes:
        return self.learner.plan.batch

    @property
    def source(self) -> Source:
        return self.rank.source

    @property
    def shard(self) -> Shard:
        """The environments whose samples are on this rank."""
        return collectives.local_shard(self.batch.num_envs)

    @property
    def env_steps(self) -> int:
        return self.learner.env_steps

    @property
    def iterations(self) -> int:
        return self.learner.iterations


def restore(state: TrainState[Any], saved: Snapshot, config: RunConfig) -> None:
    """Continue from `saved`, possibly at another batch: numbers that depend on it follow this run's plan."""
    state.learner.load_state_dict(saved.shared["learner"], config)
    state.rank.load_state_dict(saved.local["rank"], saved.segments, plan=state.plan)


def check_bf16() -> None:
    """Refuse bf16 on a processor that cannot compute in it, and say where it is slow."""
    if machine.bf16_fails():
        raise ConfigError(
            "precision = bf16 cannot be used here: this machine reports AMX instructions but does not run "
            "them. Use precision = float32, which is faster without them, or set the environment variable "
            f"{machine.WITHOUT_AMX}"
        )
    if not machine.has_fast_bf16():
        logger.info("This processor has no instructions for bf16: float32 is faster here.")
    elif "amx_bf16" not in machine.vector_instructions():
        logger.info(
            "This processor has no AMX: bf16 may be slower than float32 (`anybatch doctor` measures it)."
        )


def place_network(config: RunConfig, network: torch.nn.Module) -> torch.device:
    """Move a network to the device and the precision of a run. Returns the device."""
    device = machine.usable_device(config.device)
    network.to(device=device, dtype=getattr(torch, config.dtype))
    if config.precision == "bf16":
        compute_in_bf16(network)
    return device


def make_env(config: RunConfig, env_steps: int) -> VectorEnv:
    """The training environments. `env_steps` are those a resumed run has done; they change the seeds."""
    shard = collectives.local_shard(config.num_envs)
    if shard.count >= envs.MANY_ENVS:
        validate_env_memory(config, envs.spec_of_one(config.env, config.env_config), shard.count)
    seeds = seeding.env_seeds(config.seed, role="train", num_envs=config.num_envs, env_steps=env_steps)
    return envs.make(config.env, config.env_config, seeds=seeds[shard.envs], first_env=shard.first)


def validate_env_memory(config: RunConfig, one: EnvSpec | None, num_envs: int) -> None:
    """Refuse before building many envs, which can take minutes and the memory that their data needs.

    `one` is the spec of a single env, if known.
    """
    if one is not None:
        spec = replace(one, num_envs=num_envs)
        validate_queue_memory(0, rollout_bytes(spec, config.step_range[1]))


def saved_network(shared: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights in a checkpoint."""
    learner: object = shared.get("learner")
    weights: object = learner.get("network") if isinstance(learner, dict) else None
    if not isinstance(weights, dict):
        raise CheckpointError("it has no network")
    return weights


def load_network(network: torch.nn.Module, saved: dict[str, torch.Tensor]) -> None:
    """Load saved weights, or report what differs."""
    validate_fit(saved, dict(network.state_dict()), "the network")
    network.load_state_dict(saved)
