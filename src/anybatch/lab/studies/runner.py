"""Running cells in parallel: a schedule chooses them, and the workers of an executor train them.

A study's schedule is the list of its missing cells; that of a tuning depends on the results so far. All
decisions are made in one thread.
"""

import contextlib
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.lab.studies import cells, curves
from anybatch.lab.studies.cells import RUNS, Cell, Result
from anybatch.lab.studies.duration import work
from anybatch.lab.studies.executor import DIED, ERROR, LOST, STOPPED, CellWorker, Executor
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.studies.plan_file import Plan
from anybatch.runs import log
from anybatch.runs.display import Display, Output
from anybatch.runs.log import METRICS_FILE
from anybatch.runs.stop import GracefulStop, Stopped
from anybatch.storage.safe_files import open_regular

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.1
MOST_LOSSES = 5
"""Times that a cell is run whose worker was lost, before it counts as failed."""
LONGEST_ROW = 1 << 14
"""Bytes at the end of a log that contain its newest row."""


class Schedule(ABC):
    """The cells of one plan that are to be run, and what becomes of their results."""

    env_steps = 0
    """Env steps of the cells that have ended."""

    def __init__(self, out: Path, plan: Plan, *, threads: int, title: str, total_env_steps: int) -> None:
        self.out, self.plan, self.threads = out, plan, threads
        self.title, self.total_env_steps = title, total_env_steps

    @abstractmethod
    def next(self) -> Cell | None:
        """The cell to run next. A worker that gets None is not needed any more."""

    @abstractmethod
    def take(self, cell: Cell, result: Result | None) -> None:
        """Take the result of a cell; None if it was given up."""

    @abstractmethod
    def note(self) -> str:
        """The progress, in a few words."""

    def is_beaten(self, _cell: Cell, /) -> bool:
        """Whether a cell in progress is to be given up."""
        return False


class StudySchedule(Schedule):
    """The cells of a study that have no result, or have failed and are to be tried again."""

    def __init__(self, out: Path, plan: StudyPlan, *, retry_failed: bool = False) -> None:
        title = f"{plan.study['name']}, {plan.scale}: {len(plan.cells)} cells"
        total = sum(cell.total_env_steps for cell in plan.cells)
        super().__init__(out, plan, threads=plan.threads, title=title, total_env_steps=total)
        known = [one for one in results(out, plan) if one.failed is None or not retry_failed]
        self._failed = {one.cell.name: one.failed is not None for one in known}
        self._of = len(plan.cells)
        self.env_steps = sum(one.cell.total_env_steps for one in known)
        left = (cell for cell in plan.cells if cell.name not in self._failed)
        # Grid by grid as in the study file, the longest cells first.
        self._left = sorted(left, key=lambda cell: (cell.part, -work(cell)))

    def next(self) -> Cell | None:
        return self._left.pop(0) if self._left else None

    def take(self, cell: Cell, result: Result | None) -> None:
        assert result is not None
        if result.failed is not None:
            logger.warning(f"{cell.name} failed: {result.failed}")
        self._failed[cell.name] = result.failed is not None
        self.env_steps += cell.total_env_steps

    def note(self) -> str:
        failed = sum(self._failed.values())
        done = len(self._failed) - failed
        return f"{done} of {self._of} cells done" + (f", {failed} failed" if failed else "")


def run(schedule: Schedule, executor: Executor, *, output: Output, named_envs: Sequence[str] = ()) -> None:
    """Run the cells of a schedule. Raises Stopped at a signal; the next call continues."""
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(output.display(schedule.total_env_steps, schedule.title))
        stop = stack.enter_context(GracefulStop())
        workers = [
            executor.worker(schedule.out, threads=schedule.threads, named_envs=named_envs)
            for _ in range(executor.jobs)
        ]
        for worker in workers:
            stack.callback(worker.close)
        pool = stack.enter_context(ThreadPoolExecutor(executor.jobs))
        slots = [Slot(schedule, worker, pool) for worker in workers]
        try:
            work_off(schedule, slots, stop, display)
        except BaseException:  # the second signal, or a cell without which nothing can go on: do not wait
            for worker in workers:
                worker.kill()
            raise
    for slot in slots:
        if slot.error is not None:
            raise UserError(slot.error)
    if stop.signal is not None:
        raise Stopped(stop.signal, f"Stopped with {schedule.note()}.")


def work_off(schedule: Schedule, slots: Sequence["Slot"], stop: GracefulStop, display: Display) -> None:
    """Keep all workers busy until nothing is left to run. A stop or an error lets them save first."""
    while True:
        is_ending = stop.requested or any(slot.error for slot in slots)
        for slot in slots:
            slot.advance(may_begin=not is_ending)
            if is_ending:
                slot.worker.stop()
        running = [slot for slot in slots if slot.cell is not None]
        so_far = schedule.env_steps + sum(slot.env_steps() for slot in running)
        display.update(so_far, {}, schedule.note())
        if not running:
            return
        wait([slot.answer for slot in running], LOOK_EVERY_SECONDS, FIRST_COMPLETED)


