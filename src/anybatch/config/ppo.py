"""Configuration of PPO, decoupled PPO and PPO-EWMA."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from anybatch import rules
from anybatch.config.groups import Batch, DelayConfig, NetworkConfig, NormalizeConfig
from anybatch.config.planned import (
    BatchSizes,
    Hyperparameters,
    Meaning,
    Plan,
    PlanRow,
    Ratios,
    StalePlan,
    divided_by,
    ratio_text,
    rescale_rules,
)
from anybatch.config.require import (
    AT_LEAST_1,
    Decay,
    Group,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Share,
    require,
)
from anybatch.config.run import RunConfig
from anybatch.config.tunable import (
    ABOVE_0,
    BELOW_1,
    COUNT,
    DISCOUNT,
    LEARNING_RATE,
    MINIBATCHES_PER_EPOCH,
    Dimension,
)
from anybatch.text import counted, number_text


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(Group, group="objective"):
    """Objective of the policy and the value function."""

    discount: Share = 0.99
    """Discount γ."""
    gae_lambda: Share = 0.95
    """λ of the generalized advantage estimate."""
    clip: PositiveFloat | None = 0.2
    """ε of the clipped objective; None turns clipping off."""
    kl_penalty: NonNegativeFloat = 0.0
    """Coefficient of the KL divergence from the proximal policy."""
    kl: Literal["sampled", "exact"] = "sampled"
    """sampled: ½(log ratio)² on the sampled actions, as in the paper's code. exact: the exact divergence."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: NonNegativeFloat = 0.5
    """Weight of the squared error of the value. CleanRL's vf_coef applies to half of it: its 0.5 is 0.25
    here."""
    value_clip: PositiveFloat | None = None
    """Clip value changes to this range around the value at collection time (CleanRL); None: no clipping."""
    max_importance: Annotated[float, AT_LEAST_1] = 100.0
    """Cap on π/π_behavior; the gradient still flows through capped samples."""
    advantage_normalization: Literal["iteration", "minibatch", "none"] = "iteration"
    """iteration: once, over the whole iteration batch. minibatch: within each minibatch (CleanRL, SB3), for
    which there is no rescaling rule."""
    advantage_decay: Decay = 0.0
    """Decay of the advantage moments from iteration to iteration; 0: only the moments of this iteration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.advantage_decay == 0 or self.advantage_normalization == "iteration",
            f"objective.advantage-decay = {self.advantage_decay} needs moments kept across iterations, but "
            f"objective.advantage-normalization = {self.advantage_normalization}",
        )


@dataclass(frozen=True, kw_only=True)
class ProximalConfig(Group, group="proximal"):
    """Policy that each update has to stay close to."""

    policy: Literal["behavior", "iteration_start", "ewma", "periodic"] = "behavior"
    """behavior: PPO. iteration_start: the policy before the iteration's first gradient step (decoupled PPO).
    ewma: an average of recent weights (PPO-EWMA). periodic: a copy of the weights, taken every copy-every
    gradient steps."""
    ewma_decay: Decay = 8 / 9
    """Decay of the averaged weights per policy gradient step; used only by policy = ewma."""
    copy_every: PositiveInt = 17
    """Policy gradient steps from one copy of the weights to the next; used only by policy = periodic. A copy
    is (n-1)/2 gradient steps old on average: 8 with the default, as old as an average with decay 8/9."""
    importance: Literal["behavior", "recent"] = "behavior"
    """Policy that importance weights divide by. behavior: the one that acted. recent: the one at the start of
    the iteration, which is wrong for stale data and is available to show that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.importance == "behavior" or self.policy == "iteration_start",
            f"proximal.importance = {self.importance} needs proximal.policy = iteration_start, "
            f"not {self.policy}",
        )


