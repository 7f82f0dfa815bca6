"""The lag of stale data in gradient steps, and half of it as an age of the proximal policy."""

from dataclasses import dataclass

from anybatch.batch.sizes import BatchSizes
from anybatch.config import PPOConfig, RunConfig
from anybatch.equations import rescale, stale_data


@dataclass(frozen=True, kw_only=True)
class StalePlan:
    """The lag of waiting data, and the proximal policies whose mean age is half of it."""

    iterations: int
    gradient_steps: int
    """Gradient steps that the policy takes while a rollout waits."""
    half_lag: float
    """Half of the lag, in gradient steps."""
    ewma_decay: float
    """Decay of an average of weights with that center of mass."""
    copy_every: int
    """Gradient steps between two copies of the weights with that mean age."""


def proximal_follows_lag(config: PPOConfig) -> bool:
    """Whether the lag of the data decides the age of the proximal policy."""
    return config.staleness.proximal_age == "half_lag" and config.lag > 0


def plan_stale_data(config: RunConfig, batch: BatchSizes) -> StalePlan | None:
    """The lag of a run's data; None if the data is fresh."""
    if not isinstance(config, PPOConfig) or config.lag == 0:
        return None
    lag = config.lag * batch.gradient_steps_per_iteration
    half = stale_data.half_lag_age(lag)
    return StalePlan(
        iterations=config.lag,
        gradient_steps=lag,
        half_lag=half,
        ewma_decay=stale_data.half_lag_decay(lag),
        copy_every=int(rescale.copy_every_from_mean_age(half)),
    )
