"""The numbers that depend on the batch, and how they follow from the batch they were tuned at."""

from dataclasses import dataclass, replace

from anybatch.batch.number_text import number_text
from anybatch.batch.sizes import BatchSizes
from anybatch.batch.stale import StalePlan, proximal_follows_lag
from anybatch.config import PPOConfig, RunConfig, TunedAt, rescale_rules
from anybatch.equations import rescale
from anybatch.errors import ConfigError

LARGEST_RATIO = 1e6
"""No rule holds beyond this ratio, and decays would round to 1."""


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """Nominal batches of this run ÷ those tuned at. The paper's c is the inverse."""

    minibatch: float
    env_steps_per_gradient_step: float
    iteration_batch: float

    @property
    def are_one(self) -> bool:
        """Whether the batch is the tuned one."""
        return self.minibatch == self.iteration_batch == self.env_steps_per_gradient_step == 1


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The numbers that depend on the batch."""

    learning_rate: float
    beta1: float
    beta2: float
    proximal_decay: float
    """Decay of the proximal EWMA; 0 if there is none."""
    advantage_decay: float
    """Decay of the advantage moments; 0 if there are no advantages."""
    proximal_copy_every: int = 0
    """Gradient steps between two copies of the weights as the proximal policy; 0 if there are none."""


def batch_ratios(batch: BatchSizes, tuned_at: TunedAt) -> Ratios:
    """The ratios of all batches."""
    tuned = replace(
        batch,
        num_envs=tuned_at.num_envs,
        num_steps=tuned_at.num_steps,
        minibatches_per_epoch=tuned_at.minibatches_per_epoch,
        epochs=tuned_at.epochs,
    )
    ratios = Ratios(
        minibatch=batch.minibatch / tuned.minibatch,
        env_steps_per_gradient_step=batch.env_steps_per_gradient_step / tuned.env_steps_per_gradient_step,
        iteration_batch=batch.iteration_batch / tuned.iteration_batch,
    )
    for ratio in (ratios.minibatch, ratios.env_steps_per_gradient_step, ratios.iteration_batch):
        if not 1 / LARGEST_RATIO <= ratio <= LARGEST_RATIO:
            raise ConfigError(
                f"the batch is {number_text(ratio, 3)} times the tuned one, {tuned_at}: "
                f"must be within a factor of {LARGEST_RATIO:,.0f}"
            )
    return ratios


def rescaled(config: RunConfig, ratios: Ratios, stale: StalePlan | None = None) -> Hyperparameters:
    """Each number rescaled by the batch it depends on (arXiv:2110.00641, §3.2 and §4).

    `stale` holds the age of the proximal policy if it is set by the lag of the data.
    """
    rules = rescale_rules(config.rescale)
    optimizer = config.optimizer

    def ratio(rule: str, value: float) -> float:
        return value if rule in rules else 1.0

    beta_ratio = ratio("adam-betas", ratios.minibatch)
    proximal_decay = advantage_decay = 0.0
    copy_every = 0
    if isinstance(config, PPOConfig):
        proximal_decay = rescale.rescaled_proximal_decay(
            config.proximal.ewma_decay, ratio("proximal-ewma", ratios.env_steps_per_gradient_step)
        )
        advantage_decay = rescale.rescaled_advantage_decay(
            config.objective.advantage_decay, ratio("advantage-moments", ratios.iteration_batch), floor=True
        )
        if config.proximal.policy == "periodic":
            copy_ratio = ratio("proximal-copy", ratios.env_steps_per_gradient_step)
            copy_every = int(
                rescale.rescaled_copy_every(config.proximal.copy_every, copy_ratio, rounded=True)
            )
        if stale is not None and proximal_follows_lag(config):
            proximal_decay = stale.ewma_decay
            copy_every = stale.copy_every if config.proximal.policy == "periodic" else 0
    return Hyperparameters(
        learning_rate=rescale.rescaled_learning_rate(
            optimizer.learning_rate,
            ratio("learning-rate", ratios.minibatch),
            optimizer.name,
            rules.learning_rate,
        ),
        beta1=rescale.rescaled_adam_beta(optimizer.beta1, beta_ratio),
        beta2=rescale.rescaled_adam_beta(optimizer.beta2, beta_ratio),
        proximal_decay=proximal_decay,
        advantage_decay=advantage_decay,
        proximal_copy_every=copy_every,
    )
