"""Recorded tunings: the files of `anybatch.lab.studies.recorded` with trials as rows.

The header has, beside the plan of the final check:

    tuning      the plan of the search, as in tuning.json
    importances {number: share}: how much each number mattered, as in result.json
    folder, preset_file
                where the tuning and the preset that it found were

A trial is a row with the keys of a cell. Its arm is `trial`, its point the numbers that were tried, its seed
the list of its seeds, and its config the settings that its runs share. Its status is done, pruned or failed,
without a reason. It has two results: `area`, the mean over its seeds or null, and `reports`, [[tenths of a
run, mean return until then], …]. After the trials come those of their runs whose cells were kept, and the
cells of the final check.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.lab.studies import cells, hashed, recorded
from anybatch.lab.studies.cells import Cell
from anybatch.lab.studies.recorded import TUNING, Record, Row
from anybatch.lab.tuning import check
from anybatch.lab.tuning import plan as plans
from anybatch.lab.tuning.outcome import Outcome
from anybatch.lab.tuning.plan import TRIAL_ARM, TuningPlan
from anybatch.lab.tuning.trials import State, Trial, best_of
from anybatch.storage.json_text import is_number

STATUSES: dict[State, str] = {"finished": cells.DONE, "pruned": "pruned", "failed": cells.FAILED}
STATES: dict[str, State] = {status: state for state, status in STATUSES.items()}


def write(path: Path, outcome: Outcome) -> None:
    """Record a completed tuning, with those runs of its trials that its folder has."""
    checked, rows = recorded.packed(outcome.check, outcome.results)
    header: dict[str, Any] = {
        "kind": TUNING,
        "tuning": outcome.plan.to_json(),
        "plan": checked,
        "importances": dict(outcome.importances),
        "folder": str(outcome.folder),
        "preset_file": str(outcome.preset_file),
    }
    trials = [trial_row(outcome.plan, trial) for trial in outcome.trials]
    recorded.write(path, header, [*trials, *trial_runs(outcome), *rows])


def trial_row(plan: TuningPlan, trial: Trial) -> Row:
    cell = Cell(
        name=trial.name,
        part=1,
        env=plan.env,
        base=Path(plan.preset).stem,
        arm=TRIAL_ARM,
        ratio="1",
        point=dict(trial.point),
        seed=0,
        config=plan.settings_of(trial.point, trial.name),
    )
    reports = [[moment, value] for moment, value in trial.reports.items()]
    outcome = {"status": STATUSES[trial.state], "reason": None, "area": trial.value, "reports": reports}
    return cell.to_json() | {"seed": list(plan.seeds)} | outcome | {"facts": plan.facts}


def trial_runs(outcome: Outcome) -> Iterator[Row]:
    """The rows of the trials' runs whose cells are in the folder of the tuning."""
    for trial in outcome.trials:
        for seed in outcome.plan.seeds:
            result = cells.read(outcome.folder, f"{trial.name}__s{seed}")
            if result is not None:
                yield result.to_json()


def outcome_in(record: Record) -> Outcome:
    """The outcome of a recorded tuning. It needs neither its folder nor Optuna."""
    header = record.header
    plan = hashed.verified(header["tuning"], TuningPlan.from_json, where=record.path, **plans.KIND)
    of_trials = [row for row in record.rows if row.get("arm") == TRIAL_ARM]
    trials = [trial_in(record, row) for row in of_trials if isinstance(row.get("seed"), list)]
    best = best_of(trials)
    try:
        importances = {name: number(share) for name, share in header["importances"].items()}
        folder, preset_file = Path(header["folder"]), Path(header["preset_file"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{record.path} is damaged: it is not a recorded tuning ({error!r})") from None
    if best is None:
        raise UserError(f"{record.path} is damaged: none of its trials has finished")
    rows = [row for row in record.rows if row.get("arm") != TRIAL_ARM]
    checked, results = recorded.unpacked(record.path, header["plan"], rows)
    return Outcome(
        folder=folder,
        preset_file=preset_file,
        plan=plan,
        trials=trials,
        best=best,
        importances=importances,
        check=checked,
        results=results,
        verdict=check.verdict_of(checked, results),
    )


def trial_in(record: Record, row: Row) -> Trial:
    try:
        return Trial(
            number=int(row["name"].removeprefix("trial-")),
            point={name: number(value) for name, value in row["point"].items()},
            state=STATES[row["status"]],
            value=None if row["area"] is None else number(row["area"]),
            reports={int(moment): number(value) for moment, value in row["reports"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{record.path} is damaged: {row['name']} is not a trial ({error!r})") from None


def number(value: Any) -> float:
    if not is_number(value):
        raise TypeError(f"{value!r} is not a number")
    return value
