"""Study files: reading one, and refusing errors in it by name.

title, claim, source    what the study is about, strings
threads                 threads of torch in each cell; by default 1
reference               { arm, ratio, point }: the cells that others are compared with. If they did not
                        learn, the study is void

[bases.NAME]            a preset, `settings` over it, and under `envs` the settings of single environments
[arms.NAME]             `title`, and the `settings` that differ from the base. `minibatches = "follow"`
                        lets the number of minibatches follow the ratio instead of their size
[other_env]             `settings`, and optionally a `preset`, for an environment that no base fits
[ranges]                returns that normalize to 0 and 1: "minatar:Breakout" = [0.5, 12.0], those of random
                        play and of the tuned base. `--tune` prints them. Only environments with a published
                        range need none
[scales.NAME]           `base`, `envs`, `seeds`, `total_env_steps`: defaults of its grids
[[scales.NAME.grid]]    `arms`, `ratios`, and any of those defaults; `sweep` replaces settings, `factors`
                        multiply them. In the order in which they are run
[[scales.NAME.tune]]    the same, for `--tune`
[[verdicts]]            see anybatch.lab.verdicts
"""

import difflib
import tomllib
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any

from anybatch import presets
from anybatch.errors import ConfigError, cause_of
from anybatch.lab.studies.cells import RANDOM_ARM
from anybatch.lab.studies.tables import Table
from anybatch.storage import safe_files

SUFFIX = ".toml"
MINIBATCHES = ("scale", "follow")


@dataclass(frozen=True, kw_only=True)
class Base:
    """The configuration that everything else in a study varies."""

    preset: str
    settings: dict[str, Any]
    envs: dict[str, dict[str, Any]]
    """Settings of single environments, such as a tuned learning rate."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What differs from the base."""

    title: str
    settings: dict[str, Any]
    minibatches_follow: bool


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Arms × ratios × environments × seeds × swept settings, all with one base."""

    base: str
    arms: tuple[str, ...]
    ratios: tuple[str, ...]
    envs: tuple[str, ...]
    seeds: tuple[int, ...]
    total_env_steps: int | None
    """Length of each run; None: the preset's."""
    sweep: dict[str, list[Any]]
    factors: dict[str, list[float]]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The grids of one size of a study, in the order in which they are run."""

    grid: tuple[Grid, ...]
    tune: tuple[Grid, ...]

    @property
    def envs(self) -> list[str]:
        """The environments of all grids."""
        return list(dict.fromkeys(env for grid in (*self.grid, *self.tune) for env in grid.envs))


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study file."""

    name: str
    title: str
    claim: str
    source: str
    threads: int
    reference: dict[str, Any]
    bases: dict[str, Base]
    arms: dict[str, Arm]
    other_env: Base | None
    ranges: dict[str, tuple[float, float]]
    scales: dict[str, Scale]
    verdicts: tuple[dict[str, Any], ...]

    def scale(self, name: str) -> Scale:
        if name not in self.scales:
            raise ConfigError(f"study {self.name} has no scale {name}; it has {', '.join(self.scales)}")
        return self.scales[name]


def names() -> list[str]:
    """The studies in the package."""
    found = resources.files(__package__ or "").iterdir()
    return sorted(file.name.removesuffix(SUFFIX) for file in found if file.name.endswith(SUFFIX))


def load(name: str, within: tuple[str, ...] = ()) -> Study:
    """A study by name, or the user's own file by its path, ending in .toml.

    `within` are the studies that are being read, each of which takes a base from the next.
    """
    if name.endswith(SUFFIX):
        path = Path(name)
        try:
            return parse(path.stem, safe_files.read(path).decode("utf-8"), (*within, identity(name)))
        except FileNotFoundError:
            raise ConfigError(f"there is no study file {name}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the study file {name} cannot be read: {cause_of(error)}") from None
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "`anybatch study` lists them"
        raise ConfigError(f"there is no study {name!r}; {hint}")
    text = (resources.files(__package__ or "") / f"{name}{SUFFIX}").read_text(encoding="utf-8")
    return parse(name, text, (*within, identity(name)))


def identity(name: str) -> str:
    """What a study is known by, however its file is named."""
    return str(Path(name).resolve()) if name.endswith(SUFFIX) else name


