"""`--help` as one page: the common flags with their meaning, then the names of the others by group."""

import ast
import dataclasses
import inspect
from functools import cache
from textwrap import dedent
from typing import Any

from rich.console import Console
from rich.table import Table

HELP_FLAGS = {"-h", "--help", "--help-all"}
POSITIONAL = ("run", "repository")
"""Positional flags."""


def show(flags: Any, prog: str, description: str | None) -> None:
    """Print the page. `flags` holds the defaults to show: those of the named preset or run."""
    console = Console(highlight=False)
    positional = [name for name in documented(type(flags)) if name in POSITIONAL]
    usage = " ".join([prog, *(name.upper() for name in positional), "[OPTIONS]"])
    console.print(f"usage: {usage}\n\n{inspect.cleandoc(description or '')}\n", markup=False)

    common = Table.grid(padding=(0, 2))
    groups = Table.grid(padding=(0, 2))
    for name, value, meaning in flag_rows(flags):
        if dataclasses.is_dataclass(value):
            members = ", ".join(_flag(member) for member in documented(type(value)))
            groups.add_row(f"--{_flag(name)}.…", members)
        elif name in positional:
            common.add_row(name.upper(), meaning, "")
        else:
            common.add_row(f"--{_flag(name)}", meaning, f"[{_shown(value)}]".replace("[", r"\["))
    console.print(common)
    console.print("\nAll other settings, as --group.name VALUE:\n")
    console.print(groups)
    console.print(f"\n`{prog} --help-all` explains each of them and shows its value.", markup=False)


def flag_rows(flags: Any) -> list[tuple[str, Any, str]]:
    """Name, value and meaning of each flag, with the config's fields in place of the config."""
    rows: list[tuple[str, Any, str]] = []
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if field.name == "config":
            docs = documented(type(value))
            rows += [
                (inner.name, getattr(value, inner.name), docs.get(inner.name, ""))
                for inner in dataclasses.fields(value)
            ]
        else:
            rows.append((field.name, value, documented(type(flags)).get(field.name, "")))
    return sorted(rows, key=lambda row: (dataclasses.is_dataclass(row[1]), row[0] != "preset"))


def flag_names(flags: Any) -> set[str]:
    """The names of all flags without their dashes, such as num-envs and optimizer.learning-rate."""
    names: set[str] = set()
    for name, value, _ in flag_rows(flags):
        members = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        names |= {f"{_flag(name)}.{_flag(member.name)}" for member in members} or {_flag(name)}
    return names


@cache
def documented(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, on one line. Fields without one are absent."""
    docs: dict[str, str] = {}
    for base in kind.__bases__:
        if dataclasses.is_dataclass(base):
            docs |= documented(base)
    body = ast.parse(dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            assert isinstance(below.value, ast.Constant)
            docs[field.target.id] = " ".join(str(below.value.value).split())
    return docs


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
