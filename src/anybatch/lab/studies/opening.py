"""Opening the folder of a study: its plan is made and written, or found there and compared."""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from anybatch.errors import ConfigError, UserError
from anybatch.lab.studies import plan as plans
from anybatch.lab.studies import source
from anybatch.lab.studies.cells import RANDOM_ARM, RUNS, SOURCE, Cell
from anybatch.lab.studies.differences import refuse_another
from anybatch.lab.studies.duration import in_words
from anybatch.lab.studies.engine import DONE
from anybatch.lab.studies.files import Study
from anybatch.lab.studies.plan import Request, StudyPlan, file_name, make_plan
from anybatch.lab.studies.processes import LOG_FILE, Worker
from anybatch.lab.studies.work import kind, makespan
from anybatch.runs import folder as run_folder
from anybatch.storage.safe_files import Folder

logger = logging.getLogger(__name__)

SECONDS_PER_CELL = 5.0
"""Building the environments, and the evaluation at the end."""
ENOUGH_SEEDS = 3
"""Number of seeds up to which a budget is spent on seeds instead of further parts of the grid."""
NOT_KEPT = (f"{RUNS}/", f"{SOURCE}/", LOG_FILE, run_folder.LOCK_FILE)
"""Files that are needed only while the study runs."""


def default_folder(request: Request) -> Path:
    """The default folder: studies/invariance-cpu, followed by the environments and other requests."""
    name = Path(request.study).stem
    parts = [name, request.scale, *request.envs, *(["tune"] if request.tune else [])]
    return Path("studies") / "-".join(file_name([part]) for part in parts)


def open_study(study: Study, request: Request, out: Path, *, jobs: int) -> StudyPlan:
    """The plan of a study in its folder, written before the first cell is run. The caller holds its lock.

    A folder with another plan is refused. With a budget, parts and seeds are chosen once to fit it; later
    calls use those in the folder.
    """
    plan, there = make_plan(study, request), plans.read(out)
    if there is not None:
        if request.budget_seconds is not None and is_same(there.request, request):
            plan = plan.within(parts=there.parts, seeds=there.most_seeds)
        refuse_another(out, there, plan)
        source.restore(out, there.facts)
        return there
    if request.budget_seconds is not None:
        plan = within_budget(plan, request.budget_seconds, jobs=jobs, named_envs=request.envs)
    plan = replace(plan, facts=source.freeze(out))
    ignore_in_git(out)
    plans.write(out, plan)
    return plan


def is_same(there: Request, here: Request) -> bool:
    """Whether two requests are the same. A file may be named in several ways; the plan has its content."""
    return replace(there, study=here.study) == here


def ignore_in_git(out: Path) -> None:
    """Exclude from git what is not kept. The folder may be one of the user's, with rules of its own."""
    with Folder.opened(out) as place, place.append(".gitignore") as file:
        file.seek(0)
        there = file.readall()
        missing = [name for name in NOT_KEPT if name.encode() not in there.splitlines()]
        ending = b"\n" if missing and there and not there.endswith(b"\n") else b""
        file.write(ending + "".join(f"{name}\n" for name in missing).encode())


def within_budget(plan: StudyPlan, budget: float, *, jobs: int, named_envs: tuple[str, ...]) -> StudyPlan:
    """The plan with as many parts of its grid, and as many seeds of them, as fit the budget."""
    logger.info("Measuring how long cells take …")
    began = time.monotonic()
    rates = measured(plan, named_envs)
    left = budget - (time.monotonic() - began)

    def seconds(parts: int, seeds: int) -> float:
        cells = plan.within(parts=parts, seeds=seeds).cells
        return makespan((cell_seconds(cell, rates) for cell in cells), jobs)

    side_by_side = f"{jobs} at a time" if jobs > 1 else "one after another"
    chosen = most_that_fits(plan, left, seconds)
    if chosen is None:
        smallest = plan.within(parts=1, seeds=1)
        fewer = "fewer environments with --env, " if len({cell.env for cell in plan.cells}) > 1 else ""
        raise ConfigError(
            f"the first part of the grid takes about {in_words(seconds(1, 1))} with a single seed, its "
            f"{len(smallest.cells)} cells {side_by_side}, which is more than what measuring has left of the "
            f"budget of {in_words(budget)}: choose a larger budget, {fewer}or a smaller --scale"
        )
    parts, seeds = chosen
    fits = plan.within(parts=parts, seeds=seeds)
    logger.info(
        f"A budget of {in_words(budget)}: {parts} of {plan.parts} parts of the grid fit, with {seeds} of "
        f"{plan.most_seeds} seeds, {len(fits.cells)} cells in about {in_words(seconds(parts, seeds))}, "
        f"{side_by_side}."
    )
    if seeds == 1 < plan.most_seeds:
        logger.info(f"One seed cannot decide a verdict. Two of them take about {in_words(seconds(1, 2))}.")
    return fits


def most_that_fits(
    plan: StudyPlan, budget: float, seconds: Callable[[int, int], float]
) -> tuple[int, int] | None:
    """Parts of the grid and seeds that fit a budget. Further parts are added only with enough seeds."""
    for parts in range(plan.parts, 0, -1):
        fitting = [seeds for seeds in range(1, plan.most_seeds + 1) if seconds(parts, seeds) <= budget]
        if fitting and (parts == 1 or fitting[-1] >= min(ENOUGH_SEEDS, plan.most_seeds)):
            return parts, fitting[-1]
    return None


def cell_seconds(cell: Cell, rates: Mapping[str, float]) -> float:
    learning = 0.0 if cell.arm == RANDOM_ARM else cell.total_env_steps * rates[kind(cell)]
    return SECONDS_PER_CELL + learning


def measured(plan: StudyPlan, named_envs: tuple[str, ...]) -> dict[str, float]:
    """Seconds per env step, by kind of cell."""
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="anybatch-probe-") as folder:
        aside = Path(folder)
        plans.write(aside, replace(plan, facts=source.freeze(aside)))
        with Worker(aside, threads=plan.threads, named_envs=named_envs) as worker:
            for cell in plan.cells:
                if cell.arm == RANDOM_ARM or kind(cell) in rates:
                    continue
                answer = worker.ask(probe=cell.name)
                if answer["answer"] != DONE:
                    raise UserError(f"{cell.name} cannot be timed: {answer['reason']}")
                rates[kind(cell)] = answer["seconds"]
    return rates
