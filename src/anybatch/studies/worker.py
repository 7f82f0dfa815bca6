"""A process that runs the cells that a runner names, one after another.

Each line of its standard input is a job; each line of its standard output answers one:

    {"cell": NAME}     run a cell of the study's plan
    {"probe": NAME}    measure the seconds that an env step of it takes

Both may come with {"added": CELL, "origin": PLAN} for a cell that no plan lists beforehand: CELL is all of
it, PLAN the hash, bins and facts of what it belongs to.

A line {"give_up": NAME} has no answer of its own: the training of that cell stops, if it is the one in
progress, and its job is answered with `stopped`. The process ends with its input: a runner that is killed
leaves none behind.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from anybatch import envs
from anybatch.errors import UserError
from anybatch.runs.stop import Stopped, request_stop
from anybatch.studies import cells, plan, speed
from anybatch.studies.cells import Cell, Origin
from anybatch.studies.engine import DONE, ERROR, FAILED, STOPPED
from anybatch.studies.training import run_cell

Job = Mapping[str, Any]


@dataclass(frozen=True)
class AddedTo:
    """What a cell belongs to that came with its job."""

    hash: str
    bins: int
    facts: Mapping[str, Any]


class InProgress:
    """The name of the cell that is being trained, for the thread that reads the input."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._lock = threading.Lock()

    def set(self, name: str | None) -> None:
        with self._lock:
            self._name = name

    def give_up(self, name: str) -> None:
        """Stop the training of a cell. Under the lock: the next cell must not be taken for it."""
        with self._lock:
            if name == self._name:
                request_stop()


def main() -> None:
    """`python -c … OUT [ENV …]`: environments are those that the command line named itself."""
    answers = private_stdout()
    out, named = Path(sys.argv[1]), sys.argv[2:]
    in_progress = InProgress()
    answer = answering(out, named, in_progress)
    for job in jobs(in_progress):
        print(json.dumps(answer(job)), file=answers, flush=True)


def private_stdout() -> TextIO:
    """The standard output, reserved for answers: what an engine prints goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def jobs(in_progress: InProgress) -> Iterator[Job]:
    """The jobs as they come. The process ends at once where its input does, also within a cell."""
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


def answering(out: Path, named: list[str], in_progress: InProgress) -> Callable[[Job], dict[str, Any]]:
    """The function that does a job and returns its outcome."""

    @cache
    def known() -> tuple[Origin, dict[str, Cell]]:
        found = plan.read(out)
        assert found is not None
        return found, {cell.name: cell for cell in found.cells}

    def meant(job: Job) -> tuple[Origin, Cell]:
        if "added" in job:
            return AddedTo(**job["origin"]), Cell.from_json(job["added"])
        origin, by_name = known()
        return origin, by_name[job.get("cell") or job["probe"]]

    def answer(job: Job) -> dict[str, Any]:
        try:
            for env in named:
                envs.import_as_named(env)
            origin, cell = meant(job)
            if "probe" in job:
                return {"answer": DONE, "seconds": speed.seconds_per_env_step(out, cell)}
            in_progress.set(cell.name)
            result = run_cell(out, origin, cell)
            cells.write(out, result)
            return {"answer": DONE if result.failed is None else FAILED, "reason": result.failed}
        except Stopped:
            return {"answer": STOPPED}
        except UserError as error:
            return {"answer": ERROR, "reason": str(error)}
        finally:
            in_progress.set(None)

    return answer
