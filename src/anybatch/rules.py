"""The papers' rules as plain functions of numbers: how each hyperparameter follows the batch.

Standard library only, so that other projects can use or copy this file: `from anybatch import rules`.

`ratio` is always ρ = batch of this run ÷ batch the hyperparameter was tuned at; the c of Hilton et al. 2021
(arXiv:2110.00641) is its inverse. The rules are unrounded: identity at ρ = 1, ρ₁ then ρ₂ is ρ₁ρ₂. Rollout
lengths, in the second half, are steps of each environment between two optimizations, L of Park 2026
(arXiv:2605.21557).
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

LEARNING_RATE_RULE = {"adam": "square-root", "radam": "square-root", "sgd": "linear"}
"""How the learning rate of each optimizer follows the minibatch."""
ADAM_BETA_FLOORS = (0.5, 0.9)
"""Smallest β₁ and β₂ at larger batches: averages of 3 and of 19 gradients (effective sample size). At β = 0,
Adam would divide each gradient by itself and keep only its sign. The floors are ours, not the paper's, which
rescales to smaller batches."""
LEAST_MEASUREMENTS = 4
"""Fewest measurements of a noise scale whose spread gives a standard error."""
STANDARD_ERRORS = 2.0
"""A signal that is not this many standard errors above 0 is hidden by noise."""


def center_of_mass(decay: float) -> float:
    """1/(1-β) - 1: the mean age of what an EWMA averages, in its updates (arXiv:2110.00641, §4)."""
    return decay / (1.0 - decay)


def decay_from_center_of_mass(center: float) -> float:
    """The β whose center of mass is `center` (arXiv:2110.00641, §4)."""
    return center / (1.0 + center)


def effective_sample_size(decay: float) -> float:
    """2/(1-β) - 1: how many equal samples are as good as this EWMA (arXiv:2110.00641, §4, note 1)."""
    return (1.0 + decay) / (1.0 - decay)


def rescaled_learning_rate(
    learning_rate: float,
    ratio: float,
    optimizer: Literal["adam", "radam", "sgd"],
    rule: Literal["square-root", "linear"] | None = None,
) -> float:
    """Adam and RAdam: × √ρ. SGD: × ρ. ρ of the minibatch (arXiv:2110.00641, §3).

    `rule` replaces the optimizer's: × ρ with Adam is the ablation of App. C of the paper.
    """
    is_linear = (rule or LEARNING_RATE_RULE[optimizer]) == "linear"
    return learning_rate * (ratio if is_linear else math.sqrt(ratio))


def minibatches_within(
    limit: float, *, iteration_batch: float, minibatches: float, rounded: bool = False
) -> float:
    """max(n, B/limit): minibatches per epoch such that a minibatch B/n does not exceed `limit`.

    While the limit is not reached the number n stays and the minibatch grows with the iteration batch B.
    Beyond it the minibatch stays and the number grows, so that gradient steps per env step no longer fall;
    with the tuned minibatch as the limit, this is the recipe of arXiv:2603.06009.
    `rounded`: the next whole number, which keeps the minibatch within the limit.
    """
    unrounded = max(minibatches, iteration_batch / limit)
    # A quotient of floats that should be whole must not be rounded up because of float error.
    return float(math.ceil(round(unrounded, 9))) if rounded else unrounded


def rescaled_proximal_decay(decay: float, ratio: float) -> float:
    """Center of mass ÷ ρ, so that the proximal policy's age in env steps stays the same (arXiv:2110.00641,
    §4).

    ρ of the env steps per gradient step. Solved for β, so that ρ = 1 gives the very same float.
    """
    return decay / (ratio + decay * (1.0 - ratio))


def mean_copy_age(copy_every: float) -> float:
    """(n-1)/2: the mean age of a copy that is taken every n gradient steps, in gradient steps.

    Its age is 0 in the first gradient step after it and n-1 in the last. The counterpart of an EWMA's center
    of mass: a copy every 17 gradient steps is as old, on average, as an EWMA of decay 8/9.
    """
    return (copy_every - 1.0) / 2.0


def copy_every_from_mean_age(age: float) -> float:
    """The n whose mean age is `age`: 2 · age + 1."""
    return 2.0 * age + 1.0


def rescaled_copy_every(copy_every: float, ratio: float, *, rounded: bool = False) -> float:
    """1 + (n-1)/ρ: mean age ÷ ρ, so that the copy's age in env steps stays the same, as for an EWMA.

    ρ of the env steps per gradient step. `rounded`: a whole number of at least 1.
    """
    unrounded = 1.0 + (copy_every - 1.0) / ratio
    return float(max(round(unrounded), 1)) if rounded else unrounded


def rescaled_advantage_decay(decay: float, ratio: float, *, floor: bool = False) -> float:
    """Effective sample size ÷ ρ, so that moments cover the same number of samples (arXiv:2110.00641, §4).

    ρ of the iteration batch. Below an effective size of 1 the unrounded decay is negative; `floor`
    stops at 1, which is decay 0. Solved for β, so that ρ = 1 gives the very same float.
    """
    unrounded = (decay * (1.0 + ratio) + (1.0 - ratio)) / ((1.0 + ratio) + decay * (1.0 - ratio))
    return max(unrounded, 0.0) if floor else unrounded


def rescaled_phase_iterations(iterations: float, ratio: float, *, rounded: bool = False) -> float:
    """Iterations per phase ÷ ρ of the iteration batch: the same number of env steps per phase
    (arXiv:2110.00641, §4).

    `rounded`: a whole number of at least 1.
    """
    unrounded = iterations / ratio
    return float(max(round(unrounded), 1)) if rounded else unrounded


def rescaled_adam_beta(beta: float, ratio: float, *, floor: float = 0.0) -> float:
    """β^ρ, ρ of the minibatch: averages span equally many samples (arXiv:2110.00641, §3.2, optional).

    `floor` is the smallest β to rescale to, such as those of ADAM_BETA_FLOORS; a β that was tuned below it
    stays the same at larger batches.
    """
    return max(beta**ratio, min(beta, floor))


def half_lag_age(lag: float) -> float:
    """W/2: the mean age of a proximal policy in gradient steps, for data W gradient steps old.

    arXiv:2605.12070: halfway between the policy that acted and the current one, on average.
    """
    return lag / 2.0


def half_lag_decay(lag: float) -> float:
    """W/(W+2): the decay of an EWMA whose center of mass is W/2 gradient steps (arXiv:2605.12070)."""
    return lag / (lag + 2.0)


def noise_scale(trace: float, signal: float) -> float:
    """tr(Σ) / |G|², in samples (arXiv:1812.06162, §2.2); infinite if the noise hides the signal."""
    return trace / signal if signal > 0 else math.inf


class NoiseEstimate(NamedTuple):
    """A noise scale from several measurements, in samples."""

    trace: float
    """Mean tr(Σ)."""
    signal: float
    """Mean |G|²; it may be negative."""
    scale: float | None = None
    """None if noise hides the signal, or if there are too few measurements."""
    error: float | None = None
    """Standard error of the scale."""
    above: float | None = None
    """If noise hides the signal: the scale is probably more than this."""


def pooled_noise_scale(measurements: Sequence[tuple[float, float]]) -> NoiseEstimate:
    """The noise scale from measurements of tr(Σ) and |G|², none of which is left out.

        B = t̄ / s̄,   SE(B) = SE(t - B s) / s̄    (delta method)

    If the mean signal s̄ is not two standard errors above 0, the scale is only known to be more than
    t̄ / (s̄ + 2 SE(s)).
    """
    count = len(measurements)
    trace = sum(trace for trace, _ in measurements) / count
    signal = sum(signal for _, signal in measurements) / count
    if count < LEAST_MEASUREMENTS:
        return NoiseEstimate(trace, signal)

    def error_of_mean(values: list[float]) -> float:
        mean = sum(values) / count
        return math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)

    limit = STANDARD_ERRORS * error_of_mean([signal for _, signal in measurements])
    if signal > limit:
        scale = trace / signal
        error = error_of_mean([trace - scale * signal for trace, signal in measurements]) / signal
        return NoiseEstimate(trace, signal, scale=scale, error=error)
    return NoiseEstimate(trace, signal, above=trace / (signal + limit) if signal + limit > 0 else None)


def divergence_position(
    divergence: float, low: float, high: float, shape: Literal["log", "linear", "exponential"]
) -> float:
    """The position of a divergence δ between two thresholds: 0 at or below `low`, 1 at or above `high`.

        log:          a = log(δ/low) / log(high/low)    (Park 2026, arXiv:2605.21557)
        linear:       x = (δ - low) / (high - low)      (named in its released code, not written there)
        exponential:  a = (r^x - 1) / (r - 1),  r = high/low

    exponential is ours: as a function of x it is the inverse of log, so its mirror image about linear. It is
    convex: only large divergences shorten the rollout a lot.
    """
    if divergence <= low:
        return 0.0
    if divergence >= high:
        return 1.0
    log_ratio = math.log(high) - math.log(low)
    if shape == "log":
        return (math.log(divergence) - math.log(low)) / log_ratio
    position = (divergence - low) / (high - low)
    return position if shape == "linear" else math.expm1(position * log_ratio) / math.expm1(log_ratio)


def steps_at_position(position: float, shortest: float, longest: float) -> float:
    """L' = L_max - a (L_max - L_min): the more the policy changes, the shorter (arXiv:2605.21557)."""
    return longest - position * (longest - shortest)


