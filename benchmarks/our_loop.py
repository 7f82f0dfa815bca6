"""Our real training loop in a temporary folder: logs and checkpoints as ever, no evaluation."""

import io
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from stopwatch import Stopwatch

from anybatch import session, train_state
from anybatch.algorithms import ppo
from anybatch.config import PPOConfig
from anybatch.runs import sinks
from anybatch.runs.config_record import config_to_dict
from anybatch.runs.log import MetricLog
from anybatch.runs.progress import Progress
from anybatch.runs.run import Run
from anybatch.runs.stop import GracefulStop
from anybatch.train_state import TrainState


class TimedProgress(Progress):
    """Ticks a stopwatch after every iteration, and asks for a stop when it is done."""

    def __init__(self, config: PPOConfig, stopwatch: Stopwatch, stop: GracefulStop):
        super().__init__(config.total_env_steps, "benchmark", stream=io.StringIO())
        self._stopwatch = stopwatch
        self._stop = stop

    def update(self, env_steps: int, metrics: Mapping[str, float | None]) -> None:
        super().update(env_steps, metrics)
        self._stopwatch.tick(env_steps)
        self._stop.requested = self._stopwatch.is_done


def measure(config: PPOConfig, seconds: float) -> float:
    """Env steps per second, in valid samples.

    The time is too short for the checkpoints of a run: the last one is counted as often as there would be.
    """
    stopwatch = Stopwatch(seconds)
    saving_seconds = train(config, start(config), stopwatch)
    checkpoints = stopwatch.elapsed / config.record.checkpoint_every_seconds
    return stopwatch.env_steps / (stopwatch.elapsed + checkpoints * saving_seconds)


def start(config: PPOConfig) -> TrainState:
    session.set_threads(config)
    return train_state.start(config, say=print)


def train(config: PPOConfig, state: TrainState, stopwatch: Stopwatch) -> float:
    """What `session.run_to_end` does before it evaluates, until `total_env_steps` or the stopwatch is done.

    Returns the seconds from the last iteration's end on, in which a checkpoint is saved.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        stop = GracefulStop()
        log = MetricLog(folder, sinks.open_sinks(config.record, folder, config_to_dict(config), print))
        stack.callback(log.close)
        run = Run(folder, config.record, log=log, progress=TimedProgress(config, stopwatch, stop), stop=stop)
        stopwatch.tick(0)
        ppo.train(config, state, run)
        return stopwatch.since_last_tick
