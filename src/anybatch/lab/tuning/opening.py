"""Opening the folder of a tuning: its plan is made and written, or found there and compared."""

import logging
import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.config.serialization import config_from_dict
from anybatch.errors import ConfigError, UserError
from anybatch.lab.studies import source
from anybatch.lab.studies.cells import PLAN_FILE as CHECK_FILE
from anybatch.lab.studies.cells import Cell
from anybatch.lab.studies.differences import differences, refusal
from anybatch.lab.studies.duration import in_words
from anybatch.lab.studies.engine import DONE
from anybatch.lab.studies.opening import SECONDS_PER_CELL, ignore_in_git
from anybatch.lab.studies.plan import file_name
from anybatch.lab.studies.processes import Worker
from anybatch.lab.studies.work import makespan
from anybatch.lab.tuning import plan as plans
from anybatch.lab.tuning.plan import FEWEST_TRIALS, Request, TuningPlan
from anybatch.lab.tuning.settings import THREADS

logger = logging.getLogger(__name__)


def default_folder(request: Request, env: str) -> Path:
    """The default folder, named after environment and preset: tuning/CartPole-v1__cartpole-ppo-ewma."""
    return Path("tuning") / file_name([env, Path(request.preset).stem])


def open_tuning(request: Request, out: Path, *, jobs: int) -> TuningPlan:
    """The plan of a tuning in its folder, written before the first trial. The caller holds its lock.

    A folder of another tuning is refused. A budget decides the number of trials once; later calls use the
    number in the folder.
    """
    plan, there = plans.make_plan(request), plans.read(out)
    if there is not None:
        return continued(out, there, plan)
    if (out / CHECK_FILE).exists():
        raise UserError(f"{out} is the folder of a study, not of a tuning: choose another folder with --out")
    refuse_unknown_env(plan)
    if request.budget_seconds is not None:
        plan = within_budget(plan, request.budget_seconds, jobs=jobs)
    plan = replace(plan, facts=source.freeze(out))
    ignore_in_git(out)
    plans.write(out, plan)
    return plan


def continued(out: Path, there: TuningPlan, plan: TuningPlan) -> TuningPlan:
    """The existing plan, with the number of trials requested now."""
    if there.hash != plan.hash:
        raise refusal(out, list(differences(by_name(there), by_name(plan))))
    source.restore(out, there.facts)
    same_budget = plan.request.budget_seconds is not None and plan.request == there.request
    trials = there.trials if same_budget else plan.trials
    if trials < there.trials:
        raise UserError(
            f"{out} was begun with {there.trials} trials, and --trials {trials} is less: use at least as "
            "many, or choose another folder with --out"
        )
    if trials > there.trials:
        if (out / CHECK_FILE).exists():
            raise UserError(
                f"{out} has run its final check, so its seeds are no longer fresh: for more than "
                f"{there.trials} trials choose another folder with --out"
            )
        there = replace(there, trials=trials, request=plan.request)
        plans.write(out, there)
    return there


def by_name(plan: TuningPlan) -> dict[str, Any]:
    """What decides the result, with ranges by name, so that a difference can be named."""
    return plan.decisive() | {"ranges": {one.name: one.to_json() for one in plan.ranges}}


def refuse_unknown_env(plan: TuningPlan) -> None:
    """Build one env, so that a wrong id is reported now, not by the first trial."""
    envs.make(plan.env, config_from_dict(EnvConfig, dict(plan.base["env_config"])), seeds=[0]).close()


def within_budget(plan: TuningPlan, budget: float, *, jobs: int) -> TuningPlan:
    """The plan with as many trials as fit a budget, including the final check."""
    logger.info("Measuring how long the runs take …")
    trial, check = (plan.env_steps * rate + SECONDS_PER_CELL for rate in measured(plan))
    check_seconds = makespan([check] * 2 * len(plan.check_seeds), jobs)
    per_trial = trial * len(plan.seeds)
    fitting = math.floor((budget - check_seconds) / per_trial) * jobs
    needed = check_seconds + makespan([per_trial] * FEWEST_TRIALS, jobs)
    said = f"trial takes about {in_words(per_trial)}, the final check {in_words(check_seconds)}"
    if fitting < FEWEST_TRIALS:
        raise ConfigError(
            f"--budget: a {said}, and at least {FEWEST_TRIALS} trials are needed: about {in_words(needed)}, "
            f"which is more than {in_words(budget)}; choose a larger budget, fewer --env-steps or --seeds"
        )
    trials = min(fitting, plan.trials)
    of_asked = "all" if trials == plan.trials else f"{trials} of"
    side_by_side = f"{jobs} at a time" if jobs > 1 else "one after another"
    logger.info(
        f"A {said}: {of_asked} {plan.trials} trials fit into {in_words(budget)}, {side_by_side}. Trials that "
        "are pruned take less."
    )
    return replace(plan, trials=trials)


def measured(plan: TuningPlan) -> tuple[float, float]:
    """Seconds per env step of a trial and of a check run."""
    origin = {"hash": plan.hash, "bins": plan.bins, "facts": {}}
    rates: list[float] = []
    with tempfile.TemporaryDirectory(prefix="anybatch-probe-") as folder:
        aside = Path(folder)
        source.freeze(aside)
        named = (plan.env,) if plan.request.env is not None else ()
        with Worker(aside, threads=THREADS, named_envs=named) as worker:
            for cell in (probed(plan, "trial", plan.base), probed(plan, "check", plan.original)):
                answer = worker.ask(probe=cell.name, added=cell.to_json(), origin=origin)
                if answer["answer"] != DONE:
                    raise UserError(f"the runs cannot be timed: {answer['reason']}")
                rates.append(answer["seconds"])
    return rates[0], rates[1]


def probed(plan: TuningPlan, name: str, settings: Mapping[str, Any]) -> Cell:
    return Cell(
        name=name,
        part=1,
        env=plan.env,
        base=Path(plan.preset).stem,
        arm=name,
        ratio="1",
        seed=plan.seeds[0],
        config=dict(settings) | {"seed": plan.seeds[0]},
    )
