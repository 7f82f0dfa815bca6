"""The outcome of a tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anybatch import envs
from anybatch.lab.studies.cells import Result
from anybatch.lab.studies.duration import written
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.tuning.plan import TuningPlan
from anybatch.lab.tuning.trials import Trial
from anybatch.lab.verdicts import Verdict
from anybatch.user_modules import NETWORK_FACTORY

RESULT_FILE = "result.json"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The best trial as a preset, what mattered, and how it did on fresh seeds."""

    folder: Path
    preset_file: Path
    """The tuned preset, for `anybatch train --preset`."""
    plan: TuningPlan
    trials: Sequence[Trial]
    best: Trial
    importances: Mapping[str, float]
    """Share of each number in what distinguishes the best quarter of the trials from all of them."""
    check: StudyPlan
    results: Sequence[Result]
    verdict: Verdict
    """Whether the tuned preset is not worse than the original, by the margin fixed before the first trial."""

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
            "areas": {result.cell.name: result.area for result in self.results if result.failed is None},
            "trials": [trial.to_json() for trial in self.trials],
            "command": self.train_words(),
        }
