"""What a cell in progress has logged so far, read while its process continues to write."""

import json
import os
from pathlib import Path

from anybatch.lab.studies import curves
from anybatch.lab.studies.cells import RUNS, Cell
from anybatch.runs import log
from anybatch.runs.log import METRICS_FILE
from anybatch.storage.safe_files import open_regular

LONGEST_ROW = 1 << 14
"""Bytes at the end of a log that contain its newest row."""


def newest(out: Path, cell: Cell) -> int:
    """Env steps of the newest row of a cell in progress; 0 before the first."""
    path = out / RUNS / cell.name / METRICS_FILE
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_ROW))
            lines = file.read().splitlines(keepends=True)
        return next(int(json.loads(line)["env_steps"]) for line in reversed(lines) if line.endswith(b"\n"))
    except (OSError, ValueError, KeyError, StopIteration):
        return 0


def curve(out: Path, cell: Cell, bins: int) -> tuple[tuple[int, float | None], ...]:
    """The points of a cell's curve that no later row can change: those of the finished parts of the run.

    They are the first points of the finished cell's curve.
    """
    rows = log.read(out / RUNS / cell.name)
    reached = int(rows[-1]["env_steps"]) if rows else 0
    points = curves.return_curve(rows, cell.total_env_steps, bins) if rows else ()
    # A row at the very end of a part belongs to it, and the next one to the part that follows.
    return tuple(point for point in points[:-1] if point[0] <= reached)
