"""Running the missing cells of a study in parallel, wherever an engine has workers for them."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from anybatch.errors import UserError
from anybatch.lab.studies import cells
from anybatch.lab.studies.cells import Cell, Result
from anybatch.lab.studies.engine import (
    DIED,
    ERROR,
    LOST,
    MOST_LOSSES,
    STOPPED,
    CellWorker,
    Engine,
    always_lost,
)
from anybatch.lab.studies.failures import result_after_death
from anybatch.lab.studies.in_progress import newest
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.studies.work import work
from anybatch.runs.display import Output
from anybatch.runs.stop import GracefulStop, Stopped

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.2


def run(
    out: Path,
    plan: StudyPlan,
    engine: Engine,
    *,
    output: Output,
    named_envs: Sequence[str] = (),
    retry_failed: bool = False,
) -> list[Result]:
    """Run the cells that are missing, and return the results of all. Raises Stopped at a signal."""
    study = RunningStudy(out, plan, retry_failed=retry_failed)
    workers = [
        engine.worker(out, threads=plan.threads, named_envs=named_envs)
        for _ in range(min(engine.jobs, study.missing))
    ]
    title = f"{plan.study['name']}, {plan.scale}: {len(plan.cells)} cells"
    with (
        output.display(study.total_env_steps, title) as display,
        GracefulStop() as stop,
        ThreadPoolExecutor(max(1, len(workers))) as pool,
    ):
        running = [pool.submit(study.work_off, worker) for worker in workers]
        try:
            while not all(job.done() for job in running):
                if stop.requested or study.error is not None:
                    for worker in workers:
                        worker.stop()
                display.update(study.env_steps(), {}, study.note())
                time.sleep(LOOK_EVERY_SECONDS)
        except KeyboardInterrupt:  # the second signal: do not wait
            for worker in workers:
                worker.kill()
            raise
        for job in running:
            job.result()
        display.update(study.env_steps(), {}, study.note())
    if study.error is not None:
        raise UserError(study.error)
    if stop.signal is not None:
        raise Stopped(stop.signal, f"Stopped with {study.note()}.")
    return results(out, plan)


def results(out: Path, plan: StudyPlan) -> list[Result]:
    """The results so far, in plan order. Cells of another plan are refused."""
    found: list[Result] = []
    for cell in plan.cells:
        result = cells.read(out, cell.name)
        if result is None:
            continue
        if result.plan_hash != plan.hash:
            raise UserError(f"{cells.path_of(out, cell.name)} belongs to another plan")
        if not result.cell.is_same(cell):
            raise UserError(
                f"{cells.path_of(out, cell.name)} is damaged: the plan has another cell of that name"
            )
        cells.refuse_another_length(result, plan.bins, where=str(cells.path_of(out, cell.name)))
        found.append(result)
    return found


class RunningStudy:
    """The remaining cells, shared by the threads that manage the workers."""

    def __init__(self, out: Path, plan: StudyPlan, *, retry_failed: bool) -> None:
        self._out, self._plan = out, plan
        known = {result.cell.name: result for result in results(out, plan)}
        if retry_failed:
            known = {name: result for name, result in known.items() if result.failed is None}
        self._done: dict[str, str | None] = {name: result.failed for name, result in known.items()}
        self._running: set[str] = set()
        self._lock = threading.Lock()
        left = [cell for cell in plan.cells if cell.name not in known]
        self.missing = len(left)
        self._waiting: SimpleQueue[Cell] = SimpleQueue()
        for cell in in_order(left):
            self._waiting.put(cell)
        self.error: str | None = None
        """Why the study as a whole cannot continue."""

    @property
    def total_env_steps(self) -> int:
        return sum(cell.total_env_steps for cell in self._plan.cells)

    def work_off(self, worker: CellWorker) -> None:
        """Let a worker run cells until none remains."""
        with worker:
            while self.error is None:
                try:
                    cell = self._waiting.get_nowait()
                except Empty:
                    return
                with self._lock:
                    self._running.add(cell.name)
                answer = answer_of(worker, cell)
                if answer["answer"] == STOPPED:
                    return
                if answer["answer"] == ERROR:
                    self.error = answer["reason"]
                    return
                self._take(cell, answer)

    def _take(self, cell: Cell, answer: Mapping[str, Any]) -> None:
        reason = answer.get("reason")
        if answer["answer"] == DIED:
            reason = result_after_death(self._out, self._plan, cell, answer["reason"]).failed
        if reason is not None:
            logger.warning(f"{cell.name} failed: {reason}")
        with self._lock:
            self._running.discard(cell.name)
            self._done[cell.name] = reason

    def env_steps(self) -> int:
        """Env steps of the cells that are done, and of those in progress."""
        with self._lock:
            done, running = set(self._done), set(self._running)
        return sum(
            cell.total_env_steps if cell.name in done else min(cell.total_env_steps, newest(self._out, cell))
            for cell in self._plan.cells
            if cell.name in done | running
        )

    def note(self) -> str:
        with self._lock:
            failed = sum(reason is not None for reason in self._done.values())
            done = len(self._done) - failed
        return f"{done} of {len(self._plan.cells)} cells done" + (f", {failed} failed" if failed else "")


def answer_of(worker: CellWorker, cell: Cell) -> dict[str, Any]:
    """What became of a cell, which is run again where its worker was lost."""
    reason = ""
    for _ in range(MOST_LOSSES):
        answer = worker.ask(cell=cell.name)
        if answer["answer"] != LOST:
            return answer
        reason = answer["reason"]
        logger.warning(f"{cell.name}: {reason}. The cell is run again.")
    return {"answer": DIED, "reason": always_lost(reason)}


def in_order(left: Sequence[Cell]) -> list[Cell]:
    """The order in which cells are run: grid by grid as in the study file, the longest cells first."""
    return sorted(left, key=lambda cell: (cell.part, -work(cell)))
