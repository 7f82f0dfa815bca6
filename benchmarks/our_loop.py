"""Our real training loop in a temporary folder: logs and checkpoints as ever, no evaluation."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import torch
from stopwatch import WARM_UP_ITERATIONS, Stopwatch

from anybatch.algorithms import AnyState, algorithm_of
from anybatch.algorithms.state import make_env
from anybatch.backends.threads import set_threads
from anybatch.config import AnyConfig
from anybatch.planning import expected_encoder
from anybatch.runs.display import Quiet
from anybatch.runs.run import Run
from anybatch.runs.stop import GracefulStop

NEVER_SECONDS = 1e9
"""Longer than any measurement."""
PPG_WARM_UP_ITERATIONS = 1
"""Of hundreds of passes through each network: a second one would only take time."""


class SavingSeconds(NamedTuple):
    """What the checkpoint at the end of a run took."""

    state: float
    """What every checkpoint writes anew."""
    segment: float
    """One iteration's data, where they are kept: these are written once."""


class TimedDisplay(Quiet):
    """Ticks a stopwatch after every iteration, and asks for a stop when it is done."""

    def __init__(self, stopwatch: Stopwatch, stop: GracefulStop):
        self._stopwatch = stopwatch
        self._stop = stop
        self._ticked_env_steps = 0

    def update(self, done: int, metrics: Mapping[str, float | None], note: str = "") -> None:
        del metrics, note
        if done == self._ticked_env_steps:  # a gradient step of an auxiliary phase
            return
        self._ticked_env_steps = done
        self._stopwatch.tick(done)
        self._stop.requested = self._stopwatch.is_done


def measure(config: AnyConfig, seconds: float) -> float:
    """Env steps per second, in valid samples."""
    stopwatch = stopwatch_for(config, seconds)
    saving = train(config, start(config), stopwatch)
    return rate(config, stopwatch, saving)


def stopwatch_for(config: AnyConfig, seconds: float) -> Stopwatch:
    return Stopwatch(seconds, PPG_WARM_UP_ITERATIONS if config.algorithm == "ppg" else WARM_UP_ITERATIONS)


def rate(config: AnyConfig, stopwatch: Stopwatch, saving: SavingSeconds) -> float:
    """Env steps per second with the checkpoints of a run, for which the time measured was too short.

    What the last one took is counted as a run would save: the state so many times a minute, and the data of
    each iteration once.
    """
    checkpoints = stopwatch.elapsed / config.record.checkpoint_every_seconds
    saving_seconds = checkpoints * saving.state + stopwatch.iterations * saving.segment
    return stopwatch.env_steps / (stopwatch.elapsed + saving_seconds)


def start(config: AnyConfig) -> AnyState:
    set_threads(config, expected_encoder(config))
    state = algorithm_of(config).start(config, make_env(config, env_steps=0))
    if state.backend.is_native:
        torch.set_num_threads(1)  # further ones would keep the cores busy that native code needs
    return state


def train(config: AnyConfig, state: AnyState, stopwatch: Stopwatch) -> SavingSeconds:
    """What `run_to_end` does before it evaluates, until `total_env_steps` or the stopwatch is done.

    Checkpoints are saved at the start and at the end only, so that none is in the time by chance.
    """
    record = replace(config.record, checkpoint_every_seconds=NEVER_SECONDS)
    with TemporaryDirectory() as folder, Run.silent(Path(folder), record) as run:
        run.display = TimedDisplay(stopwatch, run.stop)
        stopwatch.tick(0)
        algorithm_of(config).train(config, state, run)
        with_segments = stopwatch.since_last_tick
        saved_at = perf_counter()
        run.save(state)
        state_only = perf_counter() - saved_at
        snapshot = state.snapshot()
        segments = len(snapshot.segments) if snapshot is not None else 0
        data_seconds = max(0.0, with_segments - state_only)
        return SavingSeconds(state_only, data_seconds / segments if segments else 0.0)
