"""How much work cells are, and how long they take side by side."""

import heapq
from collections.abc import Iterable

from anybatch.studies.cells import Cell

CALL_SAMPLES = 64
"""Samples whose arithmetic takes as long as calling a small network does, by our own timings."""


def work(cell: Cell) -> float:
    """A guess at the time of a cell in units of its own: small batches spend it on calls."""
    config = cell.config
    update, num_envs = config["update"], config["num_envs"]
    minibatch = num_envs * config["num_steps"] / update["minibatches_per_epoch"]
    epochs = update["epochs"] + config.get("phase", {}).get("auxiliary_epochs", 0)
    per_step = 1 + CALL_SAMPLES / num_envs + 3 * epochs * (1 + CALL_SAMPLES / minibatch)
    return cell.total_env_steps * per_step


def kind(cell: Cell) -> tuple[object, ...]:
    """Cells of one kind take about the same time for an env step."""
    config = cell.config
    sizes = (config["num_envs"], config["num_steps"], str(config["update"]), str(config["network"]))
    return (cell.base, str(config.get("phase")), *sizes)


def makespan(seconds: Iterable[float], jobs: int) -> float:
    """Time until the last of the jobs is done, where each takes the longest cell that is left."""
    ends = [0.0] * jobs
    for duration in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + duration)
    return max(ends)
