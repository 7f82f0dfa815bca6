"""Configuration groups that all algorithms share. A field's docstring is its command-line help."""

from dataclasses import dataclass, field
from typing import Literal

from anybatch.config.require import (
    Decay,
    Group,
    LayerWidth,
    NonNegativeFloat,
    NonNegativeInt,
    NumEnvs,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    Share,
    require,
)

ObsKind = Literal["vector", "image", "planes"]
"""How a network interprets observations: as numbers, as pixels, or as planes of 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class EnvConfig(Group, group="env-config"):
    """How the environment is built and how its episodes are treated."""

    engine: Literal["auto", "envpool", "gymnasium", "minatar", "native", "toy"] = "auto"
    """Engine of the environment. auto: native code for MinAtar, and for classic control if there is a C
    compiler; otherwise EnvPool if it has the id, else Gymnasium. minatar: native code, for MinAtar games
    named without a prefix."""
    max_episode_steps: PositiveInt | None = None
    """Step limit of an episode. None: the environment's own limit."""
    time_limit: Literal["bootstrap", "terminal"] = "bootstrap"
    """bootstrap: an episode cut by its step limit is bootstrapped from its last observation. terminal: it
    counts as terminated."""
    episodic_life: bool = False
    """Atari: a lost life ends the episode for learning; statistics still count whole games."""
    reward_clip: bool = False
    """Atari: learn from the sign of the reward; statistics still count the score."""
    sticky: Decay = 0.0
    """Atari and MinAtar: probability that the last action is repeated instead of taking the new one."""
    actions: Literal["clipped", "scaled"] = "clipped"
    """Continuous actions. clipped: they are clipped to the environment's bounds. scaled: they are clipped to
    [-1, 1] and mapped to the bounds, so that a new policy reaches all of them; a dimension with an infinite
    bound is only clipped. Either way, learning uses the actions as sampled."""
    engine_threads: NumThreads = 0
    """Threads of the EnvPool engine; 0: one for each core, at most one for each env."""
    vectorization: Literal["sync", "async"] = "sync"
    """Gymnasium: sync steps the envs one after another in this process. async steps each in its own process,
    which pays off if a step takes about a millisecond or longer and there are idle cores; for faster steps,
    transferring the data costs more than it gains."""
    log_infos: tuple[str, ...] = ()
    """Gymnasium: numbers in the infos of steps, such as x_velocity; custom/x_velocity in the metrics is then
    the mean of an iteration, over the environments of the first rank."""
    options: dict[str, str] = field(default_factory=dict[str, str])
    """Further options passed unchanged to the engine, such as num_levels 200 start_level 0 for Procgen
    (numbers are recognized). Options of a preset or a recorded run that are not named here are kept."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Group, group="network"):
    """The policy and value networks."""

    encoder: Literal["auto", "mlp", "nature", "impala", "minatar"] = "auto"
    """auto: mlp for vectors, nature for 84×84 images, impala for other images, minatar for 0/1 planes."""
    heads: Literal["shared", "detached", "dual"] = "dual"
    """shared: one encoder for policy and value. detached: one, but the value loss does not train it.
    dual: two encoders."""
    factory: str | None = None
    """Your own network, as my_package:make_network: a function from the environment's spec to a module that
    encodes observations, to which heads are added, or to a whole network. It replaces `encoder`; its
    automatic microbatch and threads are those of encoder = auto."""
    hidden_sizes: tuple[LayerWidth, ...] = (64, 64)
    """Layers of the mlp encoder."""
    impala_channels: tuple[LayerWidth, ...] = (16, 32, 32)
    """Channels of each stack of the impala encoder."""
    impala_features: LayerWidth = 256
    """Width of the impala encoder's last layer."""
    impala_fold: LayerWidth = 1
    """Side of the square of pixels that is folded into channels before impala's first convolution: 2 gives
    four times the channels at half the height and width, and 0.29 of the arithmetic with the default
    channels."""
    log_std: float = 0.0
    """Continuous actions: initial logarithm of the standard deviation, learned for each action dimension."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.impala_channels != (), "network.impala-channels = (): must have one number for each stack"
        )

    def encoder_for(
        self, kind: ObsKind, image_size: tuple[int, ...] | None
    ) -> Literal["mlp", "nature", "impala", "minatar"]:
        """The encoder with `auto` resolved; `image_size` is the height and width of images."""
        if self.encoder != "auto" and self.factory is None:
            return self.encoder
        if kind == "image":
            return "nature" if image_size == (84, 84) else "impala"
        return "mlp" if kind == "vector" else "minatar"


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Group, group="optimizer"):
    """The optimizer. Its numbers refer to the batch they were tuned at."""

    name: Literal["adam", "radam", "sgd"] = "adam"
    """adam, radam: the learning rate follows the square root of the minibatch. sgd: it is proportional to the
    minibatch."""
    learning_rate: PositiveFloat = 2.5e-4
    """Learning rate at the minibatch it was tuned at."""
    anneal: Literal["none", "linear"] = "none"
    """linear: the learning rate falls along a line to the share anneal-to of itself at anneal-until."""
    anneal_to: Decay = 0.0
    """Share of the learning rate that linear annealing ends at: 0.5 ends at half of it."""
    anneal_until: PositiveInt | None = None
    """Env steps at which annealing ends; it begins at the start of the run. None: total-env-steps; if a
    resume changes that, the learning rate continues from its current value to the new end, or, if it has
    reached 0, takes the value that a run of the new length has at this point."""
    beta1: Decay = 0.9
    """Decay of Adam's mean of gradients."""
    beta2: Decay = 0.999
    """Decay of Adam's mean of squared gradients."""
    eps: NonNegativeFloat = 1e-8
    """Offset of Adam's denominator."""
    max_grad_norm: PositiveFloat | None = None
    """Norm that gradients are clipped to. None: no clipping."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.anneal_to == 0 or self.anneal == "linear",
            f"optimizer.anneal-to = {self.anneal_to}: must be 0 unless optimizer.anneal = linear",
        )
        require(
            self.anneal_until is None or self.anneal == "linear",
            f"optimizer.anneal-until = {self.anneal_until}: must be None unless optimizer.anneal = linear",
        )


@dataclass(frozen=True, kw_only=True)
class UpdateConfig(Group, group="update"):
    """How an iteration batch becomes gradient steps."""

    epochs: PositiveInt = 4
    """Passes over each iteration batch."""
    minibatches_per_epoch: PositiveInt = 4
    """Gradient steps per epoch: the samples are split into this many parts, equal up to one sample."""
    minibatch_of: Literal["samples", "sequences"] = "samples"
    """samples: shuffled single samples. sequences: whole rollouts of some envs, as in the paper's code."""
    draw: Literal["random", "stratified"] = "random"
    """random: minibatches are drawn from all samples. stratified: each has about the same number of samples
    from any range of envs, so that ranks have equal work and do not wait for each other. Neither depends on
    the number of ranks."""
    target_kl: PositiveFloat | None = None
    """Sampled KL from the behavior policy beyond which an iteration stops optimizing. None: no limit."""
    target_kl_check: Literal["epoch", "minibatch"] = "epoch"
    """epoch: check the last minibatch of each epoch (CleanRL). minibatch: check before each step (SB3, whose
    target_kl is two thirds of this one)."""
    noise_scale_every: NonNegativeInt = 64
    """Iterations between two measurements of the gradient noise scale; 0: no measurements. Each costs as much
    as an epoch, or two if policy and value share an encoder."""


