"""Running the trials: cells in worker processes, watched while they train, and stopped when they fall behind.

All decisions are made here, in one thread, from what the cells have logged at fixed points of their run, so
they do not depend on when the runner looks.
"""

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.lab.studies import cells, curve_means, in_progress
from anybatch.lab.studies.cells import RUNS, Cell, Result
from anybatch.lab.studies.engine import DIED, ERROR, LOST, MOST_LOSSES, STOPPED, always_lost
from anybatch.lab.studies.failures import result_after_death
from anybatch.lab.studies.processes import Worker
from anybatch.lab.tuning.optuna_trials import FIRST_REPORT, REPORTS_PER_RUN, TrialBook
from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.settings import THREADS
from anybatch.lab.tuning.table import TrialTable
from anybatch.lab.tuning.trials import Trial, best_of
from anybatch.runs.display import Output
from anybatch.runs.stop import GracefulStop, Stopped
from anybatch.storage import safe_files
from anybatch.text import counted

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.1

Say = Callable[[str], None]
Points = Sequence[tuple[int, float | None]]


def run(
    out: Path,
    plan: TuningPlan,
    book: TrialBook,
    *,
    jobs: int,
    output: Output,
    named_envs: Sequence[str] = (),
) -> None:
    """Run the trials that are missing. Raises Stopped at a signal; the next call continues."""
    total = plan.trials * len(plan.seeds) * plan.env_steps
    title = f"tuning {plan.preset} on {plan.env}: {plan.trials} trials with {counted(plan.num_envs, 'env')}"
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(out, threads=THREADS, named_envs=named_envs)) for _ in range(jobs)
        ]
        display = stack.enter_context(output.display(total, title))
        stop = stack.enter_context(GracefulStop())
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        table = TrialTable(plan)
        slots = [Slot(out, plan, book, worker, pool, table) for worker in workers]
        try:
            while True:
                busy = [slot.advance(may_begin=not stop.requested) for slot in slots]
                if not any(busy):
                    break
                if stop.requested:
                    for worker in workers:
                        worker.stop()
                display.update(sum_of_env_steps(plan, book, slots), {}, note(plan, book.trials()))
                time.sleep(LOOK_EVERY_SECONDS)
        except BaseException:  # the second signal, or a trial that cannot be run: do not wait
            for worker in workers:
                worker.kill()
            raise
        display.update(sum_of_env_steps(plan, book, slots), {}, note(plan, book.trials()))
    if stop.signal is not None:
        raise Stopped(stop.signal, f"Stopped with {note(plan, book.trials())}.")
    shutil.rmtree(out / RUNS, ignore_errors=True)


def note(plan: TuningPlan, trials: Sequence[Trial]) -> str:
    """The progress of the search, in a few words."""
    ended = [trial for trial in trials if trial.state != "running"]
    pruned = sum(trial.state == "pruned" for trial in ended)
    best = best_of(trials)
    words = [f"{len(ended)} of {plan.trials} trials"]
    words += [f"{pruned} of them pruned"] if pruned else []
    words += [f"best {best.shown_value} (trial {best.number})"] if best is not None else []
    return ", ".join(words)


def sum_of_env_steps(plan: TuningPlan, book: TrialBook, slots: Sequence["Slot"]) -> int:
    """Env steps of the trials in progress, and of those that have ended, as if none were pruned."""
    ended = sum(trial.state != "running" for trial in book.trials())
    return ended * len(plan.seeds) * plan.env_steps + sum(slot.env_steps() for slot in slots)


