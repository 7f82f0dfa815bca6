"""Configuration shared by the runs of all algorithms."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from anybatch import rules
from anybatch.config.collection import Collection, collection_of
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
from anybatch.config.planned import BatchSizes, Hyperparameters, PhasePlan, Plan, PlanRow, Ratios, StalePlan
from anybatch.config.require import MOST_ENVS, MOST_THREADS, require, require_sense
from anybatch.config.rescale import rescale_rules
from anybatch.config.tunable import LEARNING_RATE, MINIBATCHES_PER_EPOCH, Dimension


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Settings of every run. Those outside a group are the common flags of the command line.

    The methods below `What an algorithm owns` answer what plans, studies and the command line ask about an
    algorithm. The config of an algorithm overrides those that differ.
    """

    algorithm: ClassVar[str]
    tunable: ClassVar[tuple[Dimension, ...]] = (LEARNING_RATE, MINIBATCHES_PER_EPOCH)
    """The numbers that a tuning can search, in the order of its tables."""

    env: str = "CartPole-v1"
    """Environment id: CartPole-v1, Breakout-v5, HalfCheetah-v4, procgen:coinrun, procgen-easy:coinrun,
    minatar:Breakout, gym:…, envpool:…, my_package:MyEnv-v0, toy:…"""
    num_envs: int = 8
    """Environments stepped together in the whole run. Ranks share them and change only the speed."""
    envs_per_rank: int | None = None
    """Environments per rank, for a batch that grows with the ranks: num-envs is then this times the number of
    ranks, and the numbers follow the batch. None: num-envs does not depend on the ranks."""
    num_steps: int = 128
    """Steps of each environment between two optimizations."""
    total_env_steps: int = 500_000
    """Length of the run, in valid samples over all ranks."""
    seed: int = 1
    """Seed of all randomness. Runs with neighboring seeds share no random numbers."""
    rescale: str = "all"
    """The numbers that follow the batch: all, none, or a comma-separated list of rules. The rules are
    learning-rate, proximal-ewma, proximal-copy, advantage-moments, phase-length, auxiliary-phase and
    adam-betas, which is not part of all. learning-rate=linear or learning-rate=square-root
    replaces the optimizer's own rule, also in the auxiliary phase."""
    minibatch_limit: int | Literal["noise-scale"] | None = None
    """Largest minibatch, in samples: at least the tuned one. A larger iteration batch is split into more
    minibatches per epoch, and the numbers that follow the minibatch stay the same. noise-scale: the gradient
    noise scale that the run measures, but at least the tuned minibatch. None: the minibatch grows with the
    iteration batch."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, …, or auto: cuda if available, else cpu."""
    threads: int = 0
    """CPU threads. 0: all cores for convolutions and for native code, which uses as many as pay off and gives
    the same results with any number; one for other small networks and for the auxiliary phase of PPG beside
    native code. Ranks on one machine share the cores."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of rollouts, networks and updates. float64 is for comparisons; it costs speed and memory."""
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of the encoders. bf16 may be faster on processors and GPUs that support it (see
    `anybatch doctor`); weights, heads, losses, optimizer, targets and averages stay float32."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Native code for acting and gradient steps, compiled at first use. auto: for small networks of plain
    vectors on a CPU, if there is a C compiler; on: an error if it is not possible; off: torch. A resumed run
    keeps its choice."""
    microbatch: int = 0
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
    actor_timeout: float = 300.0
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
        require(self.num_envs <= MOST_ENVS, f"num-envs = {self.num_envs}: must be at most {MOST_ENVS:,}")
        require(self.threads <= MOST_THREADS, f"threads = {self.threads}: must be at most {MOST_THREADS:,}")
        require_sense(self)
        require(
            self.env != "" and not self.env.endswith(":"),
            f"env = {self.env!r}: must be an id such as CartPole-v1 or minatar:Breakout",
        )
        require(
            self.num_envs >= 1 and self.num_steps >= 1,
            f"num-envs = {self.num_envs}, num-steps = {self.num_steps}: both must be at least 1",
        )
        require(
            self.envs_per_rank is None or self.envs_per_rank >= 1,
            f"envs-per-rank = {self.envs_per_rank}: must be at least 1 or None",
        )
        require(self.total_env_steps >= 1, f"total-env-steps = {self.total_env_steps}: must be at least 1")
        require(
            self.threads >= 0 and self.microbatch >= 0,
            f"threads = {self.threads}, microbatch = {self.microbatch}: both must be positive, or 0 for "
            "automatic",
        )
        require(
            self.precision == "float32"
            or (self.dtype, self.compile) in (("float32", "auto"), ("float32", "off")),
            f"precision = {self.precision}, dtype = {self.dtype}, compile = {self.compile}: bf16 needs "
            "dtype = float32 and does not run in native code",
        )
        self._require_limit()
        self._require_collection()
        require(self.seed >= 0, f"seed = {self.seed}: must not be negative")
        rescale_rules(self.rescale)
        shortest, _ = self.step_range
        smallest = self.num_envs * shortest
        require(
            self.update.minibatches_per_epoch <= smallest,
            f"update.minibatches-per-epoch = {self.update.minibatches_per_epoch} is more than the "
            f"{self.num_envs} × {shortest} = {smallest} samples of an iteration",
        )
        require(
            self.controller.kind != "noise_scale" or self.update.noise_scale_every > 0,
            "controller.kind = noise_scale needs update.noise-scale-every above 0 to measure it",
        )

    def _require_limit(self) -> None:
        limit = self.minibatch_limit
        if limit is None:
            return
        if limit != "noise-scale":
            require(limit >= 1, f"minibatch-limit = {limit}: must be at least 1")
            return
        require(
            self.update.noise_scale_every > 0,
            "minibatch-limit = noise-scale needs update.noise-scale-every above 0 to measure it",
        )
        require(
            self.controller.kind == "fixed",
            f"minibatch-limit = noise-scale and controller.kind = {self.controller.kind} both change the "
            "minibatch within a run: use one of them; a number as the limit works with every controller",
        )

    def _require_collection(self) -> None:
        on_ray = self.collection is not None and self.collection.engine == "ray"
        require(
            self.ray_address is None or on_ray,
            f"ray-address = {self.ray_address} needs actors on Ray, but actors = {self.actors}",
        )
        require(self.actor_timeout > 0, f"actor-timeout = {self.actor_timeout}: must be positive")

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
        return self.controller.compensate == "all" or self.minibatch_limit == "noise-scale"

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

    def refuse_named_num_envs(self) -> None:
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

    @property
    def complete_controller(self) -> CompleteController:
        """The controller with the defaults of its kind, around the tuned rollout length."""
        return self.controller.completed(self.tuned_batch().num_steps)

    @property
    def step_range(self) -> tuple[int, int]:
        """Shortest and longest rollout that the controller may choose."""
        fixed = self.controller.kind == "fixed"
        return (self.num_steps, self.num_steps) if fixed else self.complete_controller.step_range

    def refuse_controllers_but(self, *kinds: str) -> None:
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
    def fixed_on_resume(self) -> tuple[str, ...]:
        """Settings that a checkpoint depends on, in addition to those of every run."""
        return ()

    @property
    def stores_observations(self) -> bool:
        """Whether it keeps the observations of several iterations, so that a plan needs their size."""
        return False

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
        self, batch: BatchSizes, ratio: float, *, obs_bytes: int | None, largest_share: float
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
        applies. `rescales`: whether the batch differs from the tuned one and some rule follows it."""
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
