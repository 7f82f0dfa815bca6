"""The one reader of run folders: config, metrics and checkpoints of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.require import whole_number
from anybatch.config.serialization import config_from_dict
from anybatch.envs import interface
from anybatch.envs.interface import Interface
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import CheckpointError, ConfigError, UserError
from anybatch.runs import folder as run_folder
from anybatch.runs import log
from anybatch.runs.best import BEST, BestCheckpoint
from anybatch.runs.folder import NEWEST
from anybatch.storage.checkpoint import Checkpoints, Loaded, env_steps_of
from anybatch.storage.json_text import is_number

RESULT_FILE = "result.json"


class RunRecord:
    """A run folder. Raises UserError if a file is missing or damaged."""

    def __init__(self, path: Path) -> None:
        """`path` is a run folder, or a folder of runs, of which the newest is used."""
        self.folder = run_folder.find_run(path)

    @property
    def config(self) -> AnyConfig:
        """The config of the run; settings that are newer than its record have their defaults."""
        data = run_folder.read_json(self.folder / run_folder.CONFIG_FILE)
        algorithm = data.pop("algorithm", None) if isinstance(data, dict) else None
        if not isinstance(algorithm, str) or algorithm not in CONFIGS:
            raise ConfigError(f"{self.folder} is a run of {algorithm!r}, which this version does not know")
        return config_from_dict(CONFIGS[algorithm], data, where=self.folder.name, may_lack_settings=True)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return log.read(self.folder)

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of the run; None if it has not ended yet."""
        path = self.folder / RESULT_FILE
        if not path.exists():
            return None
        return self._checked(RESULT_FILE, _wrong_entry)

    @property
    def plan(self) -> dict[str, Any]:
        """Numbers, rows and warnings of the plan that the run was started or last resumed with."""
        return self._checked(run_folder.PLAN_FILE, _wrong_part_of_plan)

    @property
    def facts(self) -> dict[str, Any]:
        """Versions, commit and command of the process that trained it last; earlier ones are in `earlier`."""
        recorded = (run_folder.FACTS_FILE, log.METRICS_FILE)
        if not any((self.folder / name).exists() for name in recorded):
            raise UserError(f"{self.folder} is an exported policy, which has no metrics")
        return self._checked(run_folder.FACTS_FILE, _wrong_fact)

    @property
    def spaces(self) -> tuple[EnvSpec, Interface] | None:
        """The environment's spec and how its observations are read; None if they were not recorded."""
        path = self.folder / run_folder.SPACES_FILE
        if not path.exists():
            return None
        data = run_folder.read_json(path)
        try:
            return interface.from_json(data)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error!r}") from None

    @property
    def has_checkpoint(self) -> bool:
        return Checkpoints(self.folder, keep=1).exist()

    def load_checkpoint(self, choice: str = NEWEST, *, with_segments: bool = True) -> Loaded:
        """A checkpoint of this run.

        `choice`: newest, the newest good one; best, that of the best evaluation during training, which has no
        segments and can be evaluated but not resumed; or the env steps of a checkpoint.
        """
        if choice == BEST:
            loaded = BestCheckpoint(self.folder).load()
        else:
            checkpoints = Checkpoints(self.folder, keep=1)
            paths = checkpoints.newest_first()
            if choice != NEWEST:
                env_steps = _env_steps_chosen(choice)
                paths = [path for path in paths if env_steps_of(path) == env_steps]
            loaded = checkpoints.load_first(paths, with_segments=with_segments)
        if loaded is None:
            raise CheckpointError(self._has_no(choice))
        return loaded

    def _checked(self, name: str, wrong_entry: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
        """The content of a file, if a page can show it."""
        data = run_folder.read_json(self.folder / name)
        if not isinstance(data, dict):
            raise UserError(f"{self.folder / name} is damaged: it is not a JSON object")
        if wrong := wrong_entry(data):
            raise UserError(f"{self.folder / name} is damaged: a run does not write such {wrong}")
        return data

    def _has_no(self, choice: str) -> str:
        there = sorted({env_steps_of(path) for path in Checkpoints(self.folder, keep=1).newest_first()})
        best = BestCheckpoint(self.folder).env_steps
        if not there:
            return f"{self.folder} has no checkpoint yet"
        listed = f"there are checkpoints at {', '.join(f'{steps:,}' for steps in there)} env steps"
        listed += f" and the best one, at {best:,}" if best is not None else ""
        if choice == BEST:
            return (
                f"{self.folder} has no best checkpoint: a run keeps one only if evaluation.every-env-steps "
                f"is above 0; {listed}"
            )
        return f"{self.folder} has no checkpoint at {choice} env steps; {listed}"


def _wrong_entry(result: dict[str, Any]) -> str:
    """The entry of a result that could not be shown; empty if there is none."""
    played = result.get("evaluation")
    if not isinstance(played, dict | None):
        return "evaluation"
    numbers = {"training_return": result.get("training_return") or 0}
    if played is not None:
        numbers |= {name: played.get(name) for name in ("mean_return", "standard_error")}
    return next((name for name, number in numbers.items() if not isinstance(number, int | float)), "")


def _wrong_part_of_plan(plan: dict[str, Any]) -> str:
    """The part of a plan that could not be shown; empty if there is none."""
    batch, rows = plan.get("batch"), plan.get("rows")
    sizes = ("num_envs", "num_steps", "iteration_batch", "minibatch", "epochs")
    if isinstance(batch, dict) and not all(is_number(batch.get(name)) for name in sizes):
        return "batch"
    words = ("number", "tuned_at", "this_run", "rule")
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in words):
            return "rows"
    return ""


def _wrong_fact(facts: dict[str, Any]) -> str:
    """The fact that could not be shown; empty if there is none."""
    earlier = facts.get("earlier", [])
    if not isinstance(earlier, list) or not all(isinstance(process, dict) for process in earlier):
        return "earlier"
    commands = [process.get("command") or [] for process in (*earlier, facts)]
    are_words = (
        isinstance(words, list) and all(isinstance(word, str) for word in words) for words in commands
    )
    return "" if all(are_words) else "command"


def _env_steps_chosen(choice: str) -> int:
    try:
        return whole_number(choice)
    except ValueError:
        raise UserError(f"checkpoint = {choice}: must be newest, best or a number of env steps") from None
