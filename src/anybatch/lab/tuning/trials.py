"""Trials: the numbers tried, chosen and recorded by Optuna. Only this module imports it.

Numbers are sampled by TPE (Bergstra et al. 2011), each with its own random generator, seeded by the trial and
the number's place. A single job therefore tries the same numbers whether it was interrupted or not. With
several jobs, the first random trials are the same, and later ones depend on what has finished.
"""

import contextlib
import importlib.util
import inspect
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anybatch.errors import UserError
from anybatch.lab.studies.cells import Cell
from anybatch.lab.tuning.plan import TRIAL_ARM, TuningPlan
from anybatch.lab.tuning.space import Range
from anybatch.storage.safe_files import Folder, open_regular, write_all
from anybatch.text import number_text

if TYPE_CHECKING:
    import optuna

State = Literal["running", "finished", "pruned", "failed"]
"""pruned: stopped early, because half of the trials had done better by then, or because it diverged."""
STATES: dict[str, State] = {
    "RUNNING": "running",
    "COMPLETE": "finished",
    "PRUNED": "pruned",
    "FAIL": "failed",
}
"""By Optuna's names. It has one more, for trials that wait to be begun."""
JOURNAL_FILE = "trials.journal"
STUDY_NAME = "tuning"
INSTALL_COMMAND = "pip install 'anybatch[tune]'"

FEWEST_COMPARED = 4
"""Fewest trials that must have come as far for a median."""
TOP_SHARE = 0.25
"""What matters is what distinguishes the best quarter of the trials from all of them."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One point of the search, trained on all tuning seeds."""

    number: int
    """Counted from 0; 0 is the preset itself."""
    point: Mapping[str, float]
    state: State
    value: float | None = None
    """Area under the curve, mean over seeds; for a pruned trial, up to where it was stopped."""
    reports: Mapping[int, float] = field(default_factory=dict[int, float])
    """Mean return so far, by tenths of its env steps."""

    @property
    def name(self) -> str:
        """The name of its runs, without their seed."""
        return f"trial-{self.number:04}"

    @property
    def is_finished(self) -> bool:
        return self.state == "finished"

    @property
    def shown_value(self) -> str:
        """Its value as text, a dash if it has none."""
        return "–" if self.value is None else number_text(self.value, 4)

    def cells(self, plan: TuningPlan) -> list[Cell]:
        """Its training runs, one for each seed."""
        config = plan.settings_of(self.point, self.name)
        return [plan.cell(self.name, TRIAL_ARM, seed, config, self.point) for seed in plan.seeds]

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "reports"}


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """The finished trial with the largest area, the first of equals; None if none has finished."""
    finished = [trial for trial in trials if trial.is_finished and trial.value is not None]
    return max(finished, key=lambda trial: (trial.value or 0.0, -trial.number)) if finished else None


def validate_installed() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise UserError(f"tuning needs the package optuna: {INSTALL_COMMAND}")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence Optuna's log and its warnings about experimental features."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


