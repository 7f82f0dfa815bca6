"""Builders of small PPG configs and runs for the tests."""

import signal
from pathlib import Path
from typing import Any

import pytest
from toy_runs import SMALL, train

from anybatch import presets
from anybatch.algorithms import ppg
from anybatch.config import PPGConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.runs import log

SMALL_PHASE: dict[str, Any] = {
    "update": {"epochs": 1, "minibatch_of": "sequences"},
    "proximal": {"policy": "ewma"},
    "objective": {"clip": None, "kl_penalty": 1.0, "discount": 0.999, "entropy_coefficient": 0.01},
    "phase": {"policy_iterations": 3, "auxiliary_epochs": 2, "auxiliary_minibatch": 16},
}
# Shows how fast it went and when, which is not the seed's doing.
WALL_CLOCK = ("wall_seconds", "charts/SPS", "time/")


def phase_config(**changes: Any) -> PPGConfig:
    """A PPG config of 3 envs × 7 steps and 3 iterations a phase, tuned at its own batch, with changes."""
    settings = config_to_dict(PPGConfig())
    for overlay in (SMALL, SMALL_PHASE, changes):
        settings = presets.overlaid(settings, overlay)
    if "tuned_at" not in changes:
        settings["tuned_at"] = presets.own_batch(settings)
    return config_from_dict(PPGConfig, settings)


def with_changes(config: PPGConfig, **changes: Any) -> PPGConfig:
    """`config` with changes, as nested dicts; what it was tuned at stays."""
    return config_from_dict(PPGConfig, presets.overlaid(config_to_dict(config), changes))


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run's iterations without those of the wall clock."""
    return [
        {name: value for name, value in row.items() if not name.startswith(WALL_CLOCK)}
        for row in log.read(folder)
        if "charts/iterations" in row
    ]


def train_and_stop(
    config: PPGConfig, base: Path, step: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run that is asked to stop, as by Ctrl-C, within so many calls of a step of the algorithm."""
    original, seen = getattr(ppg, step), []

    def count(*arguments: Any) -> Any:
        seen.append(1)
        if len(seen) == calls:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ppg, step, count)
        return train(config, base).folder