def smoothed_steps(steps: float, target: float, smoothing: float) -> float:
    """L ← (1-α) L + α L' (arXiv:2605.21557, Alg. 1); α = 1 goes to the target at once."""
    return (1.0 - smoothing) * steps + smoothing * target


def released_smoothed_steps(steps: float, target: float, smoothing: float) -> int:
    """L ← ⌊(1-α) L + α ⌊L'⌋⌋, as in the code released with arXiv:2605.21557.

    The truncated part is lost: a rising L stalls as soon as α (L' - L) < 1, at 55 for a target of 64 with α =
    0.1. A falling L reaches its target.
    """
    return int(smoothed_steps(steps, int(target), smoothing))


def noise_scale_steps(trace: float, signal: float, *, samples_per_step: int, parts: int) -> float:
    """The L at which 1/parts of the iteration batch is the noise scale tr(Σ)/|G|² (arXiv:1812.06162, §2.2).

        L · samples_per_step / parts = tr(Σ) / |G|²

    An estimate |G|² ≤ 0 means that noise hides the signal: L is then infinite.
    """
    return trace / signal * parts / samples_per_step if signal > 0 else math.inf


def proportional_epochs(epochs: int, steps: int, tuned_steps: int) -> int:
    """⌊epochs · L / L_tuned⌋, at least 1: the same number of gradient steps per env step at any L.

    The released PPO code of arXiv:2605.21557, which has 10 L // 2048.
    """
    return max(epochs * steps // tuned_steps, 1)


def growing_epochs(epochs: int, steps: int, tuned_steps: int) -> int:
    """max(⌊epochs · L / L_tuned⌋, epochs): more passes over longer rollouts, never fewer.

    The released PQN code of arXiv:2605.21557, which has max(2 L // 32, 2).
    """
    return max(epochs * steps // tuned_steps, epochs)
