"""The outcome of a tuning: in its folder, or recorded in one file.

The file is one of `anybatch.lab.studies.recorded`, with trials as rows. Beside the plan of the final
check, its header has:

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from anybatch import envs
from anybatch.errors import UserError
from anybatch.lab.studies import cells, recorded
from anybatch.lab.studies.cells import Result
from anybatch.lab.studies.duration import written
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.studies.recorded import TUNING, Record, Row
from anybatch.lab.studies.runner import results
from anybatch.lab.tuning import trials
from anybatch.lab.tuning.plan import TRIAL_ARM, TuningPlan
from anybatch.lab.tuning.trials import State, Trial, best_of, importances
from anybatch.lab.tuning.tuned_file import TUNED_FILE
from anybatch.lab.verdicts import Scores, Verdict, judge
from anybatch.storage.json_text import is_number
from anybatch.user_modules import NETWORK_FACTORY

RESULT_FILE = "result.json"
WORSE = "It is worse than the original here; keep the original, or tune with more trials."
STATUSES: dict[State, str] = {"finished": cells.DONE, "pruned": "pruned", "failed": cells.FAILED}
STATES: dict[str, State] = {status: state for state, status in STATUSES.items()}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The best trial as a preset, what mattered, and how it did on fresh seeds."""

    folder: Path
    preset_file: Path
    """The tuned preset, for `anybatch train --preset`."""
    plan: TuningPlan
    trials: Sequence[Trial]
    importances: Mapping[str, float]
    """Share of each number in what distinguishes the best quarter of the trials from all of them."""
    check: StudyPlan
    results: Sequence[Result]

    @cached_property
    def best(self) -> Trial:
        """The trial with the largest area."""
        best = best_of(self.trials)
        assert best is not None
        return best

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the tuned preset is not worse than the original, by the margin fixed before any trial."""
        (verdict,) = judge(
            Scores(self.check, self.results), gated=False
        )  # one that learns nothing is worth beating
        return verdict

    @property
    def is_worse(self) -> bool:
        """Whether the tuned preset is measured to be worse: its whole interval is below 0."""
        interval = self.verdict.comparisons[0].interval
        return interval is not None and interval[1] < 0

    @property
    def check_sentence(self) -> str:
        """The result of the final check. Within the margin, a preset can still be measured to be worse."""
        state = "worse" if self.is_worse else self.verdict.state
        advice = f" {WORSE}" if self.is_worse else ""
        return f"{state}: {self.verdict.reason}{advice}"

    def train_words(self) -> list[str]:
        """The command line that trains the tuned preset at the target batch."""
        num_envs = str(self.plan.train_at)
        words = ["anybatch", "train", "--preset", str(self.preset_file), "--num-envs", num_envs]
        asked = self.plan.request.env
        words += ["--env", asked] if asked is not None and envs.user_module(asked) is not None else []
        return [*words, *self._factory_words()]

    def tune_words(self) -> list[str]:
        """The command line of the tuning itself."""
        asked = self.plan.request
        words = ["anybatch", "tune", "--preset", asked.preset]
        words += ["--env", asked.env] if asked.env is not None else []
        words += ["--trials", str(asked.trials)]
        for name in ("num_envs", "train_at", "env_steps"):
            value = getattr(asked, name)
            words += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
        words += ["--seeds", *map(str, asked.seeds), "--check-seeds", str(asked.check_seeds)]
        words += ["--margin", f"{asked.margin:g}"]
        words += ["--search", *asked.search] if asked.search else []
        words += ["--budget", written(asked.budget_seconds)] if asked.budget_seconds is not None else []
        return [*words, *self._factory_words(), "--out", str(self.folder)]

    def _factory_words(self) -> list[str]:
        """The flag that names the preset's own network, which a preset alone may not name."""
        factory = self.plan.original["network"]["factory"]
        return [] if factory is None else [f"--{NETWORK_FACTORY}", factory]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "plan_hash": self.plan.hash,
            "best": self.best.to_json(),
            "importances": dict(self.importances),
            "verdict": self.verdict.to_json(),
            "is_worse": self.is_worse,
            "areas": {result.cell.name: result.area for result in self.results if result.failed is None},
            "trials": [trial.to_json() for trial in self.trials],
            "command": self.train_words(),
        }


def read(out: Path) -> Outcome:
    """The outcome of a completed tuning. Nothing is written, so that it may be running."""
    plan = TuningPlan.read(out)
    if plan is None or not (out / RESULT_FILE).exists():
        raise UserError(f"{out} has no result yet: the command that began this tuning continues it")
    if not (out / StudyPlan.FILE).exists():
        raise UserError(f"{out / StudyPlan.FILE} is missing: it is the plan of the final check")
    return outcome_of(out, plan, trials.read(out, plan))


def is_tuning(path: Path) -> bool:
    """Whether a folder is a tuning's."""
    return (path / TuningPlan.FILE).is_file()


def outcome_of(out: Path, plan: TuningPlan, tried: Sequence[Trial]) -> Outcome:
    """The outcome of the trials and the check in a folder."""
    checked = StudyPlan.read(out)
    assert checked is not None
    return Outcome(
        folder=out,
        preset_file=out / TUNED_FILE,
        plan=plan,
        trials=tried,
        importances=importances(plan.ranges, tried),
        check=checked,
        results=results(out, checked),
    )


def record(path: Path, outcome: Outcome) -> None:
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
    of_trials = [trial_row(outcome.plan, trial) for trial in outcome.trials]
    recorded.write(path, header, [*of_trials, *trial_runs(outcome), *rows])


def trial_row(plan: TuningPlan, trial: Trial) -> Row:
    settings = plan.settings_of(trial.point, trial.name)
    shared = {"name": trial.name, "seed": list(plan.seeds), "config": settings}
    cell = plan.cell(trial.name, TRIAL_ARM, 0, settings, trial.point).to_json() | shared
    reports = [[moment, value] for moment, value in trial.reports.items()]
    outcome = {"status": STATUSES[trial.state], "reason": None, "area": trial.value, "reports": reports}
    return cell | outcome | {"facts": plan.facts}


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
    plan = TuningPlan.verified(header["tuning"], where=record.path)
    of_trials = [row for row in record.rows if row.get("arm") == TRIAL_ARM]
    tried = [trial_in(record, row) for row in of_trials if isinstance(row.get("seed"), list)]
    try:
        shares = {name: number(share) for name, share in header["importances"].items()}
        folder, preset_file = Path(header["folder"]), Path(header["preset_file"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{record.path} is damaged: it is not a recorded tuning ({error!r})") from None
    if best_of(tried) is None:
        raise UserError(f"{record.path} is damaged: none of its trials has finished")
    rows = [row for row in record.rows if row.get("arm") != TRIAL_ARM]
    checked, found = recorded.unpacked(record.path, header["plan"], rows)
    return Outcome(
        folder=folder,
        preset_file=preset_file,
        plan=plan,
        trials=tried,
        importances=shares,
        check=checked,
        results=found,
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
