"""Opening the folder of a study: its plan is made and written, or found there and compared."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from anybatch.errors import ConfigError, UserError
from anybatch.runs import folder as run_folder
from anybatch.studies import plan as plans
from anybatch.studies import source
from anybatch.studies.cells import RANDOM_ARM, RUNS, SOURCE, Cell
from anybatch.studies.duration import in_words
from anybatch.studies.files import Study
from anybatch.studies.plan import Request, StudyPlan, file_name, make_plan
from anybatch.studies.processes import DONE, LOG_FILE, Worker
from anybatch.studies.work import kind, makespan

SECONDS_PER_CELL = 5.0
"""Building the environments, and the evaluation at the end."""
NOT_KEPT = (f"{RUNS}/", f"{SOURCE}/", LOG_FILE, run_folder.LOCK_FILE)
"""What is of use only while the study runs."""

Say = Callable[[str], None]


def default_folder(request: Request) -> Path:
    """studies/invariance-cpu, with the environments and what else was asked for behind it."""
    name = Path(request.study).stem
    parts = [name, request.scale, *request.envs, *(["tune"] if request.tune else [])]
    return Path("studies") / "-".join(file_name([part]) for part in parts)


def open_study(study: Study, request: Request, out: Path, *, jobs: int, say: Say) -> StudyPlan:
    """The plan of a study in its folder, which is written before the first cell is run.

    A folder that holds another plan is refused. Where there is a budget, the number of seeds is chosen to fit
    it, once: later calls take the number that the folder has.
    """
    plan, there = make_plan(study, request), plans.read(out)
    if there is not None:
        if there.request == request and request.budget_seconds is not None:
            plan = plan.with_seeds(there.most_seeds)
        plans.refuse_another(out, there, plan)
        source.restore(out, there.facts["source"])
        return there
    if request.budget_seconds is not None:
        plan = within_budget(plan, request.budget_seconds, jobs=jobs, named_envs=request.envs, say=say)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"No study can be kept in {out}: {error.strerror}.") from error
    (out / ".gitignore").write_text("".join(f"{name}\n" for name in NOT_KEPT))
    plan = replace(plan, facts=source.freeze(out))
    plans.write(out, plan)
    return plan


def within_budget(
    plan: StudyPlan, budget: float, *, jobs: int, named_envs: tuple[str, ...], say: Say
) -> StudyPlan:
    """The plan with as many of its seeds as fit the budget."""
    say("Measuring how long cells take …")
    rates = measured(plan, named_envs)

    def seconds(count: int) -> float:
        cells = plan.with_seeds(count).cells
        return makespan((cell_seconds(cell, rates) for cell in cells), jobs)

    side_by_side = f"{jobs} at a time" if jobs > 1 else "one after another"
    fitting = [count for count in range(1, plan.most_seeds + 1) if seconds(count) <= budget]
    if not fitting:
        raise ConfigError(
            f"the {len(plan.with_seeds(1).cells)} cells of a single seed take about {in_words(seconds(1))} "
            f"{side_by_side}, which is more than the budget of {in_words(budget)}: choose a larger budget, "
            "fewer environments with --env, or a smaller --scale"
        )
    fits = plan.with_seeds(fitting[-1])
    say(
        f"A budget of {in_words(budget)}: {fitting[-1]} of {plan.most_seeds} seeds fit, {len(fits.cells)} "
        f"cells in about {in_words(seconds(fitting[-1]))}, {side_by_side}."
    )
    return fits


def cell_seconds(cell: Cell, rates: Mapping[tuple[object, ...], float]) -> float:
    learning = 0.0 if cell.arm == RANDOM_ARM else cell.total_env_steps * rates[kind(cell)]
    return SECONDS_PER_CELL + learning


def measured(plan: StudyPlan, named_envs: tuple[str, ...]) -> dict[tuple[object, ...], float]:
    """Seconds for each env step, by the kind of cell."""
    rates: dict[tuple[object, ...], float] = {}
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
