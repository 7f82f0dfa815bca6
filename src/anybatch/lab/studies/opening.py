"""Opening a folder: its plan and the package's source are written, or found there and compared.

Cells run from the copy of the package, unaffected by changes to the checkout.
"""

import contextlib
import hashlib
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from anybatch.errors import ConfigError, UserError
from anybatch.lab.studies.cells import RANDOM_ARM, RUNS, SOURCE, Cell
from anybatch.lab.studies.duration import kind, makespan
from anybatch.lab.studies.executor import DONE, LOG_FILE, LocalWorker
from anybatch.lab.studies.files import Study
from anybatch.lab.studies.plan import Request, StudyPlan, file_name, make_plan
from anybatch.lab.studies.plan_file import Plan
from anybatch.runs import folder as run_folder
from anybatch.storage import safe_files
from anybatch.storage.safe_files import Folder
from anybatch.text import duration_text

PACKAGE = Path(__file__).resolve().parents[2]
COMPILED = "__pycache__"
logger = logging.getLogger(__name__)

SECONDS_PER_CELL = 5.0
"""Building the environments, and the evaluation at the end."""
ENOUGH_SEEDS = 3
"""Number of seeds up to which a budget is spent on seeds instead of further parts of the grid."""
NOT_KEPT = (f"{RUNS}/", f"{SOURCE}/", LOG_FILE, run_folder.LOCK_FILE)
"""Files that are needed only while cells run."""

AnyPlan = TypeVar("AnyPlan", bound=Plan)


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
    plan, there = make_plan(study, request), StudyPlan.read(out)
    if there is not None:
        # A file may be named in several ways; the plan has its content.
        is_same_request = replace(there.request, study=request.study) == request
        if request.budget_seconds is not None and is_same_request:
            plan = plan.within(parts=there.parts, seeds=there.most_seeds)
        validate_same_plan(out, there, plan)
        return there
    if request.budget_seconds is not None:
        plan = within_budget(plan, request.budget_seconds, jobs=jobs, named_envs=request.envs)
    return begun(out, plan)


def begun(out: Path, plan: AnyPlan) -> AnyPlan:
    """Write a plan into a new folder, with the source that its cells run from."""
    plan = replace(plan, facts=freeze(out))
    ignore_in_git(out)
    plan.write(out)
    return plan


def validate_same_plan(out: Path, there: AnyPlan, plan: AnyPlan) -> None:
    """Refuse a folder whose plan, or copy of the package, is not the same."""
    plan.validate_same_plan(out, there)
    restore(out, there.facts)


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
    rates = measured(plan.cells, threads=plan.threads, named_envs=named_envs)
    left = budget - (time.monotonic() - began)

    def seconds(parts: int, seeds: int) -> float:
        cells = plan.within(parts=parts, seeds=seeds).cells
        return makespan((cell_seconds(cell, rates) for cell in cells), jobs)

    in_parallel = f"{jobs} at a time" if jobs > 1 else "one after another"
    chosen = most_that_fits(plan, left, seconds)
    if chosen is None:
        smallest = plan.within(parts=1, seeds=1)
        fewer = "fewer environments with --env, " if len({cell.env for cell in plan.cells}) > 1 else ""
        raise ConfigError(
            f"the first part of the grid takes about {duration_text(seconds(1, 1))} with a single seed, its "
            f"{len(smallest.cells)} cells {in_parallel}, which is more than what measuring has left of the "
            f"budget of {duration_text(budget)}: choose a larger budget, {fewer}or a smaller --scale"
        )
    parts, seeds = chosen
    fits = plan.within(parts=parts, seeds=seeds)
    logger.info(
        f"A budget of {duration_text(budget)}: {parts} of {plan.parts} parts of the grid fit, with {seeds} "
        f"of {plan.most_seeds} seeds, {len(fits.cells)} cells in about "
        f"{duration_text(seconds(parts, seeds))}, {in_parallel}."
    )
    if seeds == 1 < plan.most_seeds:
        logger.info(
            f"One seed cannot decide a verdict. Two of them take about {duration_text(seconds(1, 2))}."
        )
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


def measured(cells: Iterable[Cell], *, threads: int, named_envs: tuple[str, ...]) -> dict[str, float]:
    """Seconds per env step, by kind of cell."""
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="anybatch-probe-") as folder:
        aside = Path(folder)
        freeze(aside)
        with contextlib.closing(LocalWorker(aside, threads=threads, named_envs=named_envs)) as worker:
            for cell in cells:
                if cell.arm == RANDOM_ARM or kind(cell) in rates:
                    continue
                answer = worker.ask(probe=cell.to_json())
                if answer["answer"] != DONE:
                    raise UserError(f"{cell.name} cannot be timed: {answer['reason']}")
                rates[kind(cell)] = answer["seconds"]
    return rates


def files_of(package: Path) -> list[Path]:
    """The files of a package, by relative path."""
    found = (path for path in package.rglob("*") if path.is_file() and COMPILED not in path.parts)
    return sorted(path.relative_to(package) for path in found)


def digest(package: Path) -> str:
    """SHA-256 of the names and contents of a package's files."""
    total = hashlib.sha256()
    for path in files_of(package):
        total.update(f"{path.as_posix()}\0".encode())
        total.update(hashlib.sha256((package / path).read_bytes()).digest())
    return total.hexdigest()


def freeze(out: Path) -> dict[str, Any]:
    """Copy the package into the folder of a plan. Returns the facts about it that the plan records."""
    copy = out / SOURCE / PACKAGE.name
    if copy.exists():
        validate_copy(copy)
    safe_files.remove_tree(copy, within=out)
    for path in files_of(PACKAGE):
        place = Folder.opened((copy / path).parent, within=out, make=True)
        with place as folder, folder.new(path.name) as file:
            file.write((PACKAGE / path).read_bytes())
    known = run_folder.facts(engine="", device="", native_code=False, threads=0)
    facts = {name: known[name] for name in ("anybatch", "git_commit", "python", "torch")}
    return facts | {"source": digest(copy)}


def validate_copy(copy: Path) -> None:
    """Refuse to remove files that this package does not have, or not fully as after a kill."""
    for path in files_of(copy):
        ours = PACKAGE / path
        if not ours.is_file() or not ours.read_bytes().startswith((copy / path).read_bytes()):
            raise UserError(
                f"{copy / path} is not a copy of this package and would be lost: choose another folder "
                "with --out"
            )


def restore(out: Path, facts: Mapping[str, Any]) -> None:
    """Make sure that the copy is the one that the plan was made with, by its recorded `facts`.

    A folder without the copy gets it again, from this package if it is still the same.
    """
    copy, recorded = out / SOURCE / PACKAGE.name, facts.get("source")
    if not copy.exists() and digest(PACKAGE) == recorded:
        freeze(out)
    if not copy.exists() or digest(copy) != recorded:
        commit = facts.get("git_commit")
        checkout = f"Continue it with the package of commit {commit}, or choose" if commit else "Choose"
        raise UserError(
            f"{out / SOURCE} is not the source that the plan was made with, so new cells would not be "
            f"comparable with the existing ones. {checkout} another folder with --out"
        )
