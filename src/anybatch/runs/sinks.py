"""Trackers that get a copy of the metrics. Training never stops for one: a sink that fails is dropped.

Each tracker's package is imported when its sink is started, since all of them are slow to import.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from anybatch.config import RecordConfig
from anybatch.storage.safe_files import Folder

logger = logging.getLogger(__name__)

PROJECT = "anybatch"
Metrics = Mapping[str, float]


class Sink(Protocol):
    """Receives a copy of each row."""

    def write(self, env_steps: int, metrics: Metrics) -> None: ...

    def truncate_after(self, env_steps: int) -> None:
        """The run continues from a checkpoint at `env_steps`: rows beyond it are superseded."""
        ...

    def close(self) -> None: ...


def open_sinks(record: RecordConfig, folder: Path, config: dict[str, Any]) -> list[Sink]:
    """The configured sinks, started and guarded. `config` is for trackers that show one."""
    sinks: list[Sink] = []
    if record.tensorboard:
        sinks.append(GuardedSink("TensorBoard", "tensorboard", lambda: TensorBoardSink(folder, config)))
    if record.wandb:
        sinks.append(GuardedSink("Weights & Biases", "anybatch[wandb]", lambda: WandbSink(folder, config)))
    if record.trackio:
        sinks.append(GuardedSink("Trackio", "anybatch[trackio]", lambda: TrackioSink(folder, config)))
    return sinks


class GuardedSink:
    """A sink whose first exception is reported and ends the sink, not the run."""

    def __init__(self, name: str, requirement: str, start: Callable[[], Sink]) -> None:
        self._name = name
        self._sink: Sink | None = None
        try:
            self._sink = start()
        except ImportError as error:
            logger.warning(f"Nothing is sent to {name} ({error}); `pip install '{requirement}'` installs it.")
        except Exception as error:
            self._drop(error)

    def write(self, env_steps: int, metrics: Metrics) -> None:
        self._guard(lambda sink: sink.write(env_steps, metrics))

    def truncate_after(self, env_steps: int) -> None:
        self._guard(lambda sink: sink.truncate_after(env_steps))

    def close(self) -> None:
        self._guard(lambda sink: sink.close())

    def _guard(self, call: Callable[[Sink], None]) -> None:
        if self._sink is None:
            return
        try:
            call(self._sink)
        except Exception as error:
            self._drop(error)

    def _drop(self, error: Exception) -> None:
        self._sink = None
        logger.warning(
            f"Nothing more is sent to {self._name} ({type(error).__name__}: {error}); "
            "training continues, and metrics.jsonl has every row."
        )


class TensorBoardSink:
    """An event file in the run folder, with the config for the HParams page.

    Written in TensorBoard's record format: its full writer looks for TensorFlow and hides errors in a thread.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        events: Any = event_pb2  # their classes are made at run time
        summaries: Any = summary_pb2
        self._event, self._session, self._summary = events.Event, events.SessionLog, summaries.Summary
        name = f"events.out.tfevents.{time.time_ns() // 1000}.{os.getpid()}"
        with Folder.opened(folder) as place:
            self._writer = RecordWriter(place.new(name))
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        hparams = hparams_pb(flat_settings(config), trial_id=folder.name)
        self._write(self._event(wall_time=time.time(), summary=hparams))

    def write(self, env_steps: int, metrics: Metrics) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._write(self._event(wall_time=time.time(), step=env_steps, summary=self._summary(value=values)))

    def truncate_after(self, env_steps: int) -> None:
        # Readers forget earlier events at or beyond the step of a session start.
        start = self._session(status=self._session.START)
        self._write(self._event(wall_time=time.time(), step=env_steps + 1, session_log=start))

    def close(self) -> None:
        self._writer.close()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, bool | float | str]:
    """Settings by their path, such as optimizer.learning_rate, as values that TensorBoard can compare."""
    flat: dict[str, bool | float | str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{name}.")
        elif isinstance(value, bool | int | float | str):
            flat[prefix + name] = value
        elif value is not None:
            flat[prefix + name] = str(value)
    return flat


class WandbSink:
    """Weights & Biases, with env steps as the x axis of every chart. A resumed run continues its page."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        with contextlib.suppress(FileNotFoundError), Folder.opened(folder / "wandb", within=folder):
            pass  # its client writes there, and would follow a link
        self._run = wandb.init(
            project=PROJECT, name=folder.name, id=folder.name, resume="allow", dir=str(folder), config=config
        )
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    def write(self, env_steps: int, metrics: Metrics) -> None:
        self._run.log({"env_steps": env_steps, **metrics})

    def truncate_after(self, env_steps: int) -> None:
        """Nothing to do: the server keeps the rows it received."""

    def close(self) -> None:
        self._run.finish()


class TrackioSink:
    """Trackio. A resumed run continues its page."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import trackio  # pyright: ignore[reportMissingImports]

        self._trackio = trackio
        trackio.init(project=PROJECT, name=folder.name, config=config, resume="allow")

    def write(self, env_steps: int, metrics: Metrics) -> None:
        self._trackio.log(dict(metrics), step=env_steps)

    def truncate_after(self, env_steps: int) -> None:
        """Nothing to do: the server keeps the rows it received."""

    def close(self) -> None:
        self._trackio.finish()
