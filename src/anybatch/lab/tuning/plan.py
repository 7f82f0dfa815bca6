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

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from anybatch import presets
from anybatch.config.serialization import config_to_dict
from anybatch.dial import make_plan as make_run_plan
from anybatch.errors import ConfigError
from anybatch.lab.studies.cells import Cell
from anybatch.lab.studies.configs import config_of, nested, plain
from anybatch.lab.studies.plan_file import Plan
from anybatch.lab.tuning import space
from anybatch.lab.tuning.space import BY_NAME, Range

THREADS = 1
"""Threads of each cell: cells run in parallel."""
EVALUATION_EPISODES = 10
"""Most episodes evaluated at the end of each cell. The search uses training episodes."""
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
class TuningPlan(Plan):
    """The trials and how they are judged."""

    FILE: ClassVar[str] = "tuning.json"
    SCHEMA: ClassVar[int] = 1
    WHAT: ClassVar[str] = "the plan of a tuning"
    NOT_HASHED: ClassVar[tuple[str, ...]] = ("schema", "hash", "trials", "left_out", "request", "facts")
    """More trials may be requested later."""

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
    random_trials: int = RANDOM_TRIALS
    sampler_seed: int = SAMPLER_SEED
    threads: ClassVar[int] = THREADS

    @property
    def num_envs(self) -> int:
        """Envs of the tuning batch."""
        return int(self.base["num_envs"])

    @property
    def train_at(self) -> int:
        """Envs of the target batch."""
        return int(self.original["num_envs"])

    def numbers(self, places: Mapping[str, float]) -> dict[str, float]:
        """A point of the search, given by its coordinates, in numbers."""
        return {one.name: one.number(places[one.name]) for one in self.ranges}

    def entries(self) -> dict[str, Any]:
        ranges = [asdict(one) for one in self.ranges]
        return super().entries() | {"ranges": ranges, "request": asdict(self.request)}

    def by_name(self) -> dict[str, Any]:
        return self.decisive() | {"ranges": {one.name: asdict(one) for one in self.ranges}}

    @classmethod
    def parsed(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        request: dict[str, Any] = dict(data["request"])
        request |= {name: tuple(request[name]) for name in ("seeds", "search")}
        return {
            "ranges": tuple(Range(**one) for one in data["ranges"]),
            "seeds": tuple(data["seeds"]),
            "check_seeds": tuple(data["check_seeds"]),
            "request": Request(**request),
        }

    def settings_of(self, point: Mapping[str, float], where: str) -> dict[str, Any]:
        """Settings of a trial with these numbers.

        The base is tuned at its own batch. If a point has another number of minibatches, the dial rescales
        the numbers that follow the minibatch: the searched learning rate refers to the base's minibatch, so
        that the two can be searched independently.
        """
        settings = dict(self.base)
        for name, number in point.items():
            dimension = BY_NAME[name]
            settings = presets.overlaid(settings, nested(dimension.setting, dimension.to_setting(number)))
        return stated(settings, where)

    def cell(
        self,
        group: str,
        arm: str,
        seed: int,
        config: Mapping[str, Any],
        point: Mapping[str, float] | None = None,
    ) -> Cell:
        """A training run of a trial or of the check, named by its group and seed."""
        return Cell(
            name=f"{group}__s{seed}",
            part=1,
            env=self.env,
            base=Path(self.preset).stem,
            arm=arm,
            ratio="1",
            point=dict(point or {}),
            seed=seed,
            config={**config, "seed": seed},
        )


def make_plan(request: Request) -> TuningPlan:
    """The plan of a request. Contradictory or invalid values are refused by name."""
    validate_request(request)
    config = presets.load(request.preset).config
    settings = {"algorithm": config.algorithm} | config_to_dict(config)
    env = request.env or config.env
    env_steps = request.env_steps or config.total_env_steps
    settings = quiet(settings | {"env": env, "total_env_steps": env_steps})
    num_envs = request.num_envs or max(1, config.num_envs // BATCH_SHARE)
    base = at_batch(settings, num_envs, f"preset {request.preset} with {num_envs} envs")
    train_at = request.train_at or config.num_envs
    original = plain(settings | {"num_envs": train_at}, f"preset {request.preset} with {train_at} envs")
    ranges, left_out = space.space_of(base, space.parse(request.search))
    return TuningPlan(
        preset=request.preset,
        env=env,
        env_steps=env_steps,
        base=base,
        original=original,
        ranges=ranges,
        left_out=left_out,
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


def validate_request(request: Request) -> None:
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


def quiet(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a cell, without threads, logs or long evaluations that would slow other cells down."""
    slots = min(settings["evaluation"]["num_envs"], EVALUATION_EPISODES)
    return presets.overlaid(
        dict(settings),
        {
            "threads": THREADS,
            "env_config": {"engine_threads": THREADS},
            "evaluation": {"every_env_steps": 0, "num_envs": slots, "episodes_per_env": 1},
            "record": {"tensorboard": False, "wandb": False, "trackio": False},
        },
    )


def at_batch(settings: Mapping[str, Any], num_envs: int, where: str) -> dict[str, Any]:
    """The settings of a preset at another number of envs, with the numbers that the dial computes."""
    return stated(presets.overlaid(dict(settings), {"num_envs": num_envs}), where)


def stated(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same run, tuned at its own batch: the numbers of its plan become settings."""
    config = config_of(settings, where)
    plan = make_run_plan(config, encoder="mlp")  # the encoder decides the microbatch, which is not set here
    here = presets.overlaid(plain(settings, where), config.stated(plan))
    return plain(here | {"tuned_at": presets.own_batch(here)}, where)
