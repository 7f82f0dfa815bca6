"""Preset files: reading one and the chain of files that it extends, and merging them into a config."""

import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.errors import ConfigError, cause_of

OWN_BATCH = "own batch"
"""`tuned_at` of a file whose numbers, inherited ones included, were chosen at its own batch."""
DEFAULT_ORIGIN = "default"
"""Origin of numbers that no file of a chain states."""


@dataclass(frozen=True)
class PresetFile:
    """One file as written, without what it extends."""

    name: str
    """The name of a built-in preset, or the path of a user's file."""
    identity: str
    """Identity of the file: equal for two names of one file."""
    folder: Path
    """The folder that relative paths of extended files start from."""
    description: str
    source: str
    extends: str | None
    settings: dict[str, Any]
    """The settings that it states, including `algorithm` and `tuned_at`."""


def names() -> list[str]:
    """The built-in presets."""
    found = resources.files(__package__ or "").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in found if file.name.endswith(".toml"))


def read(name: str, folder: Path | None = None) -> PresetFile:
    """A built-in preset by name, or a file by its path, which ends in .toml and is relative to `folder`."""
    if name.endswith(".toml"):
        return read_path(name if folder is None else str(folder / name))
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "`anybatch presets` lists them"
        raise ConfigError(f"there is no preset {name!r}; {hint}")
    text = (resources.files(__package__ or "") / f"{name}.toml").read_text(encoding="utf-8")
    return parsed(name, text, identity=name, folder=Path())


def read_path(name: str) -> PresetFile:
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"there is no preset file {name}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the preset file {name} cannot be read: {cause_of(error)}") from None
    return parsed(name, text, identity=str(path.resolve()), folder=path.parent)


def parsed(name: str, text: str, *, identity: str, folder: Path) -> PresetFile:
    """Parse the text of a file. Entries that must be tables and are not are refused with the file's name."""
    where = f"preset {name}"
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{where}: it is nested too deeply") from None
    except ValueError as error:  # not TOML, or an integer of thousands of digits
        raise ConfigError(f"{where}: {error}") from None
    about = {key: table.pop(key, None) for key in ("description", "source", "extends")}
    for key, value in about.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{where}: {key} = {value!r} must be a string")
    if not isinstance(table.get("update", {}), dict):
        raise ConfigError(f"{where}: update = {table['update']!r} must be a table, [update]")
    tuned_at = table.get("tuned_at", {})
    if not isinstance(tuned_at, dict) and tuned_at != OWN_BATCH:
        raise ConfigError(
            f'{where}: tuned_at = {tuned_at!r} must be a table, [tuned_at], or the words "{OWN_BATCH}"'
        )
    return PresetFile(
        name=name,
        identity=identity,
        folder=folder,
        description=about["description"] or "",
        source=about["source"] or "",
        extends=about["extends"],
        settings=table,
    )


def chain(file: PresetFile) -> tuple[PresetFile, ...]:
    """What a file extends, what that extends, and so on: the root first, the file itself last."""
    files = [file]
    while (parent := files[-1].extends) is not None:
        child = files[-1]
        try:
            files.append(read(parent, child.folder))
        except ConfigError as error:
            raise ConfigError(f"preset {child.name} extends {parent!r}: {error}") from None
        if files[-1].identity in {known.identity for known in files[:-1]}:
            circle = " → ".join(known.name for known in files)
            raise ConfigError(f"preset {file.name} extends itself: {circle}")
    return tuple(reversed(files))


@dataclass(frozen=True)
class Preset:
    """A named configuration and the files it is merged from."""

    name: str
    config: AnyConfig
    files: tuple[PresetFile, ...]
    """The root first; the last one has the preset's name."""

    @property
    def description(self) -> str:
        return self.files[-1].description

    @property
    def source(self) -> str:
        """The source of the numbers in its own file."""
        return self.files[-1].source

    @property
    def extends(self) -> list[str]:
        """The presets whose numbers it inherits, the nearest first."""
        return [file.name for file in self.files[-2::-1]]

    def sources(self) -> dict[str, str]:
        """The source of each file of the chain, its own first."""
        return {file.name: file.source for file in reversed(self.files)}

    def origins(self) -> dict[str, str]:
        """The file that each number comes from, by the number's path, such as optimizer.learning_rate."""
        found = {path: DEFAULT_ORIGIN for path, _ in leaves(config_to_dict(self.config))}
        found["algorithm"] = DEFAULT_ORIGIN
        for file in self.files:
            states_own_batch = file is self.files[0] or file.settings.get("tuned_at") == OWN_BATCH
            batch = [path for path in found if path.startswith("tuned_at.")] if states_own_batch else []
            stated = [path for path, _ in leaves(file.settings) if path in found]
            found |= dict.fromkeys([*batch, *stated], file.name)
        return found


def merge(name: str, files: tuple[PresetFile, ...]) -> Preset:
    """The settings of each file over those of the file it extends, and of the root over the defaults.

    Numbers were tuned at the batch of the file they come from. So a root is tuned at its own batch, unless it
    says otherwise, and a file that extends another inherits `tuned_at` along with the numbers: if it only
    changes `num_envs`, they rescale. `tuned_at = "own batch"` says that all of them were chosen at the new
    batch.
    """
    where = f"preset {files[-1].name}"
    stated = [file.settings["algorithm"] for file in files if "algorithm" in file.settings]
    kind = algorithm_config(str(stated[-1]) if stated else "ppo", where)
    settings = config_to_dict(kind())
    tuned_at: dict[str, Any] = {}
    for file in files:
        own = {key: value for key, value in file.settings.items() if key not in ("algorithm", "tuned_at")}
        settings = overlaid(settings, own)
        stated_batch = file.settings.get("tuned_at", {})
        batch = own_batch(settings)
        tuned_at = batch if stated_batch == OWN_BATCH else (tuned_at or batch) | stated_batch
    settings["tuned_at"] = tuned_at
    return Preset(name, config_from_dict(kind, settings, where=where), files)


def own_batch(settings: dict[str, Any]) -> dict[str, int]:
    """The tuned batch of settings that were tuned at their own batch."""
    return {
        "num_envs": settings["num_envs"],
        "num_steps": settings["num_steps"],
        "minibatches_per_epoch": settings["update"]["minibatches_per_epoch"],
        "epochs": settings["update"]["epochs"],
    }


def algorithm_config(name: str, where: str) -> type[AnyConfig]:
    """The config class of an algorithm."""
    if name not in CONFIGS:
        raise ConfigError(f"{where}: there is no algorithm {name!r}; the algorithms are {', '.join(CONFIGS)}")
    return CONFIGS[name]


def overlaid(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`settings` overridden by `changes`, table by table. Unknown names are kept, to be refused by name."""
    merged = dict(settings)
    for key, value in changes.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = overlaid(merged[key], value) if both_tables else value
    return merged


def leaves(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting and its path; a table without entries is a setting too."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
