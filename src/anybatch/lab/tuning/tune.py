"""A tuning from start to end: open the folder, search, write the preset, check it, report."""

import logging
from collections.abc import Sequence
from pathlib import Path

from anybatch.errors import ConfigError, UserError
from anybatch.lab.pages import report_files
from anybatch.lab.studies import plan as study_plans
from anybatch.lab.studies import runner as study_runner
from anybatch.lab.studies.cells import CELLS
from anybatch.lab.studies.cells import PLAN_FILE as CHECK_FILE
from anybatch.lab.studies.processes import LOG_FILE, LocalEngine
from anybatch.lab.tuning import check, opening, optuna_trials, page, runner, tuned_file
from anybatch.lab.tuning import plan as plans
from anybatch.lab.tuning.optuna_trials import TrialBook, importances
from anybatch.lab.tuning.outcome import RESULT_FILE, Outcome
from anybatch.lab.tuning.plan import Request, TuningPlan, make_plan
from anybatch.lab.tuning.trials import Trial, best_of
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.text import counted

logger = logging.getLogger(__name__)

REPORT_FOLDER = "report"


def tune(request: Request, *, out: Path | None, jobs: int, output: Output) -> Outcome:
    """Complete a tuning and return its outcome. Raises Stopped at a signal."""
    optuna_trials.refuse_missing()
    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1")
    env = make_plan(request).env  # refuses a wrong request before there is a folder
    out = out or opening.default_folder(request, env)
    named = (env,) if request.env is not None else ()
    with run_folder.made_and_locked(out, what="tuning"):
        plan = opening.open_tuning(request, out, jobs=jobs)
        book = TrialBook(out, plan, jobs=jobs)
        logger.info(said_of(plan))
        runner.run(out, plan, book, jobs=jobs, output=output, named_envs=named)
        trials = book.trials()
        best = the_best(out, trials)
        tuned_file.write(out, plan, best, len(trials))
        checked = check.open_check(out, plan)
        engine = LocalEngine(jobs)
        study_runner.run(out, checked, engine, output=output, named_envs=named, retry_failed=True)
        outcome = outcome_of(out, plan, trials)
        sentence = f"Final check: {outcome.verdict.reason}"
        tuned_file.write(out, plan, best, len(trials), checked=sentence)
        run_folder.write_json(out / RESULT_FILE, outcome.to_json())
        report_files.write(page.report(outcome), out / REPORT_FOLDER, within=out)
    return outcome


def read(out: Path) -> Outcome:
    """The outcome of a completed tuning. Nothing is written, so that it may be running."""
    plan = plans.read(out)
    if plan is None or not (out / RESULT_FILE).exists():
        raise UserError(f"{out} has no result yet: the command that began this tuning continues it")
    if not (out / CHECK_FILE).exists():
        raise UserError(f"{out / CHECK_FILE} is missing: it is the plan of the final check")
    return outcome_of(out, plan, optuna_trials.read(out, plan))


def is_tuning(path: Path) -> bool:
    """Whether a folder is a tuning's."""
    return (path / plans.PLAN_FILE).is_file()


def outcome_of(out: Path, plan: TuningPlan, trials: Sequence[Trial]) -> Outcome:
    """The outcome of the trials and the check in a folder."""
    checked = study_plans.read(out)
    assert checked is not None
    results = study_runner.results(out, checked)
    return Outcome(
        folder=out,
        preset_file=out / tuned_file.TUNED_FILE,
        plan=plan,
        trials=trials,
        best=the_best(out, trials),
        importances=importances(plan.ranges, trials),
        check=checked,
        results=results,
        verdict=check.verdict_of(checked, results),
    )


def the_best(out: Path, trials: Sequence[Trial]) -> Trial:
    best = best_of(trials)
    if best is None:
        raise UserError(f"no trial finished: {out / LOG_FILE} and the files in {out / CELLS} say why")
    return best


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
