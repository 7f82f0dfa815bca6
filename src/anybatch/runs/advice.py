"""What a run's metrics say about its settings (arXiv:2110.00641, §6.2, and the assumptions behind the dial).

Each piece of advice shows the number it comes from and the flag that would change it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from anybatch import rules
from anybatch.config import RunConfig
from anybatch.text import counted

Row = Mapping[str, Any]

# The paper says much less than 1 %, and much more than 10 % with one epoch or 20 % with several; the factors
# define "much".
CLIPPED_LOW, CLIPPED_HIGH_ONE_EPOCH, CLIPPED_HIGH_MORE_EPOCHS = 0.01 / 3, 0.10 * 1.5, 0.20 * 1.5
ADVANTAGE_STD_SWING = 10.0
ADVANTAGE_WINDOW = 20
"""Iterations within which the standard deviation should not swing that much; over a whole run it may
drift."""
EFFECTIVE_SAMPLES_LOW = 0.5
PROXIMAL_AGE_LOW, PROXIMAL_AGE_HIGH = 0.25, 8.0
"""Usual ages, in iterations of the tuned batch: the rule preserves the age in env steps. 1 in the paper."""
GRADIENT_CLIP_OFTEN = 0.10
FEWEST_ITERATIONS = 2
SOLVED_WITHIN = 0.05
"""Share of the range of a run's returns: a return closer than this to the highest one counts as solved."""


@dataclass(frozen=True)
class Advice:
    """One finding: what was measured, what it means, what to try."""

    measured: str
    meaning: str
    flag: str


def advise(rows: Sequence[Row], config: RunConfig) -> list[Advice]:
    """Advice from the rows of metrics.jsonl. Empty if nothing stands out, or after a single iteration."""
    rows = while_learning(rows)
    if len(rows) < FEWEST_ITERATIONS:
        return []
    checks = (
        clip_fraction,
        advantage_swing,
        effective_samples,
        proximal_age,
        minibatch_against_noise,
        gradient_clipping,
    )
    return [advice for check in checks if (advice := check(rows, config)) is not None]


