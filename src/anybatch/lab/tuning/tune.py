"""A tuning from start to end: open the folder, search, write the preset, check it, report."""

import logging
import math
import shutil
from dataclasses import replace
from pathlib import Path

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.config.serialization import config_from_dict
from anybatch.errors import ConfigError, UserError
from anybatch.lab.pages import report_files, tuning_page
from anybatch.lab.studies import opening, runner
from anybatch.lab.studies.cells import CELLS, RUNS
from anybatch.lab.studies.cells import PLAN_FILE as CHECK_FILE
from anybatch.lab.studies.duration import makespan
from anybatch.lab.studies.executor import LOG_FILE, LocalExecutor
from anybatch.lab.studies.plan import file_name
from anybatch.lab.studies.runner import StudySchedule
from anybatch.lab.tuning import trials, tuned_file
from anybatch.lab.tuning.outcome import RESULT_FILE, Outcome, outcome_of
from anybatch.lab.tuning.plan import FEWEST_TRIALS, TRIAL_ARM, Request, TuningPlan, make_plan
from anybatch.lab.tuning.search import TrialSchedule
from anybatch.lab.tuning.trials import TrialBook, best_of
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.text import counted, duration_text

logger = logging.getLogger(__name__)

REPORT_FOLDER = "report"


def tune(request: Request, *, out: Path | None, jobs: int, output: Output) -> Outcome:
    """Complete a tuning and return its outcome. Raises Stopped at a signal."""
    trials.validate_installed()
    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1")
    env = make_plan(request).env  # refuses a wrong request before there is a folder
    # Named after environment and preset, such as tuning/CartPole-v1__classic-ppo-ewma.
    out = out or Path("tuning") / file_name([env, Path(request.preset).stem])
    executor, named = LocalExecutor(jobs), (env,) if request.env is not None else ()
    with run_folder.made_and_locked(out, what="tuning"):
        plan = open_tuning(request, out, jobs=jobs)
        book = TrialBook(out, plan, jobs=jobs)
        logger.info(said_of(plan))
        runner.run(TrialSchedule(out, plan, book), executor, output=output, named_envs=named)
        shutil.rmtree(out / RUNS, ignore_errors=True)
        tried = book.trials()
        best = best_of(tried)
        if best is None:
            raise UserError(f"no trial finished: {out / LOG_FILE} and the files in {out / CELLS} say why")
        tuned_file.write(out, plan, best, len(tried))
        checked = StudySchedule(out, tuned_file.open_check(out, plan), retry_failed=True)
        runner.run(checked, executor, output=output, named_envs=named)
        outcome = outcome_of(out, plan, tried)
        tuned_file.write(out, plan, best, len(tried), checked=f"Final check: {outcome.check_sentence}")
        run_folder.write_json(out / RESULT_FILE, outcome.to_json())
        report_files.write(tuning_page.report(outcome), out / REPORT_FOLDER, within=out)
    return outcome


def open_tuning(request: Request, out: Path, *, jobs: int) -> TuningPlan:
    """The plan of a tuning in its folder, written before the first trial. The caller holds its lock.

    A folder of another tuning is refused. A budget decides the number of trials once; later calls use the
    number in the folder.
    """
    plan, there = make_plan(request), TuningPlan.read(out)
    if there is not None:
        opening.validate_same_plan(out, there, plan)
        is_same_budget = request.budget_seconds is not None and request == there.request
        return there if is_same_budget else with_trials(out, there, request)
    if (out / CHECK_FILE).exists():
        raise UserError(f"{out} is the folder of a study, not of a tuning: choose another folder with --out")
    # Build one env, so that a wrong id is reported now, not by the first trial.
    envs.make(plan.env, config_from_dict(EnvConfig, dict(plan.base["env_config"])), seeds=[0]).close()
    if request.budget_seconds is not None:
        plan = within_budget(plan, request.budget_seconds, jobs=jobs)
    return opening.begun(out, plan)


def with_trials(out: Path, there: TuningPlan, request: Request) -> TuningPlan:
    """The existing plan with the number of trials requested now, which must not be smaller."""
    if request.trials < there.trials:
        raise UserError(
            f"{out} was begun with {there.trials} trials, and --trials {request.trials} is less: use at "
            "least as many, or choose another folder with --out"
        )
    if request.trials > there.trials:
        if (out / CHECK_FILE).exists():
            raise UserError(
                f"{out} has run its final check, so its seeds are no longer fresh: for more than "
                f"{there.trials} trials choose another folder with --out"
            )
        there = replace(there, trials=request.trials, request=request)
        there.write(out)
    return there


def within_budget(plan: TuningPlan, budget: float, *, jobs: int) -> TuningPlan:
    """The plan with as many trials as fit a budget, including the final check."""
    logger.info("Measuring how long the runs take …")
    seed = plan.seeds[0]
    cells = [plan.cell("trial", TRIAL_ARM, seed, plan.base), plan.cell("check", "check", seed, plan.original)]
    named = (plan.env,) if plan.request.env is not None else ()
    rates = opening.measured(cells, threads=plan.threads, named_envs=named)
    trial, run = (opening.cell_seconds(cell, rates) for cell in cells)
    check_seconds = makespan([run] * 2 * len(plan.check_seeds), jobs)
    per_trial = trial * len(plan.seeds)
    fitting = math.floor((budget - check_seconds) / per_trial) * jobs
    needed = check_seconds + makespan([per_trial] * FEWEST_TRIALS, jobs)
    said = f"trial takes about {duration_text(per_trial)}, the final check {duration_text(check_seconds)}"
    if fitting < FEWEST_TRIALS:
        raise ConfigError(
            f"--budget: a {said}, and at least {FEWEST_TRIALS} trials are needed: about "
            f"{duration_text(needed)}, which is more than {duration_text(budget)}; choose a larger budget, "
            "fewer --env-steps or --seeds"
        )
    fitting = min(fitting, plan.trials)
    of_asked = "all" if fitting == plan.trials else f"{fitting} of"
    in_parallel = f"{jobs} at a time" if jobs > 1 else "one after another"
    logger.info(
        f"A {said}: {of_asked} {plan.trials} trials fit into {duration_text(budget)}, {in_parallel}. Trials "
        "that are pruned take less."
    )
    return replace(plan, trials=fitting)


def said_of(plan: TuningPlan) -> str:
    """The search to come, in words."""
    ranges = (f"  {one.name}: {one.low:.4g} to {one.high:.4g}, from {one.center:.4g}" for one in plan.ranges)
    outside = [one.name for one in plan.ranges if not one.low <= one.center <= one.high]
    left_out = [f"  not searched: {name}, since {reason}" for name, reason in plan.left_out.items()]
    if outside:
        left_out.append(
            f"  outside its range, so that the first trial has the nearest end: {', '.join(outside)}"
        )
    seeds, fresh = (" ".join(map(str, numbers)) for numbers in (plan.seeds, plan.check_seeds))
    said = (
        f"{plan.trials} trials of {plan.env_steps:,} env steps with {counted(plan.num_envs, 'env')} on "
        f"seeds {seeds}; then a check with {counted(plan.train_at, 'env')} on seeds {fresh}, margin "
        f"{plan.margin:g}. Searched, each "
        "from the preset's number at this batch:"
    )
    return "\n".join([said, *ranges, *left_out])
