"""The plan of a tuning: everything that decides its result, fixed and hashed before the first trial.

OUT/tuning.json       the plan: a JSON object with the entries of `TuningPlan`, "schema" and "hash"
OUT/trials.journal    the trials as Optuna records them: numbers, intermediate returns, and states
OUT/cells/            a file for each training run, as in studies (anybatch.lab.studies.cells)
OUT/plan.json         the final check, a study of the original and the tuned preset on fresh seeds
OUT/tuned.toml        the tuned preset
OUT/result.json       the best trial, what mattered, and the verdict of the check
OUT/report/           the same as a page, with pictures and their numbers
OUT/runs/, source/    while it runs: run folders in progress, and the package as it was at the start
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from anybatch import presets
from anybatch.config.serialization import config_to_dict
from anybatch.errors import ConfigError
from anybatch.lab.studies.cells import BINS, CELLS, Cell
from anybatch.lab.studies.configs import plain
from anybatch.lab.studies.hashed import hash_of, read_hashed
from anybatch.lab.tuning import space
from anybatch.lab.tuning.settings import at_batch, quiet, with_point
from anybatch.lab.tuning.space import Range, Space
from anybatch.lab.tuning.trials import Trial
from anybatch.runs import folder as run_folder
from anybatch.storage.safe_files import Folder

SCHEMA = 1
PLAN_FILE = "tuning.json"
BATCH_SHARE = 4
"""By default, the tuning batch is the preset's divided by this."""
FIRST_SEED = 1001
TUNING_SEEDS = (FIRST_SEED, FIRST_SEED + 1)
"""Default seeds of a trial. Two, since the best of many trials on one seed is mostly luck."""
CHECK_SEEDS = 5
FEWEST_CHECK_SEEDS = 2
"""An interval needs two seeds."""
RANDOM_TRIALS = 8
"""Trials before the search follows their results: the preset itself, and random ones."""
FEWEST_TRIALS = 10
MARGIN = 0.1
"""How much worse still counts as not worse, where 0 is random play and 1 the preset's best return."""
ALPHA = 0.05
SAMPLER_SEED = 1
TRIAL_ARM = "trial"
NOT_DECISIVE = ("trials", "left_out", "request", "facts")
"""Entries that are not hashed: more trials may be requested later."""
KIND: dict[str, Any] = {
    "schema": SCHEMA,
    "not_hashed": ("schema", "hash", *NOT_DECISIVE),
    "what": "the plan of a tuning",
}
"""What is needed to verify a plan."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A person's request. None means the preset's value."""

    preset: str
    env: str | None = None
    trials: int = 40
    num_envs: int | None = None
    """Envs of the trials: the tuning batch."""
    train_at: int | None = None
    """Envs of the check: the target batch."""
    env_steps: int | None = None
    """Length of every run."""
    seeds: tuple[int, ...] = TUNING_SEEDS
    check_seeds: int = CHECK_SEEDS
    """Number of fresh seeds."""
    margin: float = MARGIN
    search: tuple[str, ...] = ()
    budget_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """The trials and how they are judged."""

    preset: str
    """The preset around whose numbers the search runs."""
    env: str
    env_steps: int
    """Length of every run, in trials and check."""
    base: Mapping[str, Any]
    """Settings of the preset at the tuning batch, the center of the search."""
    original: Mapping[str, Any]
    """Settings of the preset at the target batch, for the check."""
    ranges: tuple[Range, ...]
    left_out: Mapping[str, str]
    """Numbers that are not searched, and why."""
    seeds: tuple[int, ...]
    """Seeds of the trials."""
    check_seeds: tuple[int, ...]
    """Seeds of the check; no trial uses them."""
    margin: float
    alpha: float
    trials: int
    request: Request
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    random_trials: int = RANDOM_TRIALS
    sampler_seed: int = SAMPLER_SEED
    bins: int = BINS

    @property
    def hash(self) -> str:
        return hash_of(self.decisive())

    @property
    def num_envs(self) -> int:
        """Envs of the tuning batch."""
        return int(self.base["num_envs"])

    @property
    def train_at(self) -> int:
        """Envs of the target batch."""
        return int(self.original["num_envs"])

    @property
    def space(self) -> Space:
        return Space(self.ranges, self.left_out)

    def decisive(self) -> dict[str, Any]:
        """All that decides the result, as plain values."""
        return {name: value for name, value in self._plain().items() if name not in NOT_DECISIVE}

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "hash": self.hash} | self._plain()

    def _plain(self) -> dict[str, Any]:
        known = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        ranges = [one.to_json() for one in self.ranges]
        return known | {"ranges": ranges, "request": asdict(self.request)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        known = {entry.name: data[entry.name] for entry in fields(cls)}
        request = dict(data["request"])
        request |= {name: tuple(request[name]) for name in ("seeds", "search")}
        return cls(
            **known
            | {
                "ranges": space.ranges_from_json(data["ranges"]),
                "seeds": tuple(data["seeds"]),
                "check_seeds": tuple(data["check_seeds"]),
                "request": Request(**request),
            }
        )

    def settings_of(self, point: Mapping[str, float], where: str) -> dict[str, Any]:
        """Settings of a trial with these numbers."""
        return with_point(self.base, point, where)

    def cells_of(self, trial: Trial) -> Iterator[Cell]:
        """The training runs of a trial, one for each seed."""
        name = trial.name
        config = self.settings_of(trial.point, name)
        for seed in self.seeds:
            yield Cell(
                name=f"{name}__s{seed}",
                part=1,
                env=self.env,
                base=Path(self.preset).stem,
                arm=TRIAL_ARM,
                ratio="1",
                point=dict(trial.point),
                seed=seed,
                config=config | {"seed": seed},
            )


def make_plan(request: Request) -> TuningPlan:
    """The plan of a request. Contradictory or invalid values are refused by name."""
    refuse_senseless(request)
    config = presets.load(request.preset).config
    settings = {"algorithm": config.algorithm} | config_to_dict(config)
    env = request.env or config.env
    env_steps = request.env_steps or config.total_env_steps
    settings = quiet(settings | {"env": env, "total_env_steps": env_steps})
    num_envs = request.num_envs or max(1, config.num_envs // BATCH_SHARE)
    base = at_batch(settings, num_envs, f"preset {request.preset} with {num_envs} envs")
    train_at = request.train_at or config.num_envs
    original = plain(settings | {"num_envs": train_at}, f"preset {request.preset} with {train_at} envs")
    searched = space.space_of(base, space.parse(request.search))
    return TuningPlan(
        preset=request.preset,
        env=env,
        env_steps=env_steps,
        base=base,
        original=original,
        ranges=searched.ranges,
        left_out=searched.left_out,
        seeds=request.seeds,
        check_seeds=fresh_seeds(request.seeds, request.check_seeds),
        margin=request.margin,
        alpha=ALPHA,
        trials=request.trials,
        request=request,
    )


def fresh_seeds(tuning: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Seeds that no trial uses: those above all of theirs."""
    first = max(tuning) + 1
    return tuple(range(first, first + count))


def refuse_senseless(request: Request) -> None:
    if request.trials < FEWEST_TRIALS:
        raise ConfigError(
            f"--trials {request.trials}: at least {FEWEST_TRIALS} are needed, since the first "
            f"{RANDOM_TRIALS} are the preset itself and random ones, and only later ones build on results"
        )
    for name in ("num_envs", "train_at", "env_steps"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    if not request.seeds or len(set(request.seeds)) < len(request.seeds) or min(request.seeds) < 0:
        shown = " ".join(map(str, request.seeds))
        raise ConfigError(f"--seeds {shown}: must be one or more different non-negative numbers")
    if request.check_seeds < FEWEST_CHECK_SEEDS:
        raise ConfigError(
            f"--check-seeds {request.check_seeds}: at least {FEWEST_CHECK_SEEDS} are needed for an interval"
        )
    if not 0 < request.margin < 1:
        raise ConfigError(f"--margin {request.margin:g}: must be above 0 and below 1")


def read(out: Path) -> TuningPlan | None:
    """The plan of a folder; None if there is none yet."""
    return read_hashed(out / PLAN_FILE, TuningPlan.from_json, **KIND)


def write(out: Path, plan: TuningPlan) -> None:
    with Folder.opened(out / CELLS, within=out, make=True):
        pass
    run_folder.write_json(out / PLAN_FILE, plan.to_json())
