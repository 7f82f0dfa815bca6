"""metrics.jsonl: one JSON object per line, the reference for a run. Trackers are sinks that get a copy."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsFloat

from anybatch.errors import DiskError, UserError, cause_of
from anybatch.runs import metrics as metric_names
from anybatch.runs.sinks import Sink
from anybatch.storage import safe_files
from anybatch.storage.json_text import is_number
from anybatch.storage.safe_files import Folder, write_all

METRICS_FILE, SUPERSEDED_FILE = "metrics.jsonl", "metrics-superseded.jsonl"


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run, without a last line cut by a kill. Empty if nothing was logged yet."""
    path = folder / METRICS_FILE
    try:
        lines = _whole_lines(safe_files.read(path))
    except FileNotFoundError:  # not checked beforehand, since a worker removes the folder of a finished cell
        return []
    except OSError as error:
        raise UserError(f"{path} cannot be read: {cause_of(error)}") from None
    return [_row(path, number, line) for number, line in enumerate(lines, 1)]


class MetricLog:
    """Appends rows to a run's metrics.jsonl and hands them to the sinks.

    Row: env_steps, wall_seconds (of training, summed over resumes), then the metrics.
    """

    def __init__(self, folder: Path, sinks: Sequence[Sink] = ()) -> None:
        self._folder, self._path = folder, folder / METRICS_FILE
        self._sinks = sinks
        self._file = self._opened()
        lines = self._lines()
        self._file.truncate(sum(map(len, lines)))  # otherwise the next row would continue a cut one
        self._start_clock(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, env_steps: int, metrics: Mapping[str, SupportsFloat | None]) -> None:
        """Append one row. Non-finite values become null; unknown names raise KeyError."""
        metric_names.check(metrics)
        values = {name: _finite(value) for name, value in metrics.items()}
        row = {"env_steps": env_steps, "wall_seconds": round(self.seconds, 3), **values}
        self._append(json.dumps(row, allow_nan=False).encode() + b"\n")
        known = {name: value for name, value in values.items() if value is not None}
        for sink in self._sinks:
            sink.write(env_steps, known)

    @property
    def seconds(self) -> float:
        """Seconds of training, summed over resumes."""
        return time.monotonic() - self._start

    def truncate_after(self, env_steps: int) -> None:
        """Before a resume, move rows beyond the checkpoint and damaged ones to metrics-superseded.jsonl."""
        lines = self._lines()
        kept = [line for line in lines if _env_steps(line) <= env_steps]
        superseded = [line for line in lines if _env_steps(line) > env_steps]
        try:
            if superseded:
                with Folder.opened(self._folder) as place:
                    with place.append(SUPERSEDED_FILE) as file:
                        write_all(file, b"".join(superseded))
                    place.replace(METRICS_FILE, b"".join(kept))
        except OSError as error:
            raise DiskError(
                f"{self._path} could not be cut back to {env_steps} env steps: {cause_of(error)}"
            ) from error
        self._file.close()
        self._file = self._opened()
        self._start_clock(kept)
        for sink in self._sinks:
            sink.truncate_after(env_steps)

    def close(self) -> None:
        self._file.close()
        for sink in self._sinks:
            sink.close()

    def _opened(self) -> FileIO:
        with Folder.opened(self._folder) as place:
            return place.append(METRICS_FILE)

    def _lines(self) -> list[bytes]:
        self._file.seek(0)
        return _whole_lines(self._file.readall())

    def _start_clock(self, lines: list[bytes]) -> None:
        rows = (_parsed(line) for line in reversed(lines))
        newest = next((row for row in rows if row is not None), None)
        self._start = time.monotonic() - (newest["wall_seconds"] if newest else 0.0)

    def _append(self, line: bytes) -> None:
        size = os.fstat(self._file.fileno()).st_size
        try:
            write_all(self._file, line)
        except OSError as error:
            self._file.truncate(size)
            raise DiskError(f"{self._path} could not be written: {cause_of(error)}") from error


class NoLog:
    """The log of ranks whose rows rank 0 writes."""

    seconds = 0.0

    def write(self, env_steps: int, metrics: Mapping[str, SupportsFloat | None]) -> None:
        pass

    def truncate_after(self, env_steps: int) -> None:
        pass

    def close(self) -> None:
        pass


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    row = _parsed(line)
    if row is None:
        raise UserError(f"line {number} of {path} is damaged: it is not a row of metrics")
    return row


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A row, whose values are finite numbers or null; None if it is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not all(value is None or is_number(value) for value in row.values()):
        return None
    clock = (row.get("env_steps"), row.get("wall_seconds"))
    return row if all(value is not None for value in clock) else None


def _env_steps(line: bytes) -> float:
    """Env steps of a row; infinite if it is damaged."""
    row = _parsed(line)
    return math.inf if row is None else row["env_steps"]


def _whole_lines(content: bytes) -> list[bytes]:
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def _finite(value: SupportsFloat | None) -> float | None:
    if value is None or isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
