"""Configuration of PQN, PQN-L and PQN-XL."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from anybatch.config.groups import ObsKind, OptimizerConfig
from anybatch.config.planned import Plan
from anybatch.config.require import (
    Group,
    LayerWidth,
    NonNegativeInt,
    Part,
    PositiveFloat,
    PositiveInt,
    Share,
    require,
)
from anybatch.config.run import RunConfig
from anybatch.config.tunable import (
    ABOVE_0,
    BELOW_1,
    DISCOUNT,
    LEARNING_RATE,
    MINIBATCHES_PER_EPOCH,
    Dimension,
)
from anybatch.text import counted


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(Group, group="objective"):
    """Targets and loss of the action values."""

    discount: Share = 0.99
    """Discount γ."""
    q_lambda: Share = 0.65
    """λ of the Q(λ) targets: 0 looks one step ahead, 1 until the end of the rollout or episode."""
    loss_coefficient: PositiveFloat = 1.0
    """Weight of the squared error: 1 in CleanRL and the code of Adaptive Batch Scaling, 0.5 in the original
    PQN code. With Adam and RAdam it affects only gradient clipping, since their steps do not depend on the
    scale of the loss."""
    reward_scale: PositiveFloat = 1.0
    """Factor on the rewards used for learning; statistics still count the score."""


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig(Group, group="exploration"):
    """Probability ε of a random action instead of the best one."""

    start: Share = 1.0
    """ε at the first env step."""
    end: Share = 0.001
    """ε after `fraction` of the run."""
    fraction: Part = 0.1
    """Share of total-env-steps over which ε falls linearly. If a resume changes either, ε continues from its
    current value to `end`."""


@dataclass(frozen=True, kw_only=True)
class QNetworkConfig(Group, group="network"):
    """The network of action values. Layers are normalized before every activation (arXiv:2407.04811)."""

    encoder: Literal["auto", "mlp", "nature", "minatar"] = "auto"
    """auto: mlp for vectors, minatar for 0/1 planes, nature for images."""
    factory: str | None = None
    """Your own network, as my_package:make_network: a function from the environment's spec to a module that
    encodes observations, to which heads are added, or to a whole network. It replaces `encoder`; its
    automatic microbatch and threads are those of encoder = auto."""
    hidden_sizes: tuple[LayerWidth, ...] = (256, 256)
    """Layers of the mlp encoder; for minatar, those after its convolution."""
    channels: tuple[LayerWidth, ...] = (32, 64, 64)
    """Channels of nature's three convolutions: 64, 128, 128 in PQN-L and PQN-XL."""
    blocks: NonNegativeInt = 0
    """Residual blocks after the convolutions: 5 in PQN-L, 10 in PQN-XL; 0: dense layers."""
    block_width: PositiveInt = 512
    """Units of the residual blocks."""
    block_form: Literal["abs", "castanyer"] = "abs"
    """How the residual blocks and the output are normalized. abs: as in the code of Adaptive Batch Scaling
    (arXiv:2605.21557), which also normalizes the action values. castanyer: as in arXiv:2506.15544, which does
    not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            len(self.channels) == 3,
            f"network.channels = {self.channels}: must be three numbers, one for each convolution of nature",
        )

    def encoder_for(
        self, kind: ObsKind, image_size: tuple[int, ...] | None
    ) -> Literal["mlp", "nature", "minatar"]:
        """The encoder with `auto` resolved. Images of any size have the same one."""
        del image_size
        if self.encoder != "auto" and self.factory is None:
            return self.encoder
        encoders: dict[ObsKind, Literal["mlp", "nature", "minatar"]] = {
            "vector": "mlp",
            "planes": "minatar",
            "image": "nature",
        }
        return encoders[kind]


@dataclass(frozen=True, kw_only=True)
class PQNConfig(RunConfig):
    """PQN, PQN-L and PQN-XL."""

    algorithm: ClassVar[str] = "pqn"
    tunable: ClassVar[tuple[Dimension, ...]] = (
        LEARNING_RATE,
        DISCOUNT,
        Dimension(
            name="q-lambda", setting="objective.q_lambda", factor=4, sense=BELOW_1, coordinate="complement"
        ),
        MINIBATCHES_PER_EPOCH,
        Dimension(name="exploration-end", setting="exploration.end", factor=8, sense=ABOVE_0),
        Dimension(name="exploration-fraction", setting="exploration.fraction", factor=4, sense=ABOVE_0),
    )

    objective: QLearningConfig = field(default_factory=QLearningConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    network: QNetworkConfig = field(default_factory=QNetworkConfig)
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(name="radam", max_grad_norm=10.0)
    )

    def __post_init__(self) -> None:
        self.validate_controller("fixed", "divergence", "noise_scale", "schedule")
        super().__post_init__()
        require(
            self.update.target_kl is None,
            f"update.target-kl = {self.update.target_kl} needs a policy with probabilities, which PQN "
            "does not have",
        )

    @property
    def final_epsilon(self) -> float:
        return self.exploration.end

    @property
    def exploration_range(self) -> tuple[float, float]:
        return self.exploration.start, self.exploration.end

    @property
    def explores_until(self) -> float:
        return self.exploration.fraction * self.total_env_steps

    def plan_lines(self, plan: Plan) -> list[str]:
        if self.lag == 0 or self.collection is not None:
            return []
        lag = counted(self.lag, "iteration")
        return [f"stale data       lag of {lag}; next values are those of the current network"]
