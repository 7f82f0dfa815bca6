"""Configuration shared by the runs of all algorithms."""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, cast

from anybatch import rules
from anybatch.config.controller import CompleteController, ControllerConfig
from anybatch.config.groups import (
    DelayConfig,
    EnvConfig,
    EvaluationConfig,
    OptimizerConfig,
    RecordConfig,
    TunedAt,
    UpdateConfig,
)
from anybatch.config.planned import (
    BatchSizes,
    Hyperparameters,
    MinibatchLimit,
    PhasePlan,
    Plan,
    PlanRow,
    Ratios,
    StalePlan,
    rescale_rules,
)
from anybatch.config.require import (
    Group,
    NonNegativeInt,
    NumEnvs,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    require,
)
from anybatch.config.tunable import LEARNING_RATE, MINIBATCHES_PER_EPOCH, Dimension

MOST_ACTORS = 4096
Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Collection:
    """Actors that collect while the learner learns, each with a shard of the environments."""

    engine: Engine
    """local: processes on this machine. ray: Ray actors, here or on other machines."""
    actors: int

    def __str__(self) -> str:
        places = {"local": "on this machine", "ray": "on Ray"}
        return f"{self.actors} actor{'s' * (self.actors > 1)} {places[self.engine]}"


@dataclass(frozen=True, kw_only=True)
class RunConfig(Group):
    """Settings of every run. Those outside a group are the common flags of the command line.

    The methods below `What an algorithm owns` answer what plans, studies and the command line ask about an
    algorithm. The config of an algorithm overrides those that differ.
    """

    algorithm: ClassVar[str]
    tunable: ClassVar[tuple[Dimension, ...]] = (LEARNING_RATE, MINIBATCHES_PER_EPOCH)
    """The numbers that a tuning can search, in the order of its tables."""
    stores_observations: ClassVar[bool] = False
    """Whether it keeps the observations of several iterations, so that a plan needs their size."""

    env: str = "CartPole-v1"
    """Environment id: CartPole-v1, Breakout-v5, HalfCheetah-v4, procgen:coinrun, procgen-easy:coinrun,
    minatar:Breakout, gym:…, envpool:…, my_package:MyEnv-v0, toy:…"""
    num_envs: NumEnvs = 8
    """Environments stepped together in the whole run. Ranks share them and change only the speed."""
    envs_per_rank: PositiveInt | None = None
    """Environments per rank, for a batch that grows with the ranks: num-envs is then this times the number of
    ranks, and the numbers follow the batch. None: num-envs does not depend on the ranks."""
    num_steps: PositiveInt = 128
    """Steps of each environment between two optimizations."""
    total_env_steps: PositiveInt = 500_000
    """Length of the run, in valid samples over all ranks."""
    seed: NonNegativeInt = 1
    """Seed of all randomness. Runs with neighboring seeds share no random numbers."""
    rescale: str = "all"
    """Hyperparameters that follow the batch: all, none, or a comma-separated list of learning-rate,
    proximal-ewma, proximal-copy, advantage-moments, phase-length, auxiliary-phase and adam-betas, which is
    not part of all. learning-rate=linear or learning-rate=square-root replaces the optimizer's own rule, also
    in the auxiliary phase."""
    minibatch: PositiveInt | Literal["auto", "scaled", "keep", "noise-scale"] = "auto"
    """How the minibatch follows the iteration batch. scaled: in proportion, by a constant number of
    minibatches, and the learning rate follows it. keep: minibatch and learning rate stay as tuned and the
    number of minibatches follows, down to one; still smaller batches are scaled. auto: scaled below the tuned
    batch, keep above it. A number: scaled, but at most this many samples, which must be at least the tuned
    minibatch. noise-scale: scaled, but at most the gradient noise scale that the run measures."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, …, or auto: cuda if available, else cpu. Presets for images use auto; small networks
    have native code for a CPU."""
    threads: NumThreads = 0
    """CPU threads. 0: all cores for convolutions and for native code, which uses as many as pay off and gives
    the same results with any number; one for other small networks and for the auxiliary phase of PPG beside
    native code. Ranks on one machine share the cores."""
    precision: Literal["float32", "float64", "bf16"] = "float32"
    """float32 or float64: that of rollouts, networks and updates; float64 is for comparisons and costs speed
    and memory. bf16: the encoders compute in bfloat16, which may be faster on processors and GPUs that
    support it (see `anybatch doctor`); weights, heads, losses, optimizer, targets and averages are float32.
    """
    native: Literal["auto", "on", "off"] = "auto"
    """Native code for acting and gradient steps, compiled at first use. auto: for small networks of plain
    vectors on a CPU, if there is a C compiler; on: an error if it is not possible; off: torch. A resumed run
    keeps its choice."""
    microbatch: NonNegativeInt = 0
    """Samples per forward and backward pass: affects memory and speed only. 0: a fixed rule by network and
    device."""
    overlap: bool = False
    """Collect the next iteration in a second process while the learner learns. The data is then
    staleness.iterations old, at least 1, exactly as if it had waited in a queue."""
    actors: str | None = None
    """Processes that collect while the learner learns, each with a share of the environments: local:N on this
    machine, ray:N on Ray (extra `ray`). The results equal those of --overlap, up to rounding. None: the
    learner collects by itself."""
    ray_address: str | None = None
    """Address of a Ray cluster, such as auto or 10.0.0.1:6379. None: start Ray for this run alone, reachable
    only from this machine."""
    actor_timeout: PositiveFloat = 300.0
    """Seconds after which an actor that gives no sign of life, or is stuck in one step, is restarted."""

    update: UpdateConfig = field(default_factory=UpdateConfig)
    staleness: DelayConfig = field(default_factory=DelayConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    env_config: EnvConfig = field(default_factory=EnvConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    record: RecordConfig = field(default_factory=RecordConfig)
    tuned_at: TunedAt | None = None
    """Batch at which the numbers were chosen. None: the batch of this config."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.env != "" and not self.env.endswith(":"),
            f"env = {self.env!r}: must be an id such as CartPole-v1 or minatar:Breakout",
        )
        require(
            self.precision != "bf16" or self.native != "on",
            f"precision = {self.precision}, native = {self.native}: bf16 does not run in native code",
        )
        self._require_minibatch()
        self._require_collection()
        rescale_rules(self.rescale)
        require(
            self.controller.kind != "noise_scale"
            or self.controller.noise_estimator == "paper"
            or self.update.noise_scale_every > 0,
            "controller.noise-estimator = sequences needs update.noise-scale-every above 0 to measure it",
        )

    def _require_minibatch(self) -> None:
        minibatch, controller = self.minibatch, self.controller.kind
        require(
            minibatch != "noise-scale" or self.update.noise_scale_every > 0,
            "minibatch = noise-scale needs update.noise-scale-every above 0 to measure it",
        )
        require(
            minibatch != "noise-scale" or controller == "fixed",
            f"minibatch = noise-scale and controller.kind = {controller} both change the minibatch within a "
            "run: use one of them; a number works with every controller",
        )
        require(
            minibatch != "keep" or controller != "noise_scale",
            "controller.kind = noise_scale changes the minibatch, which minibatch = keep does not allow",
        )

    def _require_collection(self) -> None:
        require(
            self.collection is None or self.env_config.log_infos == (),
            "env-config.log-infos needs environments in the process of the learner, and actors have them in "
            "others",
        )
        on_ray = self.collection is not None and self.collection.engine == "ray"
        require(
            self.ray_address is None or on_ray,
            f"ray-address = {self.ray_address} needs actors on Ray, but actors = {self.actors}",
        )

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """The type of the weights."""
        return "float64" if self.precision == "float64" else "float32"

    @property
    def collection(self) -> Collection | None:
        """The actors that collect; None if the learner collects by itself."""
        return collection_of(self.actors, overlap=self.overlap, num_envs=self.num_envs)

    @property
    def lag(self) -> int:
        """Iterations that every rollout waits: at least 1 if it is collected while the learner learns."""
        return max(self.staleness.iterations, int(self.collection is not None))

    @property
    def rescales_within_a_run(self) -> bool:
        """Whether the numbers follow changes of the batch within a run."""
        return self.controller.compensate == "all" or self.minibatch == "noise-scale"

    def tuned_batch(self) -> TunedAt:
        """The batch that the numbers were tuned at."""
        return self.tuned_at or TunedAt(
            num_envs=self.num_envs,
            num_steps=self.num_steps,
            minibatches_per_epoch=self.update.minibatches_per_epoch,
            epochs=self.update.epochs,
        )

    def pinned(self) -> Self:
        """The same config with an explicit tuned batch, so that a change of its batch rescales the
        numbers."""
        return replace(self, tuned_at=self.tuned_batch())

    def on_ranks(self, ranks: int) -> Self:
        """The config of a run on `ranks` ranks: with `envs_per_rank`, its batch follows them."""
        if self.envs_per_rank is not None:
            return replace(self.pinned(), num_envs=self.envs_per_rank * ranks)
        require(
            ranks <= self.num_envs,
            f"{ranks} ranks share num-envs = {self.num_envs}: each must have at least one environment",
        )
        return self

    def validate_num_envs(self) -> None:
        """For callers that were given a number of envs: refuse it where ranks decide it."""
        require(
            self.envs_per_rank is None,
            f"num-envs has no effect on a run with envs-per-rank = {self.envs_per_rank}, whose environments "
            "follow the ranks: leave num-envs out, or set envs-per-rank to none",
        )

    def completed(self) -> Self:
        """The config as a run records it: pinned, and with the defaults of its controller's kind as numbers.

        A resume keeps them, even in a later version with other defaults, and keeps the lag however it
        collects.
        """
        controller = self.controller.with_defaults(self.tuned_batch().num_steps)
        staleness = replace(self.staleness, iterations=self.lag)
        return replace(self.pinned(), controller=controller, staleness=staleness)

    @cached_property
    def complete_controller(self) -> CompleteController:
        """The controller with the defaults of its kind, around the tuned rollout length."""
        return self.controller.completed(self.tuned_batch().num_steps)

    @property
    def step_range(self) -> tuple[int, int]:
        """Shortest and longest rollout that the controller may choose."""
        fixed = self.controller.kind == "fixed"
        return (self.num_steps, self.num_steps) if fixed else self.complete_controller.step_range

    def validate_controller(self, *kinds: str) -> None:
        """Refuse the controllers whose signals the algorithm does not have."""
        kind = self.controller.kind
        require(
            kind in kinds,
            f"controller.kind = {kind} needs a signal that {self.algorithm.upper()} does not have; it takes "
            f"{', '.join(kinds)}",
        )

    # What an algorithm owns.

    @property
    def title(self) -> str:
        """Name of the algorithm in papers."""
        return self.algorithm.upper()

    @property
    def final_epsilon(self) -> float | None:
        """Share of random actions of the trained policy; None if it samples its actions."""
        return None

    @property
    def exploration_range(self) -> tuple[float, float] | None:
        """Share of random actions at the start and at the end of its schedule; None if there is none."""
        return None

    @property
    def explores_until(self) -> float:
        """Env steps at which that schedule ends."""
        return 0.0

    @property
    def clips_ratios(self) -> bool:
        """Whether ratios of probabilities are clipped, so that the share of clipped ones says something."""
        return False

    @property
    def keeps_advantage_moments(self) -> bool:
        """Whether advantages are normalized with moments that it can average over iterations."""
        return False

    @property
    def proximal_age_setting(self) -> str | None:
        """The setting that decides the age of the proximal policy; None if there is none."""
        return None

    @property
    def proximal_follows_lag(self) -> bool:
        """Whether the lag of the data decides the age of the proximal policy."""
        return False

    @property
    def fixed_on_resume(self) -> tuple[str, ...]:
        """Settings that a checkpoint depends on, in addition to those of every run."""
        return ()

    def decoupled(self) -> Self | None:
        """The config with the objective for data that actors collect; None if this one is suitable."""
        return None

    def rescaled(self, ratios: Ratios, stale: StalePlan | None) -> Hyperparameters:
        """Each hyperparameter rescaled by the batch it depends on (arXiv:2110.00641, §3.2 and §4).

        `stale` holds the age of the proximal policy if it is set by the lag of the data.
        """
        optimizer, asked = self.optimizer, rescale_rules(self.rescale)
        beta1, beta2 = (
            rules.rescaled_adam_beta(beta, asked.ratio("adam-betas", ratios.minibatch), floor=floor)
            for beta, floor in zip((optimizer.beta1, optimizer.beta2), rules.ADAM_BETA_FLOORS, strict=True)
        )
        return Hyperparameters(
            learning_rate=rules.rescaled_learning_rate(
                optimizer.learning_rate,
                asked.ratio("learning-rate", ratios.minibatch),
                optimizer.name,
                asked.learning_rate,
            ),
            beta1=beta1,
            beta2=beta2,
        )

    def plan_stale_data(self, batch: BatchSizes) -> StalePlan | None:
        """The lag of a run's data, if hyperparameters can follow it; None if the data is fresh."""
        return None

    def plan_phase(
        self, batch: BatchSizes, ratio: float, *, obs_bytes: int | None, limit: MinibatchLimit | None
    ) -> PhasePlan | None:
        """The phases of PPG; None for other algorithms."""
        return None

    @property
    def learning_rate_factor(self) -> str:
        """Factor of the learning rate that changes with each iteration; empty if there is none."""
        return ""

    def plan_rows(self, plan: Plan) -> list[PlanRow]:
        """The rows of a plan's table in addition to those of the optimizer."""
        return []

    def plan_lines(self, plan: Plan) -> list[str]:
        """The lines above a plan's table in addition to those about batches and collection."""
        return []

    def plan_warnings(self, plan: Plan, *, rescales: bool) -> list[tuple[bool, str]]:
        """Reasons why the rules may not hold, in addition to those of every algorithm, and whether each
        applies. `rescales`: whether some rule follows a minibatch, or gradient steps, other than tuned."""
        return []

    def stated(self, plan: Plan) -> dict[str, Any]:
        """The hyperparameters of a plan as settings, by group."""
        run = plan.hyperparameters
        return {
            "optimizer": {"learning_rate": run.learning_rate, "beta1": run.beta1, "beta2": run.beta2},
            "update": {"minibatches_per_epoch": plan.batch.minibatches_per_epoch},
        }

    @property
    def plan_settings(self) -> dict[str, Any]:
        """Settings of the algorithm that its plans depend on, named as the flags of the command line."""
        return {}


def collection_of(actors: str | None, *, overlap: bool, num_envs: int) -> Collection | None:
    """The collection that the settings `actors` and `overlap` request; None if the learner collects by
    itself."""
    if actors is None:
        return Collection("local", 1) if overlap else None
    match = re.fullmatch(r"(local|ray):(\d{1,9})", actors)
    require(match is not None, f"actors = {actors!r}: must be local:N or ray:N, such as local:2")
    assert match is not None
    count = int(match[2])
    require(1 <= count <= MOST_ACTORS, f"actors = {actors}: must be from 1 to {MOST_ACTORS:,} actors")
    require(
        count <= num_envs,
        f"actors = {actors} is more than num-envs = {num_envs}: every actor needs an environment",
    )
    return Collection(cast("Engine", match[1]), count)
