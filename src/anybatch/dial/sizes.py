"""The batches of a run: the automatic microbatch, the ratios to the tuned batch, and the minibatch limit.

The limit: a larger batch has larger minibatches up to it, and more minibatches beyond it.
"""

import math
from dataclasses import replace

from anybatch import rules
from anybatch.config import RunConfig, TunedAt
from anybatch.config.planned import BatchSizes, MinibatchLimit, Ratios
from anybatch.dial.controllers import Signals
from anybatch.errors import CheckpointError, ConfigError
from anybatch.text import number_text

# Samples per forward and backward pass. On a CPU, memory of large activations is mapped and unmapped at every
# step, so images are processed in small parts. A fixed rule instead of a timing keeps two runs on one machine
# bitwise equal.
AUTO_MICROBATCH = {
    ("mlp", "cpu"): 4096,
    ("nature", "cpu"): 128,
    ("impala", "cpu"): 64,
    ("minatar", "cpu"): 1024,
    ("mlp", "gpu"): 65536,
    ("nature", "gpu"): 8192,
    ("impala", "gpu"): 4096,
    ("minatar", "gpu"): 65536,
}
UNKNOWN_ENCODER = "impala"
"""The encoder whose microbatches those of any other get: the smallest."""
LARGEST_RATIO = 1e6
"""No rule holds beyond this ratio, and decays would round to 1."""
LEAST_NOISE_WEIGHT = 0.4
"""Weight that the average noise scale must have before it moves the limit: that of ten measurements."""
LEAST_CHANGE = math.sqrt(2)
"""Factor by which the noise scale must differ from the current limit to move it: smaller differences are
mostly noise, and each move changes the learning rate."""
LARGEST_GROWTH = 2.0
"""Largest factor by which the limit grows in one iteration: a noise scale far above the minibatches it was
measured on is hardly more than a guess, and larger minibatches measure it better. The limit falls at once."""


def automatic_microbatch(encoder: str, device: str) -> int:
    """The fixed rule behind `--microbatch 0`."""
    place = "cpu" if device == "cpu" else "gpu"
    return AUTO_MICROBATCH.get((encoder, place), AUTO_MICROBATCH[UNKNOWN_ENCODER, place])


def noise_part(encoder: str) -> int:
    """Most samples in each of the parts of a minibatch that its noise scale is measured by.

    Neither the microbatch nor the device decides it: they must not change what a run measures.
    """
    return automatic_microbatch(encoder, "cpu")


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


def refuse_limit_below(tuned_at: TunedAt, config: RunConfig) -> None:
    """Refuse a limit below the tuned minibatch: it would change the hyperparameters at the tuned batch."""
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
    scale = rules.noise_scale(trace, signal)
    if math.isnan(scale):
        return limit.samples
    target = min(max(tuned, min(scale, unlimited)), LARGEST_GROWTH * limit.samples)
    is_far = max(target / limit.samples, limit.samples / target) >= LEAST_CHANGE
    return target if is_far else limit.samples
