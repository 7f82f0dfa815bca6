"""Adaptation of the rollout length to its target, and the length in use."""

import math

from anybatch.config import CompleteController
from anybatch.equations import batch_scaling


def adapted(config: CompleteController, length: float, target: float) -> float:
    """The length after one adaptation. A target beyond the range, even an infinite one, means its end."""
    target = clamped(config, target)
    if config.rounding == "released":
        cut = batch_scaling.released_smoothed_steps(length, target, config.smoothing)
        return float(in_use(config, cut))
    return clamped(config, batch_scaling.smoothed_steps(length, target, config.smoothing))


def clamped(config: CompleteController, length: float) -> float:
    """The length within the range that is nearest to `length`."""
    return min(max(length, float(config.min_steps)), float(config.max_steps))


def in_use(config: CompleteController, length: float) -> int:
    """The multiple of `multiple_of` used for a length: the nearest within the range, or the one below."""
    multiple = config.multiple_of
    number = math.floor(length / multiple + (0.0 if config.rounding == "released" else 0.5))
    shortest, longest = config.step_range
    return min(max(number * multiple, shortest), longest)