def parse(name: str, text: str, within: tuple[str, ...] = ()) -> Study:
    """The study that the text of a file describes, the last one of `within`."""
    where = f"study {name}"
    try:
        top = Table(tomllib.loads(text), where)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if "metric" in top:
        raise ConfigError(f"{where}: there is no field metric; verdicts are judged by final return and area")
    bases = {key: named_base(key, table, within) for key, table in top.tables("bases").items()}
    arms = {key: arm(table) for key, table in top.tables("arms").items()}
    if RANDOM_ARM in arms:
        raise ConfigError(f"{where}.arms: the name {RANDOM_ARM} is taken by random play; choose another one")
    study = Study(
        name=name,
        title=top.words("title"),
        claim=top.words("claim"),
        source=top.text("source", ""),
        threads=top.count("threads", 1, least=1),
        reference=reference(top.table("reference"), arms),
        bases=bases,
        arms=arms,
        other_env=base(top.table("other_env"), preset="") if "other_env" in top else None,
        ranges=ranges(top.table("ranges", {})),
        scales={key: scale(table, bases, arms) for key, table in top.tables("scales").items()},
        verdicts=tuple(table.all() for table in top.list_of_tables("verdicts")),
    )
    top.validate_all_read()
    return study


def named_base(name: str, table: Table, within: tuple[str, ...]) -> Base:
    """A base of this file, or of another study, with further settings."""
    if "study" not in table:
        return base(table)
    other, settings = table.text("study"), table.plain("settings")
    table.validate_all_read()
    if identity(other) in within:
        raise ConfigError(f"{table.where}: study {other} takes its bases from this one")
    known = load(other, within).bases
    if name not in known:
        raise ConfigError(f"{table.where}: study {other} has no base {name}; it has {', '.join(known)}")
    return replace(known[name], settings=presets.overlaid(known[name].settings, settings))


def base(table: Table, preset: str | None = None) -> Base:
    known = Base(
        preset=table.text("preset", preset),
        settings=table.plain("settings"),
        envs={key: inner.all() for key, inner in table.tables("envs").items()},
    )
    table.validate_all_read()
    return known


def arm(table: Table) -> Arm:
    known = Arm(
        title=table.words("title"),
        settings=table.plain("settings"),
        minibatches_follow=table.choice("minibatches", MINIBATCHES, "scale") == "follow",
    )
    table.validate_all_read()
    return known


def reference(table: Table, arms: dict[str, Arm]) -> dict[str, Any]:
    known = {"arm": table.choice("arm", tuple(arms)), "ratio": ratio(table.text("ratio", "1"), table.where)}
    point = {"point": table.plain("point")} if "point" in table else {}
    table.validate_all_read()
    return known | point


def ranges(table: Table) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for env in table.names():
        low, high = table.numbers(env, length=2)
        if low >= high:
            raise ConfigError(f"{table.where}.{env} = [{low:g}, {high:g}]: must be a low and a high return")
        found[env] = (low, high)
    return found


def scale(table: Table, bases: dict[str, Base], arms: dict[str, Arm]) -> Scale:
    defaults = {key: table.take(key) for key in ("base", "envs", "seeds", "total_env_steps")}
    given = {key: value for key, value in defaults.items() if value is not None}

    tables = table.list_of_tables("grid", required=True), table.list_of_tables("tune")
    table.validate_all_read()
    parts = [
        tuple(grid(Table(given | inner.all(), inner.where), bases, arms) for inner in inners)
        for inners in tables
    ]
    return Scale(grid=parts[0], tune=parts[1])


def grid(table: Table, bases: dict[str, Base], arms: dict[str, Arm]) -> Grid:
    known = Grid(
        base=table.choice("base", tuple(bases)),
        arms=tuple(table.choices("arms", tuple(arms))),
        ratios=tuple(ratio(text, f"{table.where}.ratios") for text in table.texts("ratios", ["1"])),
        envs=tuple(table.texts("envs")),
        seeds=tuple(table.counts("seeds")),
        total_env_steps=table.count("total_env_steps", least=1) if "total_env_steps" in table else None,
        sweep={key: list(values) for key, values in table.lists("sweep").items()},
        factors=table.factors("factors"),
    )
    table.validate_all_read()
    return known


def ratio(text: str, where: str) -> str:
    """A ratio of batches in lowest terms: 4/16 is 1/4."""
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value <= 0:
        raise ConfigError(f"{where}: the ratio {text!r} must be a positive fraction such as 1/16 or 4")
    return str(value)