class Slot:
    """A worker, and the cell that it runs."""

    def __init__(self, schedule: Schedule, worker: CellWorker, pool: ThreadPoolExecutor) -> None:
        self._schedule, self.worker, self._pool = schedule, worker, pool
        self.cell: Cell | None = None
        self.answer: Future[dict[str, Any]] = Future()
        """What becomes of the cell."""
        self.error: str | None = None
        """Why nothing can go on."""
        self._losses = 0
        """Times in a row that the worker of this cell was lost."""
        self._is_given_up = self._is_done = False

    def advance(self, *, may_begin: bool) -> None:
        """Take the answer if there is one, begin the next cell, or give a cell up that is beaten."""
        if self.cell is not None and self.answer.done():
            self._take(self.cell, self.answer.result())
        if self.cell is None and may_begin and self.error is None and not self._is_done:
            self._begin()
        elif self.cell is not None and self._schedule.is_beaten(self.cell):
            self._is_given_up = True
            self.worker.give_up(self.cell.name)

    def env_steps(self) -> int:
        """Env steps of the cell in progress."""
        assert self.cell is not None
        return min(self.cell.total_env_steps, newest_env_steps(self._schedule.out, self.cell))

    def _begin(self) -> None:
        self.cell, self._losses, self._is_given_up = self._schedule.next(), 0, False
        if self.cell is not None:
            self._ask(self.cell)
        else:
            self._is_done = True
            self.worker.close()

    def _ask(self, cell: Cell) -> None:
        origin = asdict(self._schedule.plan.origin)
        self.answer = self._pool.submit(self.worker.ask, cell=cell.to_json(), origin=origin)

    def _take(self, cell: Cell, answer: dict[str, Any]) -> None:
        """Handle the end of a cell. A requested stop leaves it to the next call."""
        kind, reason = answer["answer"], answer.get("reason")
        self.cell = None
        if kind == ERROR:
            self.error = reason
        elif kind in (STOPPED, LOST) and self._is_given_up:
            self._schedule.take(cell, None)
        elif kind == LOST and self._losses < MOST_LOSSES - 1:
            self._losses += 1
            logger.warning(f"{cell.name}: {reason}. The cell is run again.")
            self.cell = cell
            self._ask(cell)
        elif kind != STOPPED:
            result = result_of(self._schedule.out, self._schedule.plan, cell)
            if kind in (DIED, LOST) and (result is None or result.failed is not None):
                times = f", {MOST_LOSSES} times in a row" if kind == LOST else ""
                result = self._schedule.plan.origin.failure(cell, f"{reason}{times}")
                cells.write(self._schedule.out, result)
            self._schedule.take(cell, result)


def results(out: Path, plan: StudyPlan) -> list[Result]:
    """The results so far, in plan order."""
    found = (result_of(out, plan, cell) for cell in plan.cells)
    return [result for result in found if result is not None]


def result_of(out: Path, plan: Plan, cell: Cell) -> Result | None:
    """The result of a cell; None if it has not been run. One that belongs to another plan is refused."""
    result, path = cells.read(out, cell.name), cells.path_of(out, cell.name)
    if result is None:
        return None
    if result.plan_hash != plan.hash:
        raise UserError(f"{path} belongs to another plan")
    if not result.cell.is_same(cell):
        raise UserError(f"{path} is damaged: the plan has another cell of that name")
    cells.validate_curve_length(result, plan.bins, where=str(path))
    return result


def newest_env_steps(out: Path, cell: Cell) -> int:
    """Env steps of the newest row of a cell, whose process continues to write; 0 before the first."""
    path = out / RUNS / cell.name / METRICS_FILE
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_ROW))
            lines = file.read().splitlines(keepends=True)
        return next(int(json.loads(line)["env_steps"]) for line in reversed(lines) if line.endswith(b"\n"))
    except (OSError, ValueError, KeyError, StopIteration):
        return 0


def curve_so_far(out: Path, cell: Cell, bins: int) -> curves.Points:
    """The points of a cell's curve that no later row can change: those of the finished parts of the run.

    They are the first points of the finished cell's curve.
    """
    rows = log.read(out / RUNS / cell.name)
    reached = int(rows[-1]["env_steps"]) if rows else 0
    points = curves.return_curve(rows, cell.total_env_steps, bins) if rows else ()
    # A row at the very end of a part belongs to it, and the next one to the part that follows.
    return tuple(point for point in points[:-1] if point[0] <= reached)
