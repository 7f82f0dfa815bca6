"""The limit of the minibatch: up to it a larger batch has larger minibatches, beyond it more of them."""

import math
from dataclasses import dataclass

from anybatch.batch.controllers import Signals
from anybatch.batch.sizes import BatchSizes
from anybatch.config import RunConfig, TunedAt
from anybatch.equations.noise_scale import noise_scale
from anybatch.errors import CheckpointError, ConfigError

LEAST_NOISE_WEIGHT = 0.4
"""Of the average of noise scales before it moves the limit: that of ten measurements."""
LEAST_CHANGE = math.sqrt(2)
"""Factor by which the noise scale must differ from the limit in force to move it: less is mostly noise, and
each move is a new learning rate."""
LARGEST_GROWTH = 2.0
"""Factor by which the limit grows at most after one iteration: a noise scale far above the minibatches that
it was measured on is hardly more than a guess, and larger ones measure it better. It falls at once."""


@dataclass(frozen=True, kw_only=True)
class MinibatchLimit:
    """The limit in force, and what it limits."""

    samples: float
    measured: bool
    """Whether it follows the noise scale that the run measures; else it is a number of the config."""
    ratio: float
    """Limit ÷ minibatch tuned at."""
    reached: bool
    """Whether the minibatch would exceed the limit, so that there are more minibatches instead."""
    holds_numbers: bool
    """Whether the numbers that follow the minibatch are those of the limit. They may belong to another batch
    than the one in force where a controller changes it without compensation."""


def refuse_limit_below(tuned_at: TunedAt, config: RunConfig) -> None:
    """Refuse a limit below the minibatch tuned at: it would change the numbers at the batch tuned at."""
    limit = config.minibatch_limit
    if isinstance(limit, int) and limit < tuned_at.minibatch:
        raise ConfigError(
            f"minibatch-limit = {limit:,} is below the minibatch of {tuned_at.minibatch:,.6g} samples that "
            "the numbers were tuned at; --update.minibatches-per-epoch makes minibatches smaller"
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

    `measured` is the limit that its noise scale has set. Until that is known, the limit is the minibatch
    tuned at: there the numbers are known to hold.
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
    """The measured limit of a checkpoint, None if it has none."""
    if saved is None:
        return None
    if not isinstance(saved, float) or not math.isfinite(saved) or saved <= 0:
        raise CheckpointError(f"the limit of its minibatch is {saved!r}, not a positive number")
    return saved


def moved_limit(limit: MinibatchLimit, signals: Signals, *, tuned: float, unlimited: float) -> float:
    """The limit after the signals of an iteration: the noise scale, once it differs enough.

    It lies between the minibatch `tuned` at and the `unlimited` one of this run, and grows step by step.
    Noise that hides the signal asks for the largest minibatch there is.
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
