"""A tuning whose trials and check are made up: the plan is the library's, the returns follow a formula."""

import math
from dataclasses import replace
from pathlib import Path

import made_studies
import numpy as np

from anybatch.lab.tuning import tuned_file
from anybatch.lab.tuning.outcome import Outcome
from anybatch.lab.tuning.plan import Request, TuningPlan, make_plan
from anybatch.lab.tuning.trials import Trial, best_of, importances


def outcome_in(out: Path, *, trials: int = 40, tuned: float = 1.0) -> Outcome:
    """Only the learning rate counts; every fourth trial is pruned, and the next failed.

    In the check, the original preset reaches 1, and the best trial `tuned`.
    """
    plan = make_plan(Request(preset="cartpole-ppo-ewma"))
    rng = np.random.default_rng(3)
    made = [trial_of(plan, number, rng) for number in range(trials)]
    best = best_of(made)
    assert best is not None
    path = tuned_file.write(out, plan, best, trials)
    checked = tuned_file.check_plan(out, replace(plan, facts={"anybatch": "0"}))
    skill = {tuned_file.TUNED: tuned}
    results = [
        made_studies.result_of(checked, cell, lambda cell: skill.get(cell.arm, 1.0)) for cell in checked.cells
    ]
    return Outcome(
        folder=out,
        preset_file=path,
        plan=plan,
        trials=made,
        importances=importances(plan.ranges, made),
        check=checked,
        results=results,
    )


def trial_of(plan: TuningPlan, number: int, rng: np.random.Generator) -> Trial:
    places = {
        one.name: math.exp(rng.uniform(*map(math.log, one.places))) if number else one.first
        for one in plan.ranges
    }
    point = plan.numbers(places)
    value = 400 - 50 * math.log(point["learning-rate"] / 1e-3) ** 2
    if number % 4 == 2:
        return Trial(number=number, point=point, state="pruned", value=value / 2)
    if number == 3:
        return Trial(number=number, point=point, state="failed")
    return Trial(number=number, point=point, state="finished", value=value)
