"""Studies whose results are made up: plans as the library makes them, curves by a formula.

They show pages and figures of studies that would take hours to run.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.serialization import config_from_dict
from anybatch.dial import make_plan as make_run_plan
from anybatch.dial import plan_table
from anybatch.lab.studies import cells
from anybatch.lab.studies.cells import RANDOM_ARM, Cell, Result
from anybatch.lab.studies.files import parse
from anybatch.lab.studies.plan import Request, StudyPlan, make_plan

SWEEP = """
title = "Transfer of the learning rate"
claim = "The best learning rate at one batch is the best at all, after the rule."
reference = { arm = "all", ratio = "1" }
[ranges]
"toy:Match" = [1, 21]
[bases.toy]
preset = "cartpole-ppo-ewma"
settings = { num_envs = 64, num_steps = 8, update = { epochs = 1, minibatches_per_epoch = 4 } }
[arms.all]
title = "all rules"
settings = { rescale = "all" }
[scales.smoke]
base = "toy"
envs = ["toy:Match"]
seeds = [1, 2, 3]
total_env_steps = 10_000
[[scales.smoke.grid]]
arms = ["all"]
ratios = ["1", "1/4", "1/16"]
factors = { "optimizer.learning_rate" = [0.25, 0.5, 1, 2, 4] }
[[verdicts]]
name = "optimum"
claim = "The optimum is where the rule says."
rule = "optimum"
this = { arm = "all", ratio = ["1", "1/4", "1/16"] }
setting = "optimizer.learning_rate"
notch = 2.0
[[verdicts]]
name = "noise"
claim = "The noise scale at the end of a run."
rule = "estimate"
metric = "batch/noise_scale"
this = { arm = "all", factors = { "optimizer.learning_rate" = 1.0 } }
"""
STALE = """
title = "Stale data"
claim = "The decoupled loss does not mind old data."
reference = { arm = "decoupled", ratio = "1" }
[ranges]
"toy:Corridor" = [1, 21]
"toy:Match" = [1, 21]
"toy:Walk" = [1, 21]
[bases.toy]
preset = "cartpole-ppo-ewma"
[arms.decoupled]
title = "decoupled"
[arms.behavior]
title = "anchored to the behavior policy"
settings = { proximal = { policy = "behavior" } }
[scales.smoke]
base = "toy"
envs = ["toy:Match", "toy:Corridor"]
seeds = [1, 2]
total_env_steps = 10_000
[[scales.smoke.grid]]
arms = ["decoupled", "behavior"]
ratios = ["1"]
sweep = { "staleness.iterations" = [0, 2, 8] }
[[verdicts]]
name = "flat"
claim = "Data eight iterations old is as good as fresh data."
rule = "equivalent"
margin = 0.2
control = { arm = "behavior" }
this = { arm = "decoupled", point = { "staleness.iterations" = [2, 8] } }
that = { point = { "staleness.iterations" = 0 } }
"""

Skill = Callable[[Cell], float]


def plan_of(text: str, name: str = "made") -> StudyPlan:
    return make_plan(parse(name, text), Request(study=name, scale="smoke"))


def skill(cell: Cell) -> float:
    """How well a cell learns: batches count without their rule, factors away from 1 and age do harm."""
    lost = 0.12 * abs(math.log(cell.ratio_value)) if cell.arm not in ("all", "oracle") else 0.0
    lost += 0.1 * sum(math.log2(factor) ** 2 for factor in cell.factors.values())
    lost += sum(0.02 * value for value in cell.point.values() if isinstance(value, int))
    return max(0.1, 1 - lost)


def result_of(plan: StudyPlan, cell: Cell, score: Skill = skill) -> Result:
    rng = np.random.default_rng([*cell.name.encode()])
    total, bins = cell.total_env_steps, plan.bins
    share = np.arange(1, bins + 1) / bins
    height = 0.0 if cell.arm == RANDOM_ARM else 20 * score(cell) * rng.normal(1, 0.04)
    returns = 1 + height * (1 - np.exp(-4 * share)) + rng.normal(0, 0.3, bins)
    curve = tuple((round(total * one), float(value)) for one, value in zip(share, returns, strict=True))
    noise = tuple((100 * (1 + 9 * share) * rng.lognormal(0, 0.2, bins)).tolist())
    return Result(
        cell=cell,
        plan_hash=plan.hash,
        facts={"seconds": 60.0},
        curve=curve,
        episodes=100,
        evaluation={},
        plan=run_plan(cell),
        metrics={"batch/noise_scale": noise},
    )


def run_plan(cell: Cell) -> dict[str, Any]:
    settings = dict(cell.config)
    config: AnyConfig = config_from_dict(CONFIGS[settings.pop("algorithm")], settings)
    numbers = make_run_plan(config, encoder="mlp")
    return numbers.to_json() | plan_table(config, numbers).to_json()


def write_study(
    plan: StudyPlan, out: Path, *, failed: tuple[str, ...] = (), missing: tuple[str, ...] = ()
) -> Path:
    """A folder with the plan and its cells. Those `failed` have a reason instead of a result."""
    plan.write(out)
    for cell in plan.cells:
        if cell.name in missing:
            continue
        if cell.name in failed:
            reason = "the gradient became non-finite"
            cells.write(out, Result(cell=cell, plan_hash=plan.hash, facts={}, failed=reason, diverged=True))
        else:
            cells.write(out, result_of(plan, cell))
    return out