class Slot:
    """A worker and the trial that it runs, cell after cell."""

    def __init__(
        self,
        out: Path,
        plan: TuningPlan,
        book: TrialBook,
        worker: Worker,
        pool: ThreadPoolExecutor,
        table: TrialTable,
    ) -> None:
        self._out, self._plan, self._book = out, plan, book
        self._worker, self._pool, self._table = worker, pool, table
        self._trial: Trial | None = None
        self._cells: list[Cell] = []
        self._areas: list[float] = []
        """Areas of this trial's finished cells."""
        self._answer: Future[dict[str, Any]] | None = None
        self._moment = 0
        """The newest point of the cell in progress that was reported."""
        self._losses = 0
        """Times in a row that the process of this cell was stopped from outside."""
        self._beaten = False

    def advance(self, *, may_begin: bool) -> bool:
        """Advance the trial, or begin the next one. False if there is nothing left to do."""
        if self._trial is None:
            if not may_begin:
                return False
            self._trial = self._book.next()
            if self._trial is None:
                return False
            self._cells, self._areas = list(self._plan.cells_of(self._trial)), []
            self._moment = self._losses = 0
            # An earlier process may have been killed between a report and its consequence.
            self._beaten = bool(self._trial.reports) and self._book.is_beaten(self._trial.number)
        if self._answer is None:
            return self._begin_cell(may_begin=may_begin)
        if not self._answer.done():
            self._look()
            return True
        answer, self._answer = self._answer.result(), None
        return self._take(answer)

    def env_steps(self) -> int:
        """Env steps of the trial in progress."""
        if self._trial is None or not self._cells:
            return 0
        steps = self._plan.env_steps
        done = len(self._areas)
        current = in_progress.newest(self._out, self._cells[done]) if done < len(self._cells) else 0
        return done * steps + min(current, steps)

    @property
    def _cell(self) -> Cell:
        return self._cells[len(self._areas)]

    def _begin_cell(self, *, may_begin: bool) -> bool:
        """Start the next cell of the trial. One that an earlier process has finished is not run again."""
        if self._beaten:
            self._end("pruned")
            return True
        result = cells.read(self._out, self._cell.name)
        if result is not None:
            self._take_result(result)
        elif may_begin:
            origin = {name: getattr(self._plan, name) for name in ("hash", "bins", "facts")}
            job: dict[str, Any] = {
                "cell": self._cell.name,
                "added": self._cell.to_json(),
                "origin": origin,
            }
            self._answer = self._pool.submit(self._worker.ask, **job)
        else:
            return False
        return True

    def _look(self) -> None:
        """Report what the cell has reached, and stop it if that is too little."""
        end = (self._moment + 1) * self._plan.env_steps / REPORTS_PER_RUN
        is_due = end < self._plan.env_steps and in_progress.newest(self._out, self._cell) >= end
        if is_due and not self._beaten:
            self._report(in_progress.curve(self._out, self._cell, self._plan.bins))
        if self._beaten:
            self._worker.give_up(self._cell.name)

    def _report(self, curve: Points) -> None:
        """Report the points that a curve has reached, one after another, until one of them is too low."""
        assert self._trial is not None
        before, per_moment = len(self._areas), self._plan.bins // REPORTS_PER_RUN
        for moment in range(self._moment + 1, len(curve) // per_moment + 1):
            self._moment = moment
            number = before * REPORTS_PER_RUN + moment
            area = curve_means.area(value for _, value in curve[: moment * per_moment])
            is_reported = number in self._trial.reports  # by an earlier process
            if area is None or number < FIRST_REPORT or is_reported:
                continue
            share = moment / REPORTS_PER_RUN
            value = (sum(self._areas) + share * area) / (before + share)
            self._book.report(self._trial.number, number, value)
            if self._book.is_beaten(self._trial.number):
                self._beaten = True
                return

    def _take(self, answer: dict[str, Any]) -> bool:
        """Handle the end of a cell. A requested stop leaves the trial to the next call."""
        if answer["answer"] == ERROR:
            raise UserError(answer["reason"])
        if answer["answer"] in (STOPPED, LOST) and self._beaten:
            self._end("pruned")
            return True
        if answer["answer"] == STOPPED:
            return False
        if answer["answer"] == LOST:
            self._take_loss(answer["reason"])
            return True
        if answer["answer"] == DIED:
            result = result_after_death(self._out, self._plan, self._cell, answer["reason"])
        else:
            result = cells.read(self._out, self._cell.name)
        assert result is not None
        self._take_result(result)
        return True

    def _take_loss(self, reason: str) -> None:
        """Let the cell be run again, unless that was of no use so far."""
        self._losses += 1
        if self._losses < MOST_LOSSES:
            logger.warning(f"{self._cell.name}: {reason}. It is run again.")
        else:
            lost = always_lost(reason)
            self._take_result(result_after_death(self._out, self._plan, self._cell, lost))

    def _take_result(self, result: Result) -> None:
        """Continue with the next cell of the trial, or end it."""
        assert self._trial is not None
        if result.plan_hash != self._plan.hash:
            raise UserError(f"{cells.path_of(self._out, result.cell.name)} belongs to another plan")
        if result.failed is not None:
            self._fail(result)
            return
        if not self._beaten:
            self._report(result.curve)
        if self._beaten:
            self._end("pruned")
            return
        assert result.area is not None
        self._areas.append(result.area)
        self._moment = self._losses = 0
        if len(self._areas) == len(self._cells):
            self._end("finished")

    def _fail(self, result: Result) -> None:
        """End a trial: as pruned if it diverged. Any other failure of the preset itself ends the tuning."""
        assert self._trial is not None
        if self._trial.number == 0 and not result.diverged:
            cells.remove(self._out, result.cell.name)  # the next call tries it again
            raise UserError(f"the first trial, which is the preset itself, failed: {result.failed}")
        logger.warning(f"trial {self._trial.number}: {result.failed}")
        self._end("pruned" if result.diverged else "failed")

    def _end(self, state: Any) -> None:
        assert self._trial is not None
        number, value = self._trial.number, None
        if state == "finished":
            value = sum(self._areas) / len(self._areas)
        self._book.finish(number, state, value)
        for cell in self._cells:  # the remains of a stopped run
            with contextlib.suppress(OSError):
                safe_files.remove_tree(self._out / RUNS / cell.name, within=self._out)
        self._trial, self._answer, self._beaten = None, None, False
        self._table.add(self._book.trial(number), best_of(self._book.trials()))
