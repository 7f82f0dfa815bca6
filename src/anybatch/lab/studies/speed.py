"""The duration of cells, measured on their first iterations."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anybatch import presets, training
from anybatch.lab.studies.cells import RUNS, Cell
from anybatch.lab.studies.configs import config_of
from anybatch.runs.display import QUIET
from anybatch.runs.record import RunRecord
from anybatch.runs.stop import Stopped

PROBE_ITERATIONS = 6
PROBE_ENV_STEPS = 4096
"""Smallest number of env steps that are timed: an iteration of a single env would be too short."""


def seconds_per_env_step(out: Path, cell: Cell) -> float:
    """Seconds per env step, measured on the first iterations of a cell in a temporary run folder.

    Raises Stopped at a signal.
    """
    iteration = cell.config["num_envs"] * cell.config["num_steps"]
    steps = max(PROBE_ITERATIONS * iteration, PROBE_ENV_STEPS)
    settings = presets.overlaid(dict(cell.config), probe_settings(cell.config, steps))
    name = f"probe-{cell.name}"[:100]
    try:
        outcome = training.train(
            config_of(settings, cell.name),
            preset=cell.base,
            base=out / RUNS,
            name=name,
            output=QUIET,
        )
        if outcome.stopped_by is not None:
            raise Stopped(outcome.stopped_by)
        rows = RunRecord(outcome.folder).rows
    finally:
        shutil.rmtree(out / RUNS / name, ignore_errors=True)
    return timed(rows, auxiliary_share(cell.config))


def probe_settings(config: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """A short run with fresh data and without phases, whose evaluation takes no time."""
    settings: dict[str, Any] = {
        "total_env_steps": steps,
        "evaluation": {"num_envs": 1, "episodes_per_env": 1, "max_episode_steps": 1},
        "record": {"checkpoint_every_iterations": 0},
    }
    if "staleness" in config:
        settings["staleness"] = {"iterations": 0}
    if "phase" in config:
        settings["phase"] = {"policy_iterations": steps}
    return settings


def auxiliary_share(config: Mapping[str, Any]) -> float:
    """Work of the auxiliary phase per unit of work of the policy phase."""
    return config["phase"]["auxiliary_epochs"] / config["update"]["epochs"] if "phase" in config else 0.0


def timed(rows: Sequence[Mapping[str, Any]], auxiliary: float) -> float:
    """Seconds per env step of a run; `auxiliary` adds to the time of its updates.

    The first iteration compiles and warms up: it counts only if there is no other. An iteration may have no
    env step at all, if every env is reset in it.
    """
    counted = rows[1:] or rows
    before = rows[0]["env_steps"] if len(rows) > 1 else 0
    update = sum(row["time/update"] for row in counted)
    whole = sum(value for row in counted for name, value in row.items() if name.startswith("time/"))
    return (whole + auxiliary * update) / (counted[-1]["env_steps"] - before)
