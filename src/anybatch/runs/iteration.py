"""What a program's own callback sees after each iteration of a run, and what it may do there."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from anybatch.errors import ConfigError
from anybatch.runs.metrics import CUSTOM


@dataclass(frozen=True)
class Iteration:
    """One iteration of a run, at its end: the argument of `anybatch.train(on_iteration=…)`."""

    env_steps: int
    """Env steps that the run has trained on, over all iterations."""
    iteration: int
    """Iterations done, this one included."""
    metrics: Mapping[str, float]
    """The metrics of this iteration by their names in metrics.jsonl."""
    policy: nn.Module
    """The network that is being trained, with its current weights. Its input are observations as a network
    sees them; leave its weights and its mode unchanged."""
    stop: Callable[[], None]
    """`stop()` ends the training after this iteration: the run is saved, and can be resumed."""
    custom: dict[str, float] = field(default_factory=dict[str, float], repr=False)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record numbers of your own, as custom/NAME, in metrics.jsonl and in the run's trackers."""
        for name, value in metrics.items():
            self.custom[f"{CUSTOM}{name}"] = _finite_number(name, value)


OnIteration = Callable[[Iteration], object]


def of_run(state: Any, metrics: Mapping[str, float | None], stop: Callable[[], None]) -> Iteration:
    known = {name: value for name, value in metrics.items() if value is not None}
    return Iteration(state.env_steps, state.iterations, MappingProxyType(known), state.network, stop)


def _finite_number(name: object, value: Any) -> float:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"the name of a metric in on_iteration must be a string, not {name!r}")
    value = value.detach() if isinstance(value, Tensor) else value
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"the metric {name} in on_iteration must be a finite number, not {value!r}")
    return number
