"""The search: which runs of which trials come next. A trial that falls behind is pruned.

Decisions depend on what runs have logged at fixed points, not on when the runner looks.
"""

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

from anybatch.errors import UserError
from anybatch.lab.studies import cells, curves
from anybatch.lab.studies.cells import RUNS, Cell, Result
from anybatch.lab.studies.runner import Schedule, curve_so_far, newest_env_steps, result_of
from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.trials import State, Trial, TrialBook, best_of
from anybatch.storage import safe_files
from anybatch.text import counted

logger = logging.getLogger(__name__)

REPORTS_PER_RUN = 10
"""Points of a run at which it is compared with earlier runs."""
FIRST_REPORT = 3
"""The first of these points that counts: the start of a curve says little."""


@dataclass
class InProgress:
    """A trial whose cells are run one after another."""

    trial: Trial
    cells: list[Cell]
    is_beaten: bool
    areas: list[float] = field(default_factory=list[float])
    """Areas of its finished cells."""
    moment: int = 0
    """The newest point of the current cell that was reported."""
    is_training: bool = False

    @property
    def cell(self) -> Cell:
        return self.cells[len(self.areas)]


class TrialSchedule(Schedule):
    """The runs of the trials that a book suggests, each with one cell for each seed."""

    def __init__(self, out: Path, plan: TuningPlan, book: TrialBook) -> None:
        envs = counted(plan.num_envs, "env")
        super().__init__(
            out,
            plan,
            threads=plan.threads,
            title=f"tuning {plan.preset} on {plan.env}: {plan.trials} trials with {envs}",
            total_env_steps=plan.trials * len(plan.seeds) * plan.env_steps,
        )
        self.plan, self._book = plan, book
        self._open: dict[str, InProgress] = {}
        ended = sum(trial.state != "running" for trial in book.trials())
        self.env_steps = ended * len(plan.seeds) * plan.env_steps

    def next(self) -> Cell | None:
        """A cell of a trial that has begun, or of the next one."""
        while True:
            waiting = (one for one in self._open.values() if not one.is_training)
            current = next(waiting, None) or self._begin()
            if current is None:
                return None
            if current.is_beaten:
                self._end(current, "pruned")
                continue
            result = result_of(self.out, self.plan, current.cell)  # perhaps of an earlier process
            if result is None:
                current.is_training = True
                return current.cell
            self._take_result(current, result)

    def is_beaten(self, cell: Cell, /) -> bool:
        """Report what a cell has reached. True if that is too little."""
        current = self._open[cell.group]
        end = (current.moment + 1) * self.plan.env_steps / REPORTS_PER_RUN
        is_due = end < self.plan.env_steps and newest_env_steps(self.out, cell) >= end
        if is_due and not current.is_beaten:
            self._report(current, curve_so_far(self.out, cell, self.plan.bins))
        return current.is_beaten

    def take(self, cell: Cell, result: Result | None) -> None:
        current = self._open[cell.group]
        current.is_training = False
        if result is None:
            self._end(current, "pruned")
        else:
            self._take_result(current, result)

    def note(self) -> str:
        trials = self._book.trials()
        ended = [trial for trial in trials if trial.state != "running"]
        pruned = sum(trial.state == "pruned" for trial in ended)
        best = best_of(trials)
        words = [f"{len(ended)} of {self.plan.trials} trials"]
        words += [f"{pruned} of them pruned"] if pruned else []
        words += [f"best {best.shown_value} (trial {best.number})"] if best is not None else []
        return ", ".join(words)

    def _begin(self) -> InProgress | None:
        trial = self._book.next()
        if trial is None:
            return None
        # An earlier process may have been killed between a report and its consequence.
        is_beaten = bool(trial.reports) and self._book.is_beaten(trial.number)
        self._open[trial.name] = InProgress(trial, trial.cells(self.plan), is_beaten)
        return self._open[trial.name]

    def _report(self, current: InProgress, curve: curves.Points) -> None:
        """Report the points that a curve has reached, one after another, until one of them is too low."""
        before, per_moment = len(current.areas), self.plan.bins // REPORTS_PER_RUN
        for moment in range(current.moment + 1, len(curve) // per_moment + 1):
            current.moment = moment
            number = before * REPORTS_PER_RUN + moment
            area = curves.area(value for _, value in curve[: moment * per_moment])
            is_reported = number in current.trial.reports  # by an earlier process
            if area is None or number < FIRST_REPORT or is_reported:
                continue
            share = moment / REPORTS_PER_RUN
            value = (sum(current.areas) + share * area) / (before + share)
            self._book.report(current.trial.number, number, value)
            if self._book.is_beaten(current.trial.number):
                current.is_beaten = True
                return

    def _take_result(self, current: InProgress, result: Result) -> None:
        """Go on to the next cell of a trial, or end it. A failure of the preset itself ends the tuning."""
        number = current.trial.number
        if result.failed is not None:
            if number == 0 and not result.diverged:
                cells.remove(self.out, result.cell.name)  # the next call tries it again
                raise UserError(f"the first trial, which is the preset itself, failed: {result.failed}")
            logger.warning(f"trial {number}: {result.failed}")
            self._end(current, "pruned" if result.diverged else "failed")
            return
        if not current.is_beaten:
            self._report(current, result.curve)
        if current.is_beaten:
            self._end(current, "pruned")
            return
        assert result.area is not None
        current.areas.append(result.area)
        current.moment = 0
        self.env_steps += self.plan.env_steps
        if len(current.areas) == len(current.cells):
            self._end(current, "finished")

    def _end(self, current: InProgress, state: State) -> None:
        number, areas = current.trial.number, current.areas
        self._book.finish(number, state, sum(areas) / len(areas) if state == "finished" else None)
        for cell in current.cells:  # the remains of a stopped run
            with contextlib.suppress(OSError):
                safe_files.remove_tree(self.out / RUNS / cell.name, within=self.out)
        self.env_steps += (len(current.cells) - len(areas)) * self.plan.env_steps  # as if it had ended
        del self._open[current.trial.name]
        self._show(self._book.trial(number))

    def _show(self, trial: Trial) -> None:
        """Print what a trial has reached, and its numbers."""
        best = best_of(self._book.trials())
        is_best = best is not None and best.number == trial.number
        ending = "best so far" if is_best else "" if trial.is_finished else trial.state
        numbers = ", ".join(f"{one.name} {trial.point[one.name]:.4g}" for one in self.plan.ranges)
        logger.info(f"trial {trial.number:>3}  area {trial.shown_value:>8}  {numbers}  {ending}".rstrip())
