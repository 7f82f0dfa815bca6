"""A batch as large as the gradient noise scale (arXiv:1812.06162), beyond which more samples hardly help."""

import math
from dataclasses import replace

from anybatch.batch.controllers.rollout_length import adapted
from anybatch.batch.controllers.state import ControllerState, Signals
from anybatch.config import CompleteController
from anybatch.equations.batch_scaling import noise_scale_steps


def advanced(config: CompleteController, state: ControllerState, signals: Signals) -> ControllerState:
    """Move the length at each measurement. Both parts are already averages; non-finite ones are ignored."""
    trace, signal = signals.noise_trace, signals.noise_signal
    if signals.iteration % config.every or trace is None or signal is None:
        return state
    if not (math.isfinite(trace) and math.isfinite(signal)):
        return state
    parts = signals.minibatches if config.noise_sets == "minibatch" else 1
    target = noise_scale_steps(trace, signal, samples_per_step=signals.samples_per_step, parts=parts)
    return replace(state, length=adapted(config, state.length, target))