def while_learning(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows without those at the end in which the return stays at its highest.

    On a solved task there is nothing left to learn, and metrics no longer say anything about settings.
    """
    returns = [row.get("charts/episodic_return") for row in rows]
    scores = [score for score in returns if score is not None]
    if not scores:
        return rows
    below = max(scores) - SOLVED_WITHIN * (max(scores) - min(scores))
    learning = [number for number, score in enumerate(returns, 1) if score is not None and score < below]
    return rows[: learning[-1]] if learning else rows


def clip_fraction(rows: Sequence[Row], config: RunConfig) -> Advice | None:
    clipped = known(rows, "losses/clipfrac")
    if not clipped or not config.clips_ratios:
        return None
    share, epochs = fmean(clipped), config.update.epochs
    setting = config.proximal_age_setting
    older = (
        f"a higher --{setting}" if setting else "--proximal.policy ewma with a higher --proximal.ewma-decay"
    )
    measured = f"{share:.2%} of the ratios are clipped with {counted(epochs, 'epoch')}"
    if share < CLIPPED_LOW:
        return Advice(
            measured,
            "far below 1%, the proximal policy hardly holds the update back; a larger iteration batch or an "
            "older proximal policy may learn faster",
            f"--num-envs with more --update.minibatches-per-epoch, or {older}",
        )
    if share > (CLIPPED_HIGH_ONE_EPOCH if epochs == 1 else CLIPPED_HIGH_MORE_EPOCHS):
        return Advice(
            measured,
            "so many clipped ratios often mean that the learning rate is too high, unless the return is good",
            "--optimizer.learning-rate",
        )
    return None


def advantage_swing(rows: Sequence[Row], config: RunConfig) -> Advice | None:
    if not config.keeps_advantage_moments:
        return None
    deviations = [value for value in known(rows, "advantage/std") if value > 0]
    starts = range(0, len(deviations), ADVANTAGE_WINDOW)
    windows = [deviations[start : start + ADVANTAGE_WINDOW] for start in starts]
    swing = median([max(window) / min(window) for window in windows]) if windows else 1.0
    if swing < ADVANTAGE_STD_SWING:
        return None
    return Advice(
        f"the advantages' standard deviation swings by {swing:.3g} × within {ADVANTAGE_WINDOW} iterations",
        "normalizing with the moments of more iterations would steady the steps",
        "--objective.advantage-decay",
    )


def effective_samples(rows: Sequence[Row], config: RunConfig) -> Advice | None:
    shares = known(rows, "importance/effective_samples")
    if not shares or fmean(shares) >= EFFECTIVE_SAMPLES_LOW:
        return None
    ways, flags = ["fewer epochs", "smaller steps"], ["--update.epochs", "--optimizer.learning-rate"]
    if config.lag:
        ways, flags = ["fresher data", *ways], ["--staleness.iterations", *flags]
    return Advice(
        f"importance weights leave {fmean(shares):.0%} of the samples effective",
        f"the policy moves far from the one that acted; {' or '.join(ways)} use the data better",
        ", ".join(flags),
    )


def proximal_age(rows: Sequence[Row], config: RunConfig) -> Advice | None:
    env_steps = known(rows, "proximal/age_env_steps")
    setting = config.proximal_age_setting
    if setting is None or config.proximal_follows_lag or not env_steps:
        return None
    age = median(env_steps) / config.tuned_batch().iteration_batch
    if PROXIMAL_AGE_LOW <= age <= PROXIMAL_AGE_HIGH:
        return None
    meaning = (
        "so young that it hardly holds the update back"
        if age < PROXIMAL_AGE_LOW
        else "so old that it may hold the update back more than needed"
    )
    return Advice(
        f"the proximal policy is {median(env_steps):,.0f} env steps old on average, "
        f"{age:.3g} iterations of the tuned batch",
        meaning,
        f"--{setting}",
    )


def minibatch_against_noise(rows: Sequence[Row], config: RunConfig) -> Advice | None:
    minibatches = known(rows, "batch/minibatch")
    measured = [
        (row["noise/trace"], row["noise/signal"]) for row in rows if row.get("noise/trace") is not None
    ]
    if not minibatches or not measured:
        return None
    minibatch, (_, _, noise, error, _) = median(minibatches), rules.pooled_noise_scale(measured)
    if noise is None or error is None or minibatch <= noise + rules.STANDARD_ERRORS * error:
        return None
    return Advice(
        f"the minibatch of {minibatch:,.0f} samples is above the measured noise scale of {noise:,.0f} "
        f"(standard error {error:,.0f})",
        "more samples per gradient step gain little, and the rule for the learning rate overshoots",
        f"--minibatch {noise:.0f}"
        if noise >= config.tuned_batch().minibatch
        else "--update.minibatches-per-epoch",
    )


def gradient_clipping(rows: Sequence[Row], config: RunConfig) -> Advice | None:
    shares = known(rows, "losses/grad_clip_fraction")
    batch = config.tuned_batch()
    tuned = batch.iteration_batch / batch.minibatches_per_epoch
    minibatches = known(rows, "batch/minibatch")
    if config.rescale == "none" or all(minibatch == tuned for minibatch in minibatches):
        return None  # the rule changes nothing there
    if not shares or fmean(shares) <= GRADIENT_CLIP_OFTEN:
        return None
    return Advice(
        f"the gradient is clipped in {fmean(shares):.0%} of the steps",
        "clipping undoes part of the effect of the learning-rate rule when the batch changes",
        "--optimizer.max-grad-norm",
    )


def known(rows: Sequence[Row], name: str) -> list[float]:
    """The values of a metric in the rows that have it."""
    return [row[name] for row in rows if row.get(name) is not None]
