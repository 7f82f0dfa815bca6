"""The final check: the tuned preset against the original at the target batch, on fresh seeds."""

from pathlib import Path
from typing import Any

from anybatch import presets
from anybatch.config.serialization import config_to_dict
from anybatch.errors import UserError
from anybatch.lab.studies import plan as study_plans
from anybatch.lab.studies.cells import Cell, Result
from anybatch.lab.studies.configs import has_published_range, plain
from anybatch.lab.studies.plan import StudyPlan, random_cells
from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.settings import THREADS, quiet
from anybatch.lab.tuning.tuned_file import TUNED_FILE
from anybatch.lab.verdicts import Scores, Verdict, judge

ORIGINAL, TUNED = "original", "tuned"
SCALE = "check"
VERDICT = "not-worse"


def open_check(out: Path, plan: TuningPlan) -> StudyPlan:
    """The plan of the check in the folder of a tuning, which is a study of two arms."""
    made, there = check_plan(out, plan), study_plans.read(out)
    if there is None:
        study_plans.write(out, made)
    elif there.hash != made.hash:
        raise UserError(
            f"{out / study_plans.PLAN_FILE} is the check of another trial or other settings: choose "
            "another folder with --out"
        )
    return made


def check_plan(out: Path, plan: TuningPlan) -> StudyPlan:
    """Both presets at the target batch. The tuned one is read from its file, as `train --preset` does."""
    tuned = presets.load(str(out / TUNED_FILE)).config
    settings = quiet({"algorithm": tuned.algorithm} | config_to_dict(tuned))
    settings = plain(settings | {"total_env_steps": plan.env_steps}, TUNED_FILE)
    arms = {ORIGINAL: dict(plan.original), TUNED: settings}
    found = [cell_of(plan, arm, config, seed) for arm, config in arms.items() for seed in plan.check_seeds]
    name = Path(plan.preset).stem
    return StudyPlan(
        study={
            "name": f"check of {name} on {plan.env}",
            "title": f"{name} tuned on {plan.env}",
            "claim": claim(plan),
            "source": "",
        },
        scale=SCALE,
        tune=False,
        metric="area",
        threads=THREADS,
        arms={ORIGINAL: name, TUNED: f"{name} tuned"},
        reference={"arm": ORIGINAL, "ratio": "1"},
        verdicts=(rule(plan),),
        ranges={},
        cells=(*random_cells([one for one in found if not has_published_range(one.env)]), *found),
        left_out=(),
        request=study_plans.Request(study=name, scale=SCALE, envs=(plan.env,), preset=plan.preset),
        facts=plan.facts,
    )


def claim(plan: TuningPlan) -> str:
    return (
        f"The preset tuned with {plan.num_envs} envs is not worse than {Path(plan.preset).stem} with "
        f"{plan.train_at} envs, by the area under the curve of {plan.env_steps:,} env steps."
    )


def rule(plan: TuningPlan) -> dict[str, Any]:
    """Non-inferiority by the margin of the plan, which was fixed before the first trial."""
    return {
        "name": VERDICT,
        "claim": claim(plan),
        "rule": "not_worse",
        "this": {"arm": TUNED},
        "that": {"arm": ORIGINAL},
        "margin": plan.margin,
        "alpha": plan.alpha,
    }


def cell_of(plan: TuningPlan, arm: str, config: dict[str, Any], seed: int) -> Cell:
    return Cell(
        name=f"{SCALE}-{arm}__s{seed}",
        part=1,
        env=plan.env,
        base=Path(plan.preset).stem,
        arm=arm,
        ratio="1",
        seed=seed,
        config=config | {"seed": seed},
    )


def verdict_of(check: StudyPlan, results: list[Result]) -> Verdict:
    """The verdict on the check's one comparison."""
    (verdict,) = judge(Scores(check, results), gated=False)  # a preset that learns nothing is worth beating
    return verdict
