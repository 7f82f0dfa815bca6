"""A process that runs the cells that a runner names, one after another.

Each line of its standard input is a job; each line of its standard output answers one:

    {"cell": CELL, "origin": ORIGIN}    run a cell of the plan that it belongs to
    {"probe": CELL}                     measure the seconds that an env step of it takes

A line {"give_up": NAME} is not answered itself: if that cell is in progress, its training stops and its job
is answered with `stopped`. The process ends with its input, so a killed runner leaves no workers behind.
"""

import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from anybatch import envs
from anybatch.errors import UserError
from anybatch.lab.studies import cells
from anybatch.lab.studies.cells import Cell, Origin
from anybatch.lab.studies.executor import DONE, ERROR, FACTORY_FLAG, FAILED, STOPPED
from anybatch.lab.studies.training import remove_finished_run, run_cell, seconds_per_env_step
from anybatch.networks import custom as custom_networks
from anybatch.runs.stop import Stopped, request_stop

Job = Mapping[str, Any]


class InProgress:
    """The name of the cell in training, for the thread that reads the input."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._lock = threading.Lock()

    def set(self, name: str | None) -> None:
        with self._lock:
            self._name = name

    def give_up(self, name: str) -> None:
        """Stop the training of a cell. Holds the lock, so that the next cell is not stopped instead."""
        with self._lock:
            if name == self._name:
                request_stop()


def main() -> None:
    """`python -c … OUT [ENV …] [--network.factory=NAME …]`: what the command line of the study names."""
    answers = private_stdout()
    out, named = Path(sys.argv[1]), sys.argv[2:]
    in_progress = InProgress()
    for job in jobs(in_progress):
        print(json.dumps(answer_to(job, out, named, in_progress)), file=answers, flush=True)


def private_stdout() -> TextIO:
    """Standard output, reserved for answers: what an engine prints goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def jobs(in_progress: InProgress) -> Iterator[Job]:
    """The jobs as they arrive. The process ends as soon as its input ends, even within a cell."""
    waiting: queue.Queue[Job] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            said = json.loads(line)
            if "give_up" in said:
                in_progress.give_up(said["give_up"])
            else:
                waiting.put(said)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield waiting.get()


def answer_to(job: Job, out: Path, named: list[str], in_progress: InProgress) -> dict[str, Any]:
    """Do a job and return its outcome. `named` are the user's modules that its cell may use."""
    try:
        for word in named:
            if word.startswith(FACTORY_FLAG):
                # A program may have named it for another of its runs: only a cell that needs it fails.
                with contextlib.suppress(UserError):
                    custom_networks.import_as_named(word.removeprefix(FACTORY_FLAG))
            else:
                envs.import_as_named(word)
        if "probe" in job:
            return {"answer": DONE, "seconds": seconds_per_env_step(out, Cell.from_json(job["probe"]))}
        cell = Cell.from_json(job["cell"])
        in_progress.set(cell.name)
        result = run_cell(out, Origin(**job["origin"]), cell)
        cells.write(out, result)
        remove_finished_run(out, cell)
        return {"answer": DONE if result.failed is None else FAILED, "reason": result.failed}
    except Stopped:
        return {"answer": STOPPED}
    except UserError as error:
        return {"answer": ERROR, "reason": str(error)}
    finally:
        in_progress.set(None)
