"""Which flags a command has: the fields of its dataclass, and of the groups of settings in it.

The type of a field says how its value is read, its docstring what it means.
"""

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any, get_origin, get_type_hints

from anybatch.cli.flags import Flags

OTHER_NAMES = {"network_factory": "network.factory", "from_": "from"}
"""Fields that cannot be named like their flags."""


@dataclass(frozen=True)
class Flag:
    """One flag of a command, or a value that is given without a flag."""

    name: str
    path: tuple[str, ...]
    """The fields that lead to its value."""
    type: Any
    default: Any
    owner: Any
    """The dataclass that has the field."""

    @property
    def meaning(self) -> str:
        """The docstring of its field, which only help reads."""
        return documented(self.owner).get(self.path[-1], "")

    @property
    def group(self) -> str:
        """The group of settings that it belongs to; empty for none."""
        return self.name.rpartition(".")[0]

    @property
    def takes_many(self) -> bool:
        return get_origin(self.type) in (tuple, dict)


def flag_table(flags: Flags) -> dict[str, Flag]:
    """The flags of a command by name; `flags` holds their defaults."""
    return {
        flag.name: flag
        for flag in flags_in(flags)
        if flags.offered is None or flag.path[0] != "config" or flag.name in flags.offered
    }


def flags_in(owner: Any, path: tuple[str, ...] = (), prefix: str = "") -> Iterator[Flag]:
    """The flags of a dataclass, and of those in it."""
    hints = get_type_hints(type(owner))
    for field in dataclasses.fields(owner):
        name, value = field.name, getattr(owner, field.name)
        flag = prefix + OTHER_NAMES.get(name, name.replace("_", "-"))
        if dataclasses.is_dataclass(value):
            yield from flags_in(value, (*path, name), "" if name == "config" else f"{flag}.")
        else:
            yield Flag(flag, (*path, name), hints[name], value, type(owner))


@cache
def documented(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, on one line. Fields without one are absent."""
    docs: dict[str, str] = {}
    for base in kind.__bases__:
        if dataclasses.is_dataclass(base):
            docs |= documented(base)
    body = ast.parse(dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, below in pairwise(body.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
            case _:
                pass
    return docs


def shown(value: object) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value in ((), {}, ""):
        return "none"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
