"""`--help` as one page: the common flags with their meaning, then the names of the others by group."""

import dataclasses
import inspect
from typing import Any

from rich.console import Console
from rich.table import Table

from anybatch.cli.documented import documented
from anybatch.cli.offered import Offered, fields_of, offered_by

POSITIONAL = ("run", "repository", "study")
"""Positional flags."""
FIRST = (*POSITIONAL, "preset")
"""Flags at the top of the page."""


def show(flags: Any) -> None:
    """Print the page. `flags` holds the defaults to show: those of the named preset or run."""
    console, prog = Console(highlight=False), f"anybatch {flags.command}"
    positional = [name for name in documented(type(flags)) if name in POSITIONAL]
    usage = " ".join([prog, *(name.upper() for name in positional), "[OPTIONS]"])
    console.print(f"usage: {usage}\n\n{inspect.getdoc(flags)}\n", markup=False)

    common = Table.grid(padding=(0, 2))
    groups = Table.grid(padding=(0, 2))
    for name, value, meaning in flag_rows(flags):
        if dataclasses.is_dataclass(value):
            groups.add_row(
                f"--{_flag(name)}.…", ", ".join(group_members(flags.config, offered_by(flags), name))
            )
        elif name in positional:
            common.add_row(name.upper(), meaning, "")
        else:
            common.add_row(f"--{_flag(name)}", meaning, f"[{_shown(value)}]".replace("[", r"\["))
    console.print(common)
    if not groups.row_count:
        return
    console.print("\nFurther settings, as --group.name VALUE:\n")
    console.print(groups)
    console.print(f"\n`{prog} --help-all` explains each of them and shows its value.", markup=False)


def flag_rows(flags: Any) -> list[tuple[str, Any, str]]:
    """Name, value and meaning of each flag, with the offered settings in place of the config.

    Groups come last. A command that offers only some settings begins with its own flags.
    """
    config, offered = getattr(flags, "config", None), offered_by(flags)
    own = [
        (field.name, getattr(flags, field.name), documented(type(flags)).get(field.name, ""))
        for field in dataclasses.fields(flags)
        if field.name != "config"
    ]
    settings = [
        (field.name, getattr(config, field.name), documented(type(config)).get(field.name, ""))
        for field in (fields_of(config, offered) if config is not None else ())
    ]
    first = [row for row in own if offered is not None or row[0] in FIRST]
    rows = [*first, *settings, *(row for row in own if row not in first)]
    return sorted(rows, key=lambda row: (dataclasses.is_dataclass(row[1]), row[0] not in FIRST))


def group_members(config: Any, offered: Offered | None, group: str) -> list[str]:
    """The names of the settings of a group that are flags."""
    return [_flag(field.name) for field in fields_of(config, offered, group)]


def flag_names(flags: Any) -> set[str]:
    """The names of all flags without their dashes, such as num-envs and optimizer.learning-rate."""
    own = {_flag(field.name) for field in dataclasses.fields(flags) if field.name != "config"}
    return own | (setting_names(flags.config, offered_by(flags)) if hasattr(flags, "config") else set())


def setting_names(config: Any, offered: Offered | None = None) -> set[str]:
    """The names of the settings as flags: those that a command offers, by default all."""
    names: set[str] = set()
    for field in fields_of(config, offered):
        is_group = dataclasses.is_dataclass(getattr(config, field.name))
        members = group_members(config, offered, field.name) if is_group else ()
        names |= {f"{_flag(field.name)}.{member}" for member in members} or {_flag(field.name)}
    return names


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
