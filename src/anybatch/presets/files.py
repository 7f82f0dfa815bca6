"""Preset files: reading one, and the chain of files that it extends."""

import difflib
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from anybatch.errors import ConfigError, cause_of

OWN_BATCH = "own batch"
"""`tuned_at` of a file whose numbers, inherited ones included, were chosen at its own batch."""


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
