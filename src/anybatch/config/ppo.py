"""What PPO, decoupled PPO and PPO-EWMA are told."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from anybatch.config.groups import NetworkConfig, NormalizeConfig
from anybatch.config.require import require
from anybatch.config.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is optimized."""

    discount: float = 0.99
    """γ."""
    gae_lambda: float = 0.95
    """λ of the generalized advantage estimate."""
    clip: float | None = 0.2
    """ε of the clipped objective; None turns clipping off."""
    kl_penalty: float = 0.0
    """Coefficient of the KL divergence from the proximal policy."""
    kl: Literal["sampled", "exact"] = "sampled"
    """sampled: ½(log ratio)² on the taken actions, as in the paper's code. exact: the divergence itself."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the squared error of the value. CleanRL's vf_coef weighs half of it: its 0.5 is 0.25 here."""
    value_clip: float | None = None
    """Clip value changes to this range around the value at collection time (CleanRL); None: no clipping."""
    max_importance: float = 100.0
    """Cap on π/π_behavior; the gradient still flows through capped samples."""
    advantage_normalization: Literal["iteration", "minibatch", "none"] = "iteration"
    """iteration: once, over the whole iteration batch. minibatch: within each (CleanRL, SB3); it does not
    rescale."""
    advantage_decay: float = 0.0
    """Decay of the advantage moments from iteration to iteration; 0: this iteration's only."""

    def __post_init__(self) -> None:
        require(0 <= self.discount <= 1, f"objective.discount = {self.discount}: it must be in [0, 1]")
        require(0 <= self.gae_lambda <= 1, f"objective.gae-lambda = {self.gae_lambda}: it must be in [0, 1]")
        require(
            self.clip is None or self.clip > 0, f"objective.clip = {self.clip}: a positive number or None"
        )
        require(
            self.value_clip is None or self.value_clip > 0,
            f"objective.value-clip = {self.value_clip}: a positive number or None",
        )
        require(self.kl_penalty >= 0, f"objective.kl-penalty = {self.kl_penalty}: it cannot be negative")
        require(
            self.max_importance >= 1,
            f"objective.max-importance = {self.max_importance}: at least 1 is wanted",
        )
        require(
            0 <= self.advantage_decay < 1,
            f"objective.advantage-decay = {self.advantage_decay}: it must be in [0, 1)",
        )
        require(
            self.advantage_decay == 0 or self.advantage_normalization == "iteration",
            f"objective.advantage-decay = {self.advantage_decay} needs moments kept over iterations, but "
            f"objective.advantage-normalization = {self.advantage_normalization}",
        )


@dataclass(frozen=True, kw_only=True)
class ProximalConfig:
    """Which policy the update is held near."""

    policy: Literal["behavior", "iteration_start", "ewma"] = "behavior"
    """behavior: PPO. iteration_start: the policy as it was before optimizing (decoupled PPO).
    ewma: an average of recent weights (PPO-EWMA)."""
    ewma_decay: float = 8 / 9
    """Decay of the averaged weights per policy gradient step; read by policy = ewma only."""

    importance: Literal["behavior", "recent"] = "behavior"
    """Which policy importance weights divide by. behavior: the one that acted. recent: the one at the start
    of the iteration, wrong for stale data; it is there to show that."""

    def __post_init__(self) -> None:
        require(
            0 <= self.ewma_decay < 1,
            f"proximal.ewma-decay = {self.ewma_decay}: it must be in [0, 1)",
        )
        require(
            self.importance == "behavior" or self.policy == "iteration_start",
            f"proximal.importance = {self.importance} goes with proximal.policy = iteration_start only, "
            f"not with {self.policy}",
        )


@dataclass(frozen=True, kw_only=True)
class StalenessConfig:
    """How old the data are when they are trained on."""

    iterations: int = 0
    """Each rollout waits this many iterations before it is used. All collected steps count, also while the
    queue fills."""

    def __post_init__(self) -> None:
        require(self.iterations >= 0, f"staleness.iterations = {self.iterations}: it cannot be negative")


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