@dataclass(frozen=True, kw_only=True)
class DelayConfig(Group, group="staleness"):
    """Age of the data when it is trained on."""

    iterations: NonNegativeInt = 0
    """Iterations that each rollout waits before it is trained on; its env steps count then. Where data is
    collected while the learner learns, it is at least 1, and 0 means 1."""


@dataclass(frozen=True, kw_only=True)
class NormalizeConfig(Group, group="normalize"):
    """Normalization of observations and rewards by running statistics."""

    observations: Literal["none", "step", "iteration"] = "none"
    """Shift and scale vector observations by their running mean and standard deviation. step: statistics are
    updated at each step, which needs all environments in one process. iteration: they are updated after each
    iteration and are the same for any number of ranks; the first iteration uses raw observations."""
    observation_clip: PositiveFloat = 10.0
    """Largest absolute value of normalized observations."""
    rewards: Literal["none", "step", "iteration"] = "none"
    """Divide rewards by the running standard deviation of the discounted return. step: the deviation at each
    step (CleanRL, SB3). iteration: the deviation after the whole iteration (the paper's code)."""
    reward_clip: PositiveFloat = 10.0
    """Largest absolute value of normalized rewards."""
    reward_discount: Share = 0.99
    """Discount of the return whose standard deviation is used. The paper's code has 0.99 for any γ."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Group, group="evaluation"):
    """Evaluation during training, at its end, and by `anybatch evaluate`."""

    every_env_steps: NonNegativeInt = 0
    """Evaluate during training too, at the end of the first iteration beyond each multiple of this many env
    steps, and keep the policy with the best mean return as a separate checkpoint; 0: only at the end.
    Training is the same bit for bit."""
    num_envs: NumEnvs = 10
    """Env slots, each with its own seed."""
    episodes_per_env: PositiveInt = 1
    """Episodes per slot: a fixed number, so that short episodes do not count more often."""
    max_episode_steps: PositiveInt | None = 27_000
    """Decisions after which an episode is cut and counted as truncated, so that an evaluation ends even if
    the environment has no limit. The default is Atari's usual half hour of play: 108,000 frames at 4 frames
    per decision. None: no cap."""
    greedy: bool = False
    """Take the most probable action instead of sampling one."""
    protocol: Literal["lives", "released"] = "lives"
    """Atari. lives: as in training, with resets after lost lives, in which the engine presses FIRE; the score
    is unclipped and counts up to the true game over. released: life loss off, as in the released code of
    Adaptive Batch Scaling; an agent that never learned to press FIRE then stands still until the step cap."""


@dataclass(frozen=True, kw_only=True)
class RecordConfig(Group, group="record"):
    """What is written to the run folder, and when."""

    log_every: PositiveInt | None = None
    """Iterations per row of the log, which has all episodes since the row before and the losses of the last
    iteration; by default as many as make up 2,048 env steps or a hundredth of the run."""
    checkpoint_every_seconds: NonNegativeFloat = 60.0
    """Seconds after a checkpoint before the end of an iteration saves the next one."""
    checkpoint_every_iterations: NonNegativeInt = 0
    """Iterations after which a checkpoint is saved, regardless of time; 0: by time only."""
    keep_checkpoints: PositiveInt = 3
    """How many of the newest checkpoints are kept."""
    tensorboard: bool = True
    """Write TensorBoard events next to metrics.jsonl."""
    wandb: bool = False
    """Send metrics to Weights & Biases as well (needs the extra `wandb`)."""
    trackio: bool = False
    """Send metrics to Trackio as well (needs the extra `trackio`)."""


@dataclass(frozen=True, kw_only=True)
class Batch(Group):
    """The iteration batch of a run over all ranks, and its gradient steps."""

    num_envs: PositiveInt
    """Envs of the whole run."""
    num_steps: PositiveInt
    """Steps per env and iteration."""
    minibatches_per_epoch: PositiveInt
    """Gradient steps per epoch."""
    epochs: PositiveInt
    """Passes over each iteration batch."""

    @property
    def iteration_batch(self) -> int:
        """Samples collected between two optimizations, reset steps included."""
        return self.num_envs * self.num_steps

    @property
    def minibatch(self) -> float:
        """Samples behind one gradient step."""
        return self.iteration_batch / self.minibatches_per_epoch

    @property
    def gradient_steps_per_iteration(self) -> int:
        """Gradient steps between two rollouts."""
        return self.minibatches_per_epoch * self.epochs

    @property
    def env_steps_per_gradient_step(self) -> float:
        """Env steps for each gradient step: the clock of the proximal EWMA."""
        return self.iteration_batch / self.gradient_steps_per_iteration


@dataclass(frozen=True, kw_only=True)
class TunedAt(Batch, group="tuned-at"):
    """The batch at which a preset's numbers were chosen. A run's batch divided by it gives the ratios."""
