"""Rollout length by Adaptive Batch Scaling, and by the gradient noise scale.

Lengths are steps of each environment between two optimizations, L of Park 2026 (arXiv:2605.21557). With the
envs fixed they set the iteration batch, and with the number of minibatches fixed the minibatch as well.
"""

import math
from typing import Literal


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