@dataclass(frozen=True, kw_only=True)
class StalenessConfig(DelayConfig):
    """Age of the data when it is trained on, and corrections for it."""

    scale_learning_rate: bool = False
    """Multiply the learning rate of each iteration on stale data by √(effective samples ÷ samples) of its
    importance weights, (Σw)²/Σw² effective samples (arXiv:2602.17616)."""
    proximal_age: Literal["tuned", "half_lag"] = "tuned"
    """half_lag: on stale data, the proximal average or periodic copy is half as old as the data, in gradient
    steps, instead of the age given by ewma-decay or copy-every (arXiv:2605.12070)."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(RunConfig):
    """PPO, decoupled PPO and PPO-EWMA."""

    algorithm: ClassVar[str] = "ppo"
    tunable: ClassVar[tuple[Dimension, ...]] = (
        LEARNING_RATE,
        Dimension(
            name="entropy-coefficient", setting="objective.entropy_coefficient", factor=10, sense=ABOVE_0
        ),
        DISCOUNT,
        Dimension(
            name="gae-lambda",
            setting="objective.gae_lambda",
            factor=4,
            sense=BELOW_1,
            coordinate="complement",
        ),
        Dimension(name="clip", setting="objective.clip", factor=2, sense=ABOVE_0),
        Dimension(
            name="proximal-center-of-mass",
            setting="proximal.ewma_decay",
            factor=4,
            sense="above 0 and at most 1e+06",
            largest=1e6,
            is_decay=True,
            needs=("proximal.policy", "ewma"),
        ),
        Dimension(
            name="proximal-copy-every",
            setting="proximal.copy_every",
            factor=4,
            sense=COUNT,
            largest=1e6,
            whole=True,
            needs=("proximal.policy", "periodic"),
        ),
        MINIBATCHES_PER_EPOCH,
    )

    proximal: ProximalConfig = field(default_factory=ProximalConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    staleness: StalenessConfig = field(default_factory=StalenessConfig)

    def __post_init__(self) -> None:
        self.validate_controller("fixed", "kl", "noise_scale", "schedule")
        super().__post_init__()
        require(
            not self.staleness.scale_learning_rate or self.proximal.importance == "behavior",
            f"staleness.scale-learning-rate uses importance weights, which proximal.importance = "
            f"{self.proximal.importance} sets to 1",
        )
        require(
            self.staleness.proximal_age == "tuned" or self.proximal.policy in ("ewma", "periodic"),
            f"staleness.proximal-age = {self.staleness.proximal_age} needs proximal.policy = ewma or "
            f"periodic, not {self.proximal.policy}, whose age cannot be set",
        )
        actors = self.collection.actors if self.collection is not None else 1
        require(
            self.normalize.observations == "none" or actors == 1,
            f"normalize.observations = {self.normalize.observations} keeps statistics that {actors} actors "
            "cannot share: collect in one process with --overlap or --actors local:1, or use "
            "--normalize.observations none",
        )

    def on_ranks(self, ranks: int) -> Self:
        require(
            ranks == 1 or self.normalize.observations != "step",
            f"normalize.observations = step needs all environments in one process, and there are {ranks} "
            "ranks: use --normalize.observations iteration, whose statistics change between iterations",
        )
        require(
            ranks == 1 or self.normalize.observations == "none" or self.collection is None,
            f"normalize.observations = {self.normalize.observations} keeps statistics that the actors of "
            f"{ranks} ranks cannot share: use --normalize.observations none, or collect without actors",
        )
        return super().on_ranks(ranks)

    @property
    def title(self) -> str:
        return super().title + ("-EWMA" if self.proximal.policy == "ewma" else "")

    @property
    def fixed_on_resume(self) -> tuple[str, ...]:
        return ("normalize.observations", "normalize.rewards")

    @property
    def clips_ratios(self) -> bool:
        return self.objective.clip is not None

    @property
    def keeps_advantage_moments(self) -> bool:
        return self.objective.advantage_normalization == "iteration"

    @property
    def proximal_age_setting(self) -> str | None:
        settings = {"ewma": "proximal.ewma-decay", "periodic": "proximal.copy-every"}
        return settings.get(self.proximal.policy)

    @property
    def proximal_follows_lag(self) -> bool:
        return self.staleness.proximal_age == "half_lag" and self.lag > 0

    def decoupled(self) -> Self | None:
        """With the decoupled objective, unless the proximal policy is not that of PPO already."""
        if self.proximal.policy != "behavior":
            return None
        return replace(self, proximal=replace(self.proximal, policy="iteration_start"))

    def rescaled(self, ratios: Ratios, stale: StalePlan | None) -> Hyperparameters:
        asked, proximal = rescale_rules(self.rescale), self.proximal
        per_gradient_step = ratios.env_steps_per_gradient_step
        decay = rules.rescaled_proximal_decay(
            proximal.ewma_decay, asked.ratio("proximal-ewma", per_gradient_step)
        )
        copy_every = rules.rescaled_copy_every(
            proximal.copy_every, asked.ratio("proximal-copy", per_gradient_step), rounded=True
        )
        if stale is not None and self.proximal_follows_lag:
            decay, copy_every = stale.ewma_decay, stale.copy_every
        return replace(
            super().rescaled(ratios, stale),
            proximal_decay=decay,
            advantage_decay=rules.rescaled_advantage_decay(
                self.objective.advantage_decay,
                asked.ratio("advantage-moments", ratios.iteration_batch),
                floor=True,
            ),
            proximal_copy_every=int(copy_every) if proximal.policy == "periodic" else 0,
        )

    def plan_stale_data(self, batch: BatchSizes) -> StalePlan | None:
        if self.lag == 0:
            return None
        lag = self.lag * batch.gradient_steps_per_iteration
        half = rules.half_lag_age(lag)
        return StalePlan(
            iterations=self.lag,
            gradient_steps=lag,
            half_lag=half,
            ewma_decay=rules.half_lag_decay(lag),
            copy_every=int(rules.copy_every_from_mean_age(half)),
        )

    @property
    def learning_rate_factor(self) -> str:
        scales = self.lag > 0 and self.staleness.scale_learning_rate
        return "√(effective samples ÷ samples)" if scales else ""

    def plan_rows(self, plan: Plan) -> list[PlanRow]:
        rows: list[PlanRow] = []
        if self.proximal.policy in ("ewma", "periodic"):
            rows.append(self._proximal_row(plan))
        if self.objective.advantage_normalization == "iteration":
            tuned, run = self.objective.advantage_decay, plan.hyperparameters.advantage_decay
            rows.append(
                PlanRow.by_rule(
                    "advantage-moments",
                    rescale_rules(self.rescale),
                    number="advantage-statistics EWMA decay",
                    tuned_at=f"{tuned:.6g}",
                    this_run=f"{run:.6g}",
                    rule=f"{divided_by(plan.ratios.iteration_batch)} (iteration batch), at least 1",
                    regime="iteration batch",
                    meaning=Meaning(
                        name="effective window, iterations",
                        tuned_at=number_text(rules.effective_sample_size(tuned), 4),
                        this_run=number_text(rules.effective_sample_size(run), 4),
                    ),
                )
            )
        return [*rows, self._age_row(plan)]

    def _age_row(self, plan: Plan) -> PlanRow:
        """The row of the proximal policy's age, which the rules keep where a setting decides it."""
        run_numbers = plan.hyperparameters
        tuned = self._proximal_age(self.proximal.ewma_decay, self.proximal.copy_every, plan.tuned_at)
        run = self._proximal_age(run_numbers.proximal_decay, run_numbers.proximal_copy_every, plan.batch)
        has_setting = self.proximal.policy in ("ewma", "periodic")
        most = "" if has_setting else "up to "
        return PlanRow(
            number="age of proximal policy, env steps",
            tuned_at=f"{most}{number_text(tuned, 6)}",
            this_run=f"{most}{number_text(run, 6)}",
            rule="mean age × env steps per gradient step"
            if has_setting
            else f"× {ratio_text(run / tuned)} (iteration batch), no setting for it",
            regime="batch",
        )

    def _proximal_age(self, decay: float, copy_every: int, batch: Batch) -> float:
        """Mean age in env steps of a proximal policy with a setting for it; otherwise the largest age, at the
        end of an iteration."""
        match self.proximal.policy:
            case "ewma":
                return rules.center_of_mass(decay) * batch.env_steps_per_gradient_step
            case "periodic":
                return rules.mean_copy_age(copy_every) * batch.env_steps_per_gradient_step
            case "behavior":
                return batch.iteration_batch * (1 + self.lag)
            case "iteration_start":
                return batch.iteration_batch

    def _proximal_row(self, plan: Plan) -> PlanRow:
        """The row of the number that sets the age of the proximal policy."""
        run, proximal = plan.hyperparameters, self.proximal
        if proximal.policy == "periodic":
            name, number, meaning = "proximal-copy", "proximal copy every, gradient steps", "mean age"
            values = [f"{every:,}" for every in (proximal.copy_every, run.proximal_copy_every)]
            ages = [rules.mean_copy_age(every) for every in (proximal.copy_every, run.proximal_copy_every)]
        else:
            name, number, meaning = "proximal-ewma", "proximal EWMA decay", "center of mass"
            values = [f"{decay:.6g}" for decay in (proximal.ewma_decay, run.proximal_decay)]
            ages = [rules.center_of_mass(decay) for decay in (proximal.ewma_decay, run.proximal_decay)]
        tuned_age, run_age = (number_text(age, 4) for age in ages)
        row = PlanRow.by_rule(
            name,
            rescale_rules(self.rescale),
            number=number,
            tuned_at=values[0],
            this_run=values[1],
            rule=f"{divided_by(plan.ratios.env_steps_per_gradient_step)} (env steps per gradient step)",
            regime=plan.minibatch_regime,
            meaning=Meaning(name=f"{meaning}, gradient steps", tuned_at=tuned_age, this_run=run_age),
        )
        if plan.stale is not None and self.proximal_follows_lag:
            rule = f"half of the lag of {plan.stale.gradient_steps:,} gradient steps, not as tuned"
            return replace(row, rule=rule, regime="lag")
        return row

    def plan_lines(self, plan: Plan) -> list[str]:
        """The lag of stale data, and what the two options for it choose, or would choose."""
        stale = plan.stale
        if stale is None:
            return []
        chosen = (
            f"a proximal copy every {stale.copy_every:,}"
            if self.proximal.policy == "periodic"
            else f"a proximal EWMA decay of {stale.ewma_decay:.6g} "
            f"(center of mass {number_text(stale.half_lag, 4)})"
        )
        needed = "" if self.proximal.policy in ("ewma", "periodic") else " with --proximal.policy ewma"
        age = (
            f"half of it gives {chosen}"
            if self.proximal_follows_lag
            else f"--staleness.proximal-age half_lag{needed} would give {chosen}"
        )
        rate = (
            "the learning rate is multiplied"
            if self.staleness.scale_learning_rate
            else "--staleness.scale-learning-rate would multiply the learning rate"
        )
        iterations, lag = stale.iterations, stale.gradient_steps
        return [
            f"stale data       {counted(iterations, 'iteration')} × {lag // iterations:,} = lag of "
            f"{counted(lag, 'gradient step')}: {age}; {rate} by √(effective samples ÷ samples) of each "
            "iteration"
        ]

    def plan_warnings(self, plan: Plan, *, rescales: bool) -> list[tuple[bool, str]]:
        run, normalization = plan.hyperparameters, self.objective.advantage_normalization
        center = rules.center_of_mass(run.proximal_decay)
        copy_age = rules.mean_copy_age(run.proximal_copy_every)
        one_sample = self.num_envs * self.num_steps == 1 and run.advantage_decay == 0
        times, policy = plan.ratios.iteration_batch, self.proximal.policy
        is_another_batch = bool(rescale_rules(self.rescale)) and times != 1
        return [
            (
                is_another_batch and policy in ("behavior", "iteration_start"),
                f"With proximal.policy = {policy}, the age of the proximal policy in env steps follows the "
                f"iteration batch, here × {ratio_text(times)}, and no setting corrects that; ewma keeps it.",
            ),
            (
                rescales and normalization == "minibatch",
                "objective.advantage-normalization = minibatch depends on the minibatch in a way that no "
                "rule corrects; iteration does not.",
            ),
            (
                rescales and self.update.target_kl is not None,
                f"update.target-kl = {self.update.target_kl} ends iterations early, by an amount that "
                "depends on the batch.",
            ),
            (
                rescales and policy == "ewma" and round(center, 9) < 1,
                f"The proximal EWMA's center of mass is {center:.3g} gradient steps: below 1 it hardly holds "
                "the update back.",
            ),
            (
                rescales and policy == "periodic" and copy_age < 1,
                f"The proximal copy is {copy_age:.3g} gradient steps old on average: below 1 it hardly holds "
                "the update back.",
            ),
            (
                one_sample and normalization == "iteration",
                "An iteration of one sample has a normalized advantage of 0: objective.advantage-decay above "
                "0 compares it with earlier ones.",
            ),
        ]

    def stated(self, plan: Plan) -> dict[str, Any]:
        run, found = plan.hyperparameters, super().stated(plan)
        if self.objective.advantage_normalization == "iteration":
            found["objective"] = {"advantage_decay": run.advantage_decay}
        if not self.proximal_follows_lag and self.proximal.policy == "ewma":
            found["proximal"] = {"ewma_decay": run.proximal_decay}
        if not self.proximal_follows_lag and self.proximal.policy == "periodic":
            found["proximal"] = {"copy_every": run.proximal_copy_every}
        return found

    @property
    def plan_settings(self) -> dict[str, Any]:
        return {
            "proximal.policy": self.proximal.policy,
            "proximal.ewma-decay": self.proximal.ewma_decay,
            "proximal.copy-every": self.proximal.copy_every,
            "objective.advantage-normalization": self.objective.advantage_normalization,
            "objective.advantage-decay": self.objective.advantage_decay,
        }
