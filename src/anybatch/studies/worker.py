"""A process that runs cells, one after another, for a runner that tells it which.

Each line of its standard input is a job, {"cell": NAME} or {"probe": NAME}; each line of its standard output
answers one. It ends with its input: a runner that is killed leaves no process behind.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from anybatch import envs
from anybatch.errors import UserError
from anybatch.runs.stop import Stopped
from anybatch.studies import cells, plan, speed
from anybatch.studies.processes import DONE, ERROR, FAILED, STOPPED
from anybatch.studies.training import run_cell


def main() -> None:
    """`python -c … OUT [ENV …]`: environments are those that the command line named itself."""
    answers = private_stdout()
    out, named = Path(sys.argv[1]), sys.argv[2:]
    answer = answering(out, named)
    for job in jobs():
        print(json.dumps(answer(job)), file=answers, flush=True)


def private_stdout() -> TextIO:
    """The standard output for ourselves: what an engine prints goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def jobs() -> Iterator[dict[str, str]]:
    """The jobs as they come. The process ends at once where its input does, also within a cell."""
    waiting: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(waiting.get())


def answering(out: Path, named: list[str]) -> Callable[[dict[str, str]], dict[str, Any]]:
    """The function that does a job and says what came of it."""
    known = plan.read(out)
    assert known is not None
    by_name = {cell.name: cell for cell in known.cells}

    def answer(job: dict[str, str]) -> dict[str, Any]:
        try:
            for env in named:
                envs.import_as_named(env)
            if "probe" in job:
                return {"answer": DONE, "seconds": speed.seconds_per_env_step(out, by_name[job["probe"]])}
            result = run_cell(out, known, by_name[job["cell"]])
            cells.write(out, result)
            return {"answer": DONE if result.failed is None else FAILED, "reason": result.failed}
        except Stopped:
            return {"answer": STOPPED}
        except UserError as error:
            return {"answer": ERROR, "reason": str(error)}

    return answer
