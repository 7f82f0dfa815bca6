"""Adaptive Batch Scaling (arXiv:2605.21557): short rollouts while the policy changes a lot, long ones later.

One rule for both measures: the share of changed greedy actions (PQN) and the KL divergence (PPO).
"""

import math
from dataclasses import replace

from anybatch.batch.controllers.rollout_length import adapted
from anybatch.batch.controllers.state import ControllerState, Signals
from anybatch.config import CompleteController
from anybatch.equations.batch_scaling import divergence_position, steps_at_position


def advanced(config: CompleteController, state: ControllerState, signals: Signals) -> ControllerState:
    """Move the length at each measurement after the warm-up. Non-finite measurements are ignored."""
    divergence = signals.divergence
    if signals.iteration % config.every or divergence is None or not math.isfinite(divergence):
        return state
    measurements = (*state.measurements, float(divergence))[-config.window :]
    if len(measurements) < config.warmup:
        return replace(state, measurements=measurements)
    mean = sum(measurements) / len(measurements)
    position = divergence_position(mean, config.low, config.high, config.map)
    target = steps_at_position(position, config.min_steps, config.max_steps)
    return replace(state, measurements=measurements, length=adapted(config, state.length, target))
