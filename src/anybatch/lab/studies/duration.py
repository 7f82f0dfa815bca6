"""Durations: as people write and read them, and of cells that run in parallel."""

import heapq
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from anybatch.errors import ConfigError
from anybatch.lab.studies.cells import Cell

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
WRITTEN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+", re.ASCII)

CALL_SAMPLES = 64
"""Samples whose arithmetic takes as long as one call of a small network, by our timings."""

NOT_TIMED = ("seed", "total_env_steps", "rescale", "staleness")
"""Settings that do not change the time of an env step, or that a measurement leaves out."""


def seconds(text: str) -> float:
    """The seconds of a duration such as 20m, 2h, 1h30m or 90s. Raises ValueError for anything else."""
    if not WRITTEN.fullmatch(text):
        raise ValueError(f"{text!r} must be a duration such as 20m, 2h or 1h30m")
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))


def of_budget(text: str | None) -> float | None:
    """The seconds of a time limit that a person has requested; None without one."""
    if text is None:
        return None
    try:
        found = seconds(str(text))
    except ValueError as error:
        raise ConfigError(f"--budget: {error}") from None
    if found == 0:
        raise ConfigError(f"--budget {text}: must be longer than 0")
    return found


def written(duration: float) -> str:
    """A duration as `seconds` reads it."""
    return f"{Decimal(str(duration)):f}".removesuffix(".0") + "s"


def work(cell: Cell) -> float:
    """An estimate of a cell's time in arbitrary units; small batches spend it on calls."""
    config = cell.config
    update, num_envs = config["update"], config["num_envs"]
    minibatch = num_envs * config["num_steps"] / update["minibatches_per_epoch"]
    epochs = update["epochs"] + config.get("phase", {}).get("auxiliary_epochs", 0)
    per_step = 1 + CALL_SAMPLES / num_envs + 3 * epochs * (1 + CALL_SAMPLES / minibatch)
    return cell.total_env_steps * per_step


def kind(cell: Cell) -> str:
    """The kind of a cell; cells of one kind take about the same time per env step."""
    timed = {name: value for name, value in cell.config.items() if name not in NOT_TIMED}
    return json.dumps(without_fractions(timed), sort_keys=True)


def without_fractions(settings: Any) -> Any:
    """Settings without numbers such as the learning rate, which change what is learned but not the work."""
    if not isinstance(settings, Mapping):
        return settings
    return {
        name: without_fractions(value) for name, value in settings.items() if not isinstance(value, float)
    }


def makespan(seconds: Iterable[float], jobs: int) -> float:
    """Time until the last job is done, if each always takes the longest remaining cell."""
    ends = [0.0] * jobs
    for duration in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + duration)
    return max(ends)
