"""The minibatch limit: a larger batch has larger minibatches up to it, and more minibatches beyond it."""

import math
from dataclasses import dataclass

from anybatch.batch.controllers import Signals
from anybatch.batch.number_text import number_text
from anybatch.batch.sizes import BatchSizes
from anybatch.config import RunConfig, TunedAt
from anybatch.equations.noise_scale import noise_scale
from anybatch.errors import CheckpointError, ConfigError

LEAST_NOISE_WEIGHT = 0.4
"""Weight that the average noise scale must have before it moves the limit: that of ten measurements."""
LEAST_CHANGE = math.sqrt(2)
"""Factor by which the noise scale must differ from the current limit to move it: smaller differences are
mostly noise, and each move changes the learning rate."""
LARGEST_GROWTH = 2.0
"""Largest factor by which the limit grows in one iteration: a noise scale far above the minibatches it was
measured on is hardly more than a guess, and larger minibatches measure it better. The limit falls at once."""


@dataclass(frozen=True, kw_only=True)
class MinibatchLimit:
    """The current limit and its effect."""

    samples: float
    measured: bool
    """Whether it follows the measured noise scale; otherwise it is a number from the config."""
    ratio: float
    """Limit ÷ tuned minibatch."""
    reached: bool
    """Whether the minibatch would exceed the limit, so that there are more minibatches instead."""
    holds_numbers: bool
    """Whether the numbers that follow the minibatch are those of the limit. If a controller changes the batch
    without compensation, they may refer to another batch than the current one."""


def refuse_limit_below(tuned_at: TunedAt, config: RunConfig) -> None:
    """Refuse a limit below the tuned minibatch: it would change the numbers at the tuned batch."""
    limit = config.minibatch_limit
    if isinstance(limit, int) and limit < tuned_at.minibatch:
        raise ConfigError(
            f"minibatch-limit = {limit:,} is below the tuned minibatch of "
            f"{number_text(tuned_at.minibatch, 6)} samples; --update.minibatches-per-epoch makes minibatches "
            "smaller"
        )


def limit_of(
    config: RunConfig,
    tuned_at: TunedAt,
    *,
    batch: BatchSizes,
    followed: BatchSizes,
    measured: float | None,
) -> MinibatchLimit | None:
    """The limit of a run with this `batch`, whose numbers are those of the batch `followed`.

    `measured` is the limit set by its noise scale. Until that is known, the limit is the tuned minibatch, for
    which the numbers are known to work.
    """
    asked = config.minibatch_limit
    if asked is None:
        return None
    refuse_limit_below(tuned_at, config)
    samples = max(measured or 0.0, tuned_at.minibatch) if asked == "noise-scale" else float(asked)
    return MinibatchLimit(
        samples=samples,
        measured=asked == "noise-scale",
        ratio=samples / tuned_at.minibatch,
        reached=batch.within(samples) != batch,
        holds_numbers=followed.within(samples) != followed,
    )


def usable_limit(saved: object) -> float | None:
    """The measured limit in a checkpoint, None if it has none."""
    if saved is None:
        return None
    if not isinstance(saved, float) or not math.isfinite(saved) or saved <= 0:
        raise CheckpointError(f"its minibatch limit is {saved!r}, not a positive number")
    return saved


def moved_limit(limit: MinibatchLimit, signals: Signals, *, tuned: float, unlimited: float) -> float:
    """The limit after the signals of an iteration: the noise scale, once it differs enough.

    It lies between the `tuned` minibatch and the `unlimited` one of this run, and grows step by step. If
    noise hides the signal, the largest minibatch is used.
    """
    trace, signal, weight = signals.noise_trace, signals.noise_signal, signals.noise_weight
    if trace is None or signal is None or weight < LEAST_NOISE_WEIGHT:
        return limit.samples
    scale = noise_scale(trace, signal)
    if math.isnan(scale):
        return limit.samples
    target = min(max(tuned, min(scale, unlimited)), LARGEST_GROWTH * limit.samples)
    is_far = max(target / limit.samples, limit.samples / target) >= LEAST_CHANGE
    return target if is_far else limit.samples