class Journal:
    """Optuna's file of trials: a JSON object per line. The folder's lock keeps other processes from writing.

    Optuna's own class opens the file by its path, and so would write through a link.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = [0]
        """Where each line begins, as far as lines have been read."""

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The lines from this one on, without a last one that is being written."""
        del self._starts[log_number_from + 1 :]
        with open_regular(self._path) as file:
            file.seek(self._starts[-1])
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._starts.append(self._starts[-1] + len(line))
                yield json.loads(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = (json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with Folder.opened(self._path.parent) as place, place.append(self._path.name) as file:
            write_all(file, "".join(lines).encode())
            os.fsync(file.fileno())


def storage_in(path: Path) -> "optuna.storages.JournalStorage":
    import optuna

    journal: Any = Journal(path)  # has the methods of Optuna's class, which is not imported with this module
    return optuna.storages.JournalStorage(journal)


def read(out: Path, plan: TuningPlan) -> list[Trial]:
    """The trials in a folder, which may be in use: nothing is written, and no lock is needed."""
    validate_installed()
    import optuna

    path = out / JOURNAL_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing: it holds the trials")
    try:
        with quietly():
            found = optuna.load_study(study_name=STUDY_NAME, storage=storage_in(path))
            return begun(plan, found.get_trials(deepcopy=False))
    except (KeyError, ValueError) as error:  # a study that is not there, a line that is no JSON
        raise UserError(f"{path} is damaged: it does not hold the trials of a tuning ({error!r})") from None


class TrialBook:
    """The trials of a tuning in its folder. The caller holds the folder's lock."""

    def __init__(self, out: Path, plan: TuningPlan, *, jobs: int = 1) -> None:
        validate_installed()
        import optuna

        self._plan, self._jobs = plan, jobs
        path = out / JOURNAL_FILE
        cut_torn_line(path)
        with quietly():
            compared = {"n_startup_trials": FEWEST_COMPARED, "n_min_trials": FEWEST_COMPARED}
            self._study = optuna.create_study(
                storage=storage_in(path),
                study_name=STUDY_NAME,
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(**compared),
            )
            known = self._study.get_trials(deepcopy=False)
            if not known:
                self._study.enqueue_trial({one.name: one.first for one in plan.ranges})
        self._left = [trial for trial in known if trial.state == optuna.trial.TrialState.RUNNING]
        """Trials that an earlier process did not finish. They come first."""
        self._asked: dict[int, optuna.Trial] = {}

    def next(self) -> Trial | None:
        """The trial to run next; None if all requested trials have begun."""
        import optuna

        with quietly():
            if self._left:
                trial = optuna.Trial(self._study, self._left.pop(0)._trial_id)
            elif len(self.trials()) < self._plan.trials:
                trial = self._study.ask()
            else:
                return None
            self._asked[trial.number] = trial
            for place, one in enumerate(self._plan.ranges):
                self._study.sampler = self._sampler(trial.number, place)
                suggest(trial, one)
        return self.trial(trial.number)

    def trials(self) -> list[Trial]:
        """All trials that have been begun."""
        return begun(self._plan, self._study.get_trials(deepcopy=False))

    def trial(self, number: int) -> Trial:
        return trial_of(self._plan, self._study.get_trials(deepcopy=False)[number])

    def report(self, number: int, moment: int, value: float) -> None:
        """Record the mean return so far at a moment."""
        self._asked[number].report(value, moment)

    def is_beaten(self, number: int) -> bool:
        """Whether its best report is below the median of the finished trials at its newest point."""
        return self._asked[number].should_prune()

    def finish(self, number: int, state: State, value: float | None = None) -> None:
        import optuna

        (name,) = [name for name, known in STATES.items() if known == state]
        with quietly():
            self._study.tell(number, value, state=optuna.trial.TrialState[name])

    def _sampler(self, number: int, place: int) -> Any:
        """The sampler of one number of one trial."""
        import optuna

        seed = np.random.SeedSequence([self._plan.sampler_seed, number, place]).generate_state(1)[0]
        return optuna.samplers.TPESampler(
            seed=int(seed),
            n_startup_trials=self._plan.random_trials,
            multivariate=False,  # each number is sampled independently, whatever the version's default is
            # With several jobs, points in progress are not tried twice.
            constant_liar=self._jobs > 1,
        )


def begun(plan: TuningPlan, found: Sequence["optuna.trial.FrozenTrial"]) -> list[Trial]:
    """All trials that have been begun."""
    return [trial_of(plan, trial) for trial in found if trial.state.name in STATES]


def trial_of(plan: TuningPlan, trial: "optuna.trial.FrozenTrial") -> Trial:
    """A trial as Optuna records it."""
    places = {name: float(place) for name, place in trial.params.items()}
    whole = all(one.name in places for one in plan.ranges)
    return Trial(
        number=trial.number,
        point=plan.numbers(places) if whole else {},
        state=STATES[trial.state.name],
        value=trial.value,
        reports=dict(trial.intermediate_values),
    )


def suggest(trial: Any, one: Range) -> None:
    """Let Optuna choose a coordinate. A trial keeps the coordinates it already has."""
    low, high = one.places
    if one.dimension.whole:
        trial.suggest_int(one.name, int(low), int(high), log=True)
    else:
        trial.suggest_float(one.name, low, high, log=True)


def cut_torn_line(path: Path) -> None:
    """Drop an incomplete last line of a journal, as after a loss of power. A missing journal is created."""
    with Folder.opened(path.parent) as place, place.append(path.name) as file:
        file.seek(0)
        file.truncate(file.readall().rfind(b"\n") + 1)


def importances(ranges: Sequence[Range], trials: Sequence[Trial]) -> dict[str, float]:
    """How much each number distinguishes the best quarter of the trials from all, as shares of 1: PED-ANOVA.

    Watanabe et al. 2023 (arXiv:2304.10255). Trials that were pruned count below all that finished. Empty
    where fewer than four trials have come to an end.
    """
    import optuna

    ended = [trial for trial in trials if trial.state in ("finished", "pruned") and trial.point]
    if len(ended) < FEWEST_COMPARED:
        return {}
    finished = [trial.value for trial in ended if trial.is_finished and trial.value is not None]
    bottom = min(finished, default=0.0)
    with quietly():
        study = optuna.create_study(direction="maximize")
        for trial in ended:
            value = trial.value if trial.is_finished else bottom - 1
            study.add_trial(
                optuna.trial.create_trial(
                    params=places_of(ranges, trial.point),
                    distributions={one.name: distribution(one) for one in ranges},
                    value=value,
                )
            )
        make = optuna.importance.PedAnovaImportanceEvaluator
        renamed = "target_quantile" in inspect.signature(make).parameters  # in Optuna 5
        quantile: dict[str, Any] = {"target_quantile" if renamed else "baseline_quantile": TOP_SHARE}
        evaluator = make(**quantile)
        return optuna.importance.get_param_importances(study, evaluator=evaluator)


def places_of(ranges: Sequence[Range], point: Mapping[str, float]) -> dict[str, Any]:
    """The coordinates of a point, within their ranges."""
    found: dict[str, Any] = {}
    for one in ranges:
        low, high = one.places
        place = min(max(one.dimension.place(point[one.name]), low), high)
        found[one.name] = round(place) if one.dimension.whole else place
    return found


def distribution(one: Range) -> Any:
    import optuna

    low, high = one.places
    if one.dimension.whole:
        return optuna.distributions.IntDistribution(int(low), int(high), log=True)
    return optuna.distributions.FloatDistribution(low, high, log=True)
