"""The plan of a run: its batches and every hyperparameter that follows from them. The dial.

A plan consists of numbers; `table.py` puts it into words. It is always computed from the tuned-at numbers,
never from another plan.
"""

import math
from dataclasses import replace

from anybatch import machine, rules
from anybatch.config import RunConfig, TunedAt
from anybatch.config.planned import BatchSizes, MinibatchLimit, Plan, Ratios
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
LEAST_MEASUREMENTS = 10
"""Measurements that the noise scale must be pooled over before it moves the limit."""
LEAST_CHANGE = math.sqrt(2)
"""Factor by which the noise scale must differ from the current limit to move it: smaller differences are
mostly noise, and each move changes the learning rate."""
LARGEST_GROWTH = 2.0
"""Largest factor by which the limit grows in one iteration: a noise scale far above the minibatches it was
measured on is hardly more than a guess, and larger minibatches measure it better. The limit falls at once."""


def make_plan(
    config: RunConfig,
    *,
    encoder: str,
    obs_bytes: int | None = None,
    num_steps: int | None = None,
    epochs: int | None = None,
    measured_limit: float | None = None,
) -> Plan:
    """The plan of a run.

    `encoder` determines the automatic microbatch; `obs_bytes`, if known, the memory of a phase. `num_steps`
    and `epochs` are those that a controller chose; the other numbers follow them only with compensation.
    `measured_limit` is the minibatch limit that the run's noise scale has set so far.
    """
    tuned_at, limit = config.tuned_batch(), limit_of(config, measured_limit)
    configured = configured_batch(config, encoder)
    batch = replace(
        configured, num_steps=num_steps or configured.num_steps, epochs=epochs or configured.epochs
    )
    followed = batch if config.controller.compensate == "all" else configured
    if limit is not None and limit.choice == "auto":
        # Decided once, by the config's batch: a controller then changes minibatches, not their number.
        minibatches = configured.within(limit).minibatches_per_epoch
        batch, followed = (replace(sizes, minibatches_per_epoch=minibatches) for sizes in (batch, followed))
    else:
        batch, followed = batch.within(limit), followed.within(limit)
    limit = limit and with_effect(limit, configured, batch=batch, followed=followed)
    ratios, stale = batch_ratios(followed, tuned_at), config.plan_stale_data(followed)
    return Plan(
        batch=batch,
        tuned_at=tuned_at,
        ratios=ratios,
        hyperparameters=config.rescaled(ratios, stale),
        phase=config.plan_phase(batch, ratios.iteration_batch, obs_bytes=obs_bytes, limit=limit),
        minibatch_limit=limit,
        stale=stale,
        step_range=None if config.controller.kind == "fixed" else config.step_range,
    )


def configured_batch(config: RunConfig, encoder: str) -> BatchSizes:
    """The batch as configured, with at most as many minibatches as the shortest iteration has samples."""
    samples = config.num_envs * config.step_range[0]
    return BatchSizes(
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        minibatches_per_epoch=min(config.update.minibatches_per_epoch, samples),
        epochs=config.update.epochs,
        microbatch=config.microbatch or automatic_microbatch(encoder, machine.device_name(config.device)),
    )


def automatic_microbatch(encoder: str, device: str) -> int:
    """The fixed rule behind `--microbatch 0`."""
    place = "cpu" if device == "cpu" else "gpu"
    return AUTO_MICROBATCH.get((encoder, place), AUTO_MICROBATCH[UNKNOWN_ENCODER, place])


def batch_ratios(batch: BatchSizes, tuned_at: TunedAt) -> Ratios:
    """The ratios of all batches."""
    ratios = Ratios(
        minibatch=batch.minibatch / tuned_at.minibatch,
        env_steps_per_gradient_step=batch.env_steps_per_gradient_step / tuned_at.env_steps_per_gradient_step,
        iteration_batch=batch.iteration_batch / tuned_at.iteration_batch,
    )
    for ratio in (ratios.minibatch, ratios.env_steps_per_gradient_step, ratios.iteration_batch):
        if not 1 / LARGEST_RATIO <= ratio <= LARGEST_RATIO:
            raise ConfigError(
                f"the batch is {number_text(ratio, 3)} times the tuned one, {tuned_at}: "
                f"must be within a factor of {LARGEST_RATIO:,.0f}"
            )
    return ratios


def limit_of(config: RunConfig, measured: float | None) -> MinibatchLimit | None:
    """The largest minibatch of a run; None if it has no limit.

    `measured` is the limit set by its noise scale. Until that is known, the limit is the tuned minibatch, for
    which the hyperparameters are known to work.
    """
    tuned_at, choice = config.tuned_batch(), config.minibatch
    match choice:
        case "scaled":
            return None
        case "auto" | "keep":  # the minibatch of this config at the tuned batch
            samples = max(tuned_at.iteration_batch / config.update.minibatches_per_epoch, 1.0)
        case "noise-scale":
            samples = max(measured or 0.0, tuned_at.minibatch)
        case int():
            samples = float(choice)
            if samples < tuned_at.minibatch:  # it would change the hyperparameters at the tuned batch
                raise ConfigError(
                    f"minibatch = {choice:,} is below the tuned minibatch of "
                    f"{number_text(tuned_at.minibatch, 6)} samples; --update.minibatches-per-epoch makes "
                    "minibatches smaller"
                )
    return MinibatchLimit(
        choice="number" if isinstance(choice, int) else choice,
        samples=samples,
        ratio=samples / tuned_at.minibatch,
    )


def with_effect(
    limit: MinibatchLimit, configured: BatchSizes, *, batch: BatchSizes, followed: BatchSizes
) -> MinibatchLimit | None:
    """The limit with its effect on a `batch`, whose hyperparameters are those of the batch `followed`. None
    for `auto` at or below the tuned batch, where it has none."""
    minibatches = configured.minibatches_per_epoch
    reached = batch.minibatches_per_epoch != minibatches
    match limit.choice:
        case "auto":
            holds_numbers = reached and followed.num_steps == configured.num_steps
        case "keep":
            holds_numbers = followed.iteration_batch >= limit.samples
        case _:
            holds_numbers = followed.minibatches_per_epoch != minibatches
    if limit.choice == "auto" and not reached:
        return None
    return replace(limit, reached=reached, holds_numbers=holds_numbers)


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
    trace, signal = signals.noise_trace, signals.noise_signal
    if trace is None or signal is None or signals.noise_measurements < LEAST_MEASUREMENTS:
        return limit.samples
    scale = rules.noise_scale(trace, signal)
    if math.isnan(scale):
        return limit.samples
    target = min(max(tuned, min(scale, unlimited)), LARGEST_GROWTH * limit.samples)
    is_far = max(target / limit.samples, limit.samples / target) >= LEAST_CHANGE
    return target if is_far else limit.samples
