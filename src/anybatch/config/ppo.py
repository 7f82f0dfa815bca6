"""Configuration of PPO, decoupled PPO and PPO-EWMA."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from anybatch.config.groups import DelayConfig, NetworkConfig, NormalizeConfig
from anybatch.config.require import require
from anybatch.config.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Objective of the policy and the value function."""

    discount: float = 0.99
    """Discount γ."""
    gae_lambda: float = 0.95
    """λ of the generalized advantage estimate."""
    clip: float | None = 0.2
    """ε of the clipped objective; None turns clipping off."""
    kl_penalty: float = 0.0
    """Coefficient of the KL divergence from the proximal policy."""
    kl: Literal["sampled", "exact"] = "sampled"
    """sampled: ½(log ratio)² on the sampled actions, as in the paper's code. exact: the exact divergence."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the squared error of the value. CleanRL's vf_coef applies to half of it: its 0.5 is 0.25
    here."""
    value_clip: float | None = None
    """Clip value changes to this range around the value at collection time (CleanRL); None: no clipping."""
    max_importance: float = 100.0
    """Cap on π/π_behavior; the gradient still flows through capped samples."""
    advantage_normalization: Literal["iteration", "minibatch", "none"] = "iteration"
    """iteration: once, over the whole iteration batch. minibatch: within each minibatch (CleanRL, SB3), for
    which there is no rescaling rule."""
    advantage_decay: float = 0.0
    """Decay of the advantage moments from iteration to iteration; 0: only the moments of this iteration."""

    def __post_init__(self) -> None:
        require(0 <= self.discount <= 1, f"objective.discount = {self.discount}: must be in [0, 1]")
        require(0 <= self.gae_lambda <= 1, f"objective.gae-lambda = {self.gae_lambda}: must be in [0, 1]")
        require(self.clip is None or self.clip > 0, f"objective.clip = {self.clip}: must be positive or None")
        require(
            self.value_clip is None or self.value_clip > 0,
            f"objective.value-clip = {self.value_clip}: must be positive or None",
        )
        require(
            self.value_coefficient >= 0,
            f"objective.value-coefficient = {self.value_coefficient}: must not be negative",
        )
        require(self.kl_penalty >= 0, f"objective.kl-penalty = {self.kl_penalty}: must not be negative")
        require(
            self.max_importance >= 1,
            f"objective.max-importance = {self.max_importance}: must be at least 1",
        )
        require(
            0 <= self.advantage_decay < 1,
            f"objective.advantage-decay = {self.advantage_decay}: must be in [0, 1)",
        )
        require(
            self.advantage_decay == 0 or self.advantage_normalization == "iteration",
            f"objective.advantage-decay = {self.advantage_decay} needs moments kept across iterations, but "
            f"objective.advantage-normalization = {self.advantage_normalization}",
        )


@dataclass(frozen=True, kw_only=True)
class ProximalConfig:
    """Policy that each update has to stay close to."""

    policy: Literal["behavior", "iteration_start", "ewma", "periodic"] = "behavior"
    """behavior: PPO. iteration_start: the policy before the iteration's first gradient step (decoupled PPO).
    ewma: an average of recent weights (PPO-EWMA). periodic: a copy of the weights, taken every copy-every
    gradient steps."""
    ewma_decay: float = 8 / 9
    """Decay of the averaged weights per policy gradient step; used only by policy = ewma."""
    copy_every: int = 17
    """Policy gradient steps from one copy of the weights to the next; used only by policy = periodic. A copy
    is (n-1)/2 gradient steps old on average: 8 with the default, as old as an average with decay 8/9."""
    importance: Literal["behavior", "recent"] = "behavior"
    """Policy that importance weights divide by. behavior: the one that acted. recent: the one at the start of
    the iteration, which is wrong for stale data and is available to show that."""

    def __post_init__(self) -> None:
        require(
            0 <= self.ewma_decay < 1,
            f"proximal.ewma-decay = {self.ewma_decay}: must be in [0, 1)",
        )
        require(self.copy_every >= 1, f"proximal.copy-every = {self.copy_every}: must be at least 1")
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

    proximal: ProximalConfig = field(default_factory=ProximalConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    staleness: StalenessConfig = field(default_factory=StalenessConfig)

    def __post_init__(self) -> None:
        self.refuse_controllers_but("fixed", "kl", "noise_scale", "schedule")
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
