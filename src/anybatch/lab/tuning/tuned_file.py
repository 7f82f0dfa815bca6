"""tuned.toml: the tuned preset, which extends the original one, and the study that compares the two."""

import os
from pathlib import Path
from typing import Any

from anybatch import presets
from anybatch.config.serialization import config_to_dict
from anybatch.errors import UserError
from anybatch.lab.studies.configs import has_published_range, nested, plain
from anybatch.lab.studies.plan import Request, StudyPlan, random_cells
from anybatch.lab.tuning.plan import TuningPlan, quiet
from anybatch.lab.tuning.trials import Trial
from anybatch.presets.files import leaves
from anybatch.presets.toml_text import prose, toml_value
from anybatch.storage import safe_files

TUNED_FILE = "tuned.toml"
ORIGINAL, TUNED = "original", "tuned"
SCALE = "check"
TUNED_GROUPS = ("update", "optimizer", "objective", "proximal", "exploration", "phase")
"""Groups of settings that a trial changes; the others differ from the preset only in what cells need."""


def write(out: Path, plan: TuningPlan, best: Trial, trials: int, checked: str = "") -> Path:
    """Write the tuned preset. `checked` is the verdict of the final check, if it has been run."""
    path = out / TUNED_FILE
    safe_files.replace(path, text(out, plan, best, trials, checked).encode(errors="replace"))
    return path


def text(out: Path, plan: TuningPlan, best: Trial, trials: int, checked: str) -> str:
    """The file: what it extends, the source of its numbers, and the settings that differ."""
    differing = differences(plan, best)
    tuned_at = differing.pop("tuned_at")
    top = {name: value for name, value in differing.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in differing.items() if isinstance(value, dict)}
    lines = [f"extends = {toml_value(extended(plan.preset, out))}"]
    lines.append(prose("description", [f"{Path(plan.preset).stem}, tuned on {plan.env}"]))
    lines.append(prose("source", [source(plan, best, trials), *([checked] if checked else [])]))
    lines += ["", *(f"{name} = {toml_value(value)}" for name, value in top.items())] if top else []
    for name, table in (tables | {"tuned_at": tuned_at}).items():
        lines += ["", f"[{name}]"]
        lines += [f"{path} = {toml_value(value)}" for path, value in leaves(table)]
    return "\n".join(lines) + "\n"


def extended(preset: str, out: Path) -> str:
    """The extended preset: a name, or the path of a file relative to this one's folder."""
    return os.path.relpath(preset, out) if preset.endswith(".toml") else preset


def source(plan: TuningPlan, best: Trial, trials: int) -> str:
    seeds = ", ".join(map(str, plan.seeds))
    return (
        f"Found by anybatch tune around {Path(plan.preset).stem}: trial {best.number} of {trials} on "
        f"{plan.env}, each {plan.env_steps:,} env steps with {plan.num_envs} envs on seeds {seeds}, the best "
        f"by its area under the return curve, {best.shown_value}"
    )


def differences(plan: TuningPlan, best: Trial) -> dict[str, Any]:
    """The settings in which the tuned preset differs from the original, and its tuned batch."""
    own = config_to_dict(presets.load(plan.preset).config)
    trial = plan.settings_of(best.point, f"trial {best.number}")
    found = {group: trial[group] for group in TUNED_GROUPS if group in trial}
    found |= {"env": plan.env, "num_envs": plan.train_at}
    before = dict(leaves(own))
    stated: dict[str, Any] = {}
    for path, value in leaves(found):
        if before[path] != value:
            stated = presets.overlaid(stated, nested(path, value))
    return stated | {"tuned_at": presets.own_batch(trial)}


def open_check(out: Path, plan: TuningPlan) -> StudyPlan:
    """The plan of the check in the folder of a tuning, which is a study of two arms."""
    made, there = check_plan(out, plan), StudyPlan.read(out)
    if there is None:
        made.write(out)
    elif there.hash != made.hash:
        raise UserError(
            f"{out / StudyPlan.FILE} is the check of another trial or other settings: choose "
            "another folder with --out"
        )
    return made


def check_plan(out: Path, plan: TuningPlan) -> StudyPlan:
    """Both presets at the target batch. The tuned one is read from its file, as `train --preset` does."""
    tuned = presets.load(str(out / TUNED_FILE)).config
    settings = quiet({"algorithm": tuned.algorithm} | config_to_dict(tuned))
    settings = plain(settings | {"total_env_steps": plan.env_steps}, TUNED_FILE)
    arms = {ORIGINAL: dict(plan.original), TUNED: settings}
    found = [
        plan.cell(f"{SCALE}-{arm}", arm, seed, config)
        for arm, config in arms.items()
        for seed in plan.check_seeds
    ]
    name = Path(plan.preset).stem
    claim = (
        f"The preset tuned with {plan.num_envs} envs is not worse than {name} with {plan.train_at} envs, by "
        f"the area under the curve of {plan.env_steps:,} env steps."
    )
    rule = {
        "name": "not-worse",
        "claim": claim,
        "rule": "not_worse",
        "this": {"arm": TUNED},
        "that": {"arm": ORIGINAL},
        "margin": plan.margin,  # fixed before the first trial
        "alpha": plan.alpha,
    }
    return StudyPlan(
        study={
            "name": f"check of {name} on {plan.env}",
            "title": f"{name} tuned on {plan.env}",
            "claim": claim,
            "source": "",
        },
        scale=SCALE,
        tune=False,
        metric="area",
        threads=plan.threads,
        arms={ORIGINAL: name, TUNED: f"{name} tuned"},
        reference={"arm": ORIGINAL, "ratio": "1"},
        verdicts=(rule,),
        ranges={},
        cells=(*random_cells([one for one in found if not has_published_range(one.env)]), *found),
        left_out=(),
        request=Request(study=name, scale=SCALE, envs=(plan.env,), preset=plan.preset),
        facts=plan.facts,
    )
