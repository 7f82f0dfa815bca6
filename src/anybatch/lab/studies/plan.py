"""The plan of a study: every cell with all its settings, fixed and hashed before the first cell is run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

from anybatch.errors import ConfigError, UserError
from anybatch.lab.studies.cells import BOTH, METRICS, PLAN_FILE, RANDOM_ARM, Cell, LeftOut
from anybatch.lab.studies.configs import UnreachableError, base_settings, cell_settings, has_published_range
from anybatch.lab.studies.files import Grid, Study
from anybatch.lab.studies.plan_file import Plan
from anybatch.runs import folder as run_folder
from anybatch.runs.tag import flat
from anybatch.storage.json_text import is_number

ABOUT = ("name", "title", "claim", "source")
"""What a plan says about its study."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The study that a user requests."""

    study: str
    scale: str = "cpu"
    envs: tuple[str, ...] = ()
    """Environments instead of the study's own."""
    preset: str | None = None
    """Base for these environments; None: the study's if it fits them, else selected by the environment."""
    seeds: int | None = None
    """Number of seeds; None: the study's."""
    budget_seconds: float | None = None
    tune: bool = False
    ranges: tuple[float, ...] = ()
    """For each of `envs`, the returns that normalize to 0 and 1; empty: those of the study."""

    def to_json(self) -> dict[str, Any]:
        """The entries as they are recorded. Those from before requests had ranges have none."""
        return {name: value for name, value in asdict(self).items() if name != "ranges" or value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """A recorded request. The hash of a plan does not cover it, so its values are checked."""
        known = {entry.name: data[entry.name] for entry in fields(cls) if entry.name in data}
        found = cls(**{**known, "envs": tuple(data["envs"]), "ranges": tuple(data.get("ranges", ()))})
        words = (found.study, found.scale, found.preset or "", *found.envs)
        numbers = (found.seeds or 0, found.budget_seconds or 0, *found.ranges)
        if not all(isinstance(word, str) for word in words) or not all(map(is_number, numbers)):
            raise TypeError("the request has values of another kind")
        return found


@dataclass(frozen=True, kw_only=True)
class StudyPlan(Plan):
    """What is run, and how its results are compared. `cells.py` says what each entry means."""

    FILE: ClassVar[str] = PLAN_FILE
    SCHEMA: ClassVar[int] = 1
    WHAT: ClassVar[str] = "the plan of a study"
    NOT_HASHED: ClassVar[tuple[str, ...]] = ("hash", "study", "arms", "request", "facts")

    study: Mapping[str, str]
    scale: str
    tune: bool
    metric: str
    threads: int
    arms: Mapping[str, str]
    reference: Mapping[str, Any]
    verdicts: tuple[Mapping[str, Any], ...]
    ranges: Mapping[str, tuple[float, float]]
    left_out: tuple[LeftOut, ...]
    cells: tuple[Cell, ...]
    request: Request

    @property
    def metrics(self) -> tuple[str, ...]:
        """The numbers of a cell that verdicts compare; the first is the one that figures show."""
        return METRICS if self.metric == BOTH else (self.metric,)

    @property
    def has_ratios(self) -> bool:
        """Whether there are cells at more than one batch."""
        return len({cell.ratio for cell in self.cells if cell.arm != RANDOM_ARM}) > 1

    def entries(self) -> dict[str, Any]:
        return super().entries() | {
            "request": self.request.to_json(),
            "cells": [cell.to_json() for cell in self.cells],
            "left_out": [asdict(entry) for entry in self.left_out],
        }

    def by_name(self) -> dict[str, Any]:
        return self.decisive() | {
            "cells": {cell.name: cell.to_json() for cell in self.cells},
            "verdicts": {str(rule.get("name", place)): rule for place, rule in enumerate(self.verdicts, 1)},
            "left_out": {f"{self.part_words(entry)} in {entry.env}": entry.reason for entry in self.left_out},
        }

    @classmethod
    def parsed(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        cells = tuple(Cell.from_json(cell) for cell in data["cells"])
        arms = (cell.arm for cell in cells if cell.arm != RANDOM_ARM)
        return {
            "study": texts(data["study"], ABOUT),
            "arms": texts(data["arms"], dict.fromkeys((*data["arms"], *arms))),
            "cells": cells,
            "verdicts": tuple(data["verdicts"]),
            "left_out": tuple(LeftOut(**entry) for entry in data["left_out"]),
            "ranges": {env: (low, high) for env, (low, high) in data["ranges"].items()},
            "request": Request.from_json(data["request"]),
        }

    def within(self, *, parts: int, seeds: int) -> Self:
        """The same plan with only the first parts of the grid, and the first seeds of each."""
        kept = {cell.name for cells in self.groups().values() for cell in cells[:seeds] if cell.part <= parts}
        left_out = (
            LeftOut(
                env=cell.env,
                base=cell.base,
                arm=cell.arm,
                ratio=cell.ratio,
                point=cell.point,
                factors=cell.factors,
                cause="budget",
                reason="the budget is too small",
            )
            for cell, *_ in self.groups().values()
            if cell.part > parts
        )
        return replace(
            self,
            cells=tuple(cell for cell in self.cells if cell.name in kept),
            left_out=(*self.left_out, *left_out),
            recorded_hash=None,
        )

    def part_words(self, cell: Cell | LeftOut) -> str:
        """What a cell shares with those of other seeds and environments: no rule at ratio 1/4."""
        return ", ".join(
            [
                f"{self.arms.get(cell.arm, cell.arm)} at ratio {cell.ratio}",
                *self.point_words(cell.point, cell.factors),
            ]
        )

    def point_words(self, point: Mapping[str, Any], factors: Mapping[str, float]) -> list[str]:
        """Swept settings in words that tell them apart from the others of this plan."""
        return point_words(point, factors, self._values)

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        return by_setting(entries for cell in self.cells for entries in (cell.point, cell.factors))

    def groups(self) -> dict[str, list[Cell]]:
        """Cells that differ only in their seed, by their common name."""
        found: dict[str, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(cell.group, []).append(cell)
        return found

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds of a part of the grid."""
        return max(map(len, self.groups().values()))

    @property
    def parts(self) -> int:
        """The number of the last part of the grid."""
        return max(cell.part for cell in self.cells)


def make_plan(study: Study, request: Request) -> StudyPlan:
    """The plan of a study at a scale. Batches that the base cannot reach are left out and listed."""
    scale = study.scale(request.scale)
    grids = scale.tune if request.tune else scale.grid
    if not grids:
        raise ConfigError(f"study {study.name} has nothing to tune at scale {request.scale}")
    found: dict[str, Cell] = {}
    left_out: list[LeftOut] = []
    name_base = len({grid.base for grid in grids}) > 1
    values = by_setting(entries for grid in grids for point in swept(grid) for entries in point)
    for part, grid in enumerate(grids, 1):
        for env in request.envs or grid.envs:
            settings = base_settings(study, grid, env, preset=request.preset)
            prefix = [env, grid.base] if name_base else [env]
            seeds = seeds_of(grid, request)
            for cell in env_cells(study, grid, env, settings, prefix, seeds, values, left_out):
                add(found, replace(cell, part=part))
    if not found:
        reasons = "; ".join(dict.fromkeys(entry.reason for entry in left_out))
        raise ConfigError(f"study {study.name} has no cell left: {reasons}")
    validate_cell_names(found)
    known = study.ranges | ranges_of(request)
    ranges = {env: known[env] for env in dict.fromkeys(cell.env for cell in found.values()) if env in known}
    if not request.tune:
        validate_range(study, request, list(found.values()), ranges)
    validate_reference(study, list(found.values()))
    return StudyPlan(
        study={name: getattr(study, name) for name in ABOUT},
        scale=request.scale,
        tune=request.tune,
        metric=BOTH,
        threads=study.threads,
        arms={part.arm: study.arms[part.arm].title for part in (*found.values(), *left_out)},
        reference=study.reference,
        verdicts=tuple(study.verdicts),
        ranges=ranges,
        cells=(*random_cells(list(found.values())), *found.values()),
        left_out=tuple(left_out),
        request=request,
    )


def add(found: dict[str, Cell], cell: Cell) -> None:
    """Add a cell to those of earlier grids, which may have the same one. Its name must mean only one run."""
    known = found.setdefault(cell.name, cell)
    there, here = flat(dict(known.config)), flat(dict(cell.config))
    differing = next((path for path in here | there if there.get(path) != here.get(path)), None)
    if differing is not None:
        raise ConfigError(
            f"two cells would have the name {cell.name}, one with {differing} = {there.get(differing)!r} and "
            f"one with {here.get(differing)!r}: give one of them another arm or other seeds"
        )


def texts(table: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """The named entries of a recorded table, which must be strings."""
    found = {name: table[name] for name in names}
    for name, value in found.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a string")
    return found


def seeds_of(grid: Grid, request: Request) -> tuple[int, ...]:
    """The seeds of a grid, or the requested number of them: further seeds count up from its first."""
    if request.seeds is None:
        return grid.seeds
    numbers = range(grid.seeds[0], grid.seeds[0] + request.seeds)
    return tuple(dict.fromkeys((*grid.seeds[: request.seeds], *numbers)))[: request.seeds]


def env_cells(
    study: Study,
    grid: Grid,
    env: str,
    base: Mapping[str, Any],
    prefix: Sequence[str],
    seeds: Sequence[int],
    values: Mapping[str, Sequence[Any]],
    left_out: list[LeftOut],
) -> Iterator[Cell]:
    """The cells of a grid in one environment. `left_out` collects what the base cannot reach.

    `values` are those of all grids by setting, which names must tell apart.
    """
    for arm, ratio, (point, factors) in product(grid.arms, grid.ratios, list(swept(grid))):
        parts = [*prefix, arm, f"r{ratio}", *point_words(point, factors, values)]
        part = {"env": env, "base": grid.base, "arm": arm, "ratio": ratio, "point": point, "factors": factors}
        try:
            config = cell_settings(
                study.arms[arm], base, ratio=ratio, point=point, factors=factors, where=" ".join(parts)
            )
        except UnreachableError as error:
            left_out.append(LeftOut(**part, cause="ratio", reason=str(error)))
            continue
        for seed in seeds:
            yield Cell(
                name=file_name([*parts, f"s{seed}"]),
                part=0,
                **part,
                seed=seed,
                config=config | {"seed": seed},
            )


def swept(grid: Grid) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Every combination of the values and factors that a grid sweeps over."""
    for values in product(*grid.sweep.values()):
        for factors in product(*grid.factors.values()):
            yield (
                dict(zip(grid.sweep, values, strict=True)),
                dict(zip(grid.factors, factors, strict=True)),
            )


def by_setting(points: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The different values of each setting."""
    found: dict[str, list[Any]] = {}
    for path, value in (entry for point in points for entry in point.items()):
        known = found.setdefault(path, [])
        if value not in known:
            known.append(value)
    return found


def ranges_of(request: Request) -> dict[str, tuple[float, float]]:
    """The ranges of returns that a request gives with its environments."""
    given = request.ranges
    return {env: (given[2 * place], given[2 * place + 1]) for place, env in enumerate(request.envs) if given}


def validate_range(
    study: Study, request: Request, found: Sequence[Cell], ranges: Mapping[str, object]
) -> None:
    """Refuse an environment whose returns have no fixed scale: the study's own runs must not set its unit."""
    for env in dict.fromkeys(cell.env for cell in found):
        if env in ranges or has_published_range(env):
            continue
        given = (
            f"--range with the returns of {env}" if request.envs else f'[ranges] with "{env}" = [LOW, HIGH]'
        )
        raise ConfigError(
            f"study {study.name} has no fixed scale for returns in {env}: add {given}, those of random play "
            "and of the tuned base, which `--tune` prints"
        )


def validate_reference(study: Study, found: Sequence[Cell]) -> None:
    """Refuse an environment without a run of the reference: nothing would show that the base learns there."""
    for env in dict.fromkeys(cell.env for cell in found):
        if not any(cell.env == env and cell.is_reference(study.reference) for cell in found):
            raise ConfigError(
                f"study {study.name} has no cell of its reference, arm {study.reference['arm']} at ratio "
                f"{study.reference['ratio']}, in {env}: add it to a grid"
            )


def random_cells(found: Sequence[Cell]) -> Iterator[Cell]:
    """One cell of random play for each environment: a reference has to be better."""
    for env in dict.fromkeys(cell.env for cell in found):
        like = next(cell for cell in found if cell.env == env)
        name = file_name([env, RANDOM_ARM])
        yield replace(like, name=name, part=0, arm=RANDOM_ARM, ratio="1", point={}, factors={})


def point_words(
    point: Mapping[str, Any], factors: Mapping[str, float], among: Mapping[str, Sequence[Any]] | None = None
) -> list[str]:
    """Swept settings, each by the last word of its name, told apart from their other values `among`."""
    known = among or {}
    values = [
        f"{path.rpartition('.')[2]}={shown(value, known.get(path, ()))}" for path, value in point.items()
    ]
    return values + [
        f"{path.rpartition('.')[2]}×{shown(factor, known.get(path, ()))}" for path, factor in factors.items()
    ]


def setting_name(path: str) -> str:
    """A swept setting in words, such as: learning rate."""
    return path.rpartition(".")[2].replace("_", " ")


def shown(value: Any, among: Sequence[Any] = ()) -> str:
    """A value in six digits, or in all of them if another one has the same six."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    alike = any(other != value and shown(other) == text for other in among)
    return str(value) if alike else text


def file_name(parts: Sequence[str]) -> str:
    """Words joined to the name of a file: minatar-Breakout__all__r1-16__s1."""
    plain = "__".join(parts).replace("×", "-x").replace("=", "-")
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in plain)


def validate_cell_names(found: Mapping[str, Cell]) -> None:
    """Refuse cells whose run folder could not have their name, with advice that depends on the reason."""
    for name in found:
        try:
            run_folder.validate_name(name)
        except UserError as error:
            advice = "give its arm a shorter one"
            if not name.isascii():
                foreign = "".join(dict.fromkeys(letter for letter in name if not letter.isascii()))
                advice = f"write its arm, environment and swept values in ASCII letters, without {foreign}"
            raise ConfigError(f"a cell has an invalid name: {error}; {advice}") from None
