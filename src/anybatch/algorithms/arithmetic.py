"""Native code or torch: the choice that a run has made, kept when it is resumed."""

from collections.abc import Callable
from typing import Any

from anybatch.algorithms.state import TrainState
from anybatch.config import RunConfig
from anybatch.kernels.choice import Choice


def compile_choice(config: RunConfig) -> Choice:
    """Whether native code is to be used; it computes in float32 and float64 only."""
    return "off" if config.precision == "bf16" else config.compile


def keep_arithmetic(
    state: TrainState[Any], config: RunConfig, *, was_native: bool, say: Callable[[str], None]
) -> None:
    """Leave the choice between native code and torch as it was, unless the config makes it."""
    if config.compile != "auto" or config.precision == "bf16":
        return
    if state.kernel is not None and not was_native:
        use_torch(state)
        say("This run has been trained with torch, and continues so; --compile on is faster.")
    elif state.kernel is None and was_native:
        say("This run has been trained with native code, and continues with torch: rounding will differ.")


def use_torch(state: TrainState[Any]) -> None:
    """Leave native code."""
    state.kernel = None
    state.source.use_torch()
    state.steps.use_torch()
