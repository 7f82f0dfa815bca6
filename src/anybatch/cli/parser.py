"""From the words of a command line to the values of its flags, in one pass.

The flags of a command are the fields of its dataclass, and of the groups of settings in it. The type of a
field says how its value is read, its docstring what it means.
"""

import ast
import contextlib
import dataclasses
import difflib
import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from anybatch.cli.flags import Flags
from anybatch.config.require import whole_number
from anybatch.config.serialization import meant_elsewhere
from anybatch.errors import UserError

AnyFlags = TypeVar("AnyFlags", bound=Flags)
NEGATION = re.compile(r"(?:^|(?<=\.))no-")
"""What turns a switch off: --no-overlap, --record.no-tensorboard."""
WORDS = {int: "a whole number", float: "a number", str: "a word", Path: "a path", types.NoneType: "none"}
"""What the value of a flag must be, by its type."""
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


@dataclass(frozen=True)
class Given:
    """A flag as it was typed, with the words up to the next one."""

    words: tuple[str, ...]

    @property
    def typed(self) -> str:
        return self.words[0].partition("=")[0]

    @property
    def name(self) -> str:
        """The flag without its dashes; underscores are accepted for hyphens."""
        return self.typed.removeprefix("--").replace("_", "-")

    @property
    def values(self) -> list[str]:
        _, equals, value = self.words[0].partition("=")
        return [value, *self.words[1:]] if equals else list(self.words[1:])

    @property
    def others(self) -> list[str]:
        """The words after the flag and one value."""
        return list(self.words[1 if "=" in self.words[0] else 2 :])


class Argv:
    """The words of a command line, split at the flags."""

    def __init__(self, words: Sequence[str]):
        starts = [place for place, word in enumerate(words) if _is_flag(word)]
        self.words = list(words)
        self.leading = self.words[: starts[0]] if starts else self.words
        """The words before the first flag."""
        self.given = [Given(tuple(words[start:end])) for start, end in pairwise([*starts, len(words)])]

    def __contains__(self, name: str) -> bool:
        return any(given.name == name for given in self.given)

    def value(self, name: str) -> str | None:
        """The value of a flag that must be known before the others are read: the last one, as for all."""
        found = [given.values[0] for given in self.given if given.name == name and given.values]
        return found[-1] if found else None

    def without(self, *names: str) -> list[str]:
        """The words without these flags and their values."""
        kept = [given.others if given.name in names else list(given.words) for given in self.given]
        return [*self.leading, *(word for words in kept for word in words)]


def _is_flag(word: str) -> bool:
    """Whether a word is a flag, and not a negative number."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def parse(defaults: AnyFlags, argv: Argv) -> AnyFlags:
    """The flags of a command line over their defaults."""
    known = flag_table(defaults)
    positional = [known.pop(name) for name in defaults.positional]
    values, unknown, free = read(known, argv)
    if unknown:
        raise UserError(_about_unknown(unknown, defaults, known))
    if defaults.required and not free:
        raise UserError(defaults.required)
    for flag in positional:
        if free:
            taken = len(free) if flag.takes_many else 1
            values[flag.path] = _value(flag.type, free[:taken])
            free = free[taken:]
    if free:
        raise UserError(f"{free[0]}: no flag takes it as a value; --help shows the usage")
    return with_values(defaults, values)


Values = dict[tuple[str, ...], Any]
"""Values by the fields that lead to them."""


def read(known: Mapping[str, Flag], argv: Argv) -> tuple[Values, list[str], list[str]]:
    """The values of flags, the flags that are not known, and the words that belong to no flag.

    Of a flag that is given twice, the last one counts.
    """
    values: Values = {}
    unknown: list[str] = []
    free = list(argv.leading)
    for given in argv.given:
        switch = NEGATION.sub("", given.name)
        flag = known.get(given.name) or known.get(switch)
        if flag is None or (flag.name != given.name and flag.type is not bool):
            unknown.append(given.typed)
        elif flag.type is bool:
            if "=" in given.words[0]:
                raise UserError(f"{given.words[0]}: {given.typed} takes no value")
            values[flag.path] = flag.name == given.name
            free += given.values
        elif not given.values:
            raise UserError(f"{given.typed} needs a value")
        elif flag.takes_many:
            values[flag.path] = _read_value(flag, given.values)
        else:
            values[flag.path] = _read_value(flag, given.values[:1])
            free += given.others
    return values, unknown, free


def with_values(owner: Any, values: Values) -> Any:
    """A dataclass with other values; those of a dict are added to it."""
    inner: dict[str, Values] = {}
    for (name, *rest), value in values.items():
        inner.setdefault(name, {})[tuple(rest)] = value
    changes: dict[str, Any] = {}
    for name, part in inner.items():
        before = getattr(owner, name)
        new = part[()] if () in part else with_values(before, part)
        changes[name] = before | new if isinstance(new, dict) else new
    return dataclasses.replace(owner, **changes)


def _read_value(flag: Flag, words: list[str]) -> Any:
    try:
        return _value(flag.type, words)
    except ValueError as error:
        _, too_long, limit = str(error).partition(" must have ")
        rule = f"must have {limit}" if too_long else f"must be {description(flag.type)}"
        raise UserError(f"--{flag.name} {' '.join(words)}: {rule}") from None


def _value(kind: Any, words: list[str]) -> Any:
    """The value that words stand for; a ValueError if they do not fit the type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        # `none` comes before text, which takes any word.
        for part in sorted(arguments, key=lambda part: part is not types.NoneType):
            with contextlib.suppress(ValueError):
                return _value(part, words)
        raise ValueError(words)
    if origin is tuple:
        return () if words == ["none"] else tuple(_value(arguments[0], [word]) for word in words)
    if origin is dict:
        return dict(zip(words[::2], words[1::2], strict=True))
    (word,) = words
    if kind is types.NoneType and word.lower() == "none":
        return None
    if origin is Literal and word in arguments:
        return word
    if kind is types.NoneType or origin is Literal:
        raise ValueError(word)
    return whole_number(word) if kind is int else kind(word)


def description(kind: Any) -> str:
    """What a value must be."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        *others, last = sorted(arguments, key=lambda argument: argument is types.NoneType)
        return f"{', '.join(map(description, others))} or {description(last)}"
    if origin is Literal:
        return f"{'one of ' if len(arguments) > 1 else ''}{', '.join(arguments)}"
    if origin is dict:
        return "pairs of a name and a value, such as num_levels 200"
    if origin is tuple:
        return f"{WORDS[arguments[0]].removeprefix('a ')}s"
    return WORDS[kind]


def _about_unknown(unknown: Sequence[str], flags: Flags, known: Mapping[str, Flag]) -> str:
    """The refusal of flags that a command does not have, with those that may have been meant."""
    without_effect = {flag.name for flag in flags_in(flags) if flag.path[0] == "config"} - known.keys()
    names = {flag.rpartition(".")[2]: flag for flag in known} | {flag: flag for flag in known}
    meant: list[str] = []
    for typed in unknown:
        name = typed.removeprefix("--").replace("_", "-")
        same = [flag for flag in known if flag.rpartition(".")[2] == name.rpartition(".")[2]]
        if NEGATION.sub("", name) in without_effect:
            hint = _did_you_mean(same) or "--help lists the flags that have one"
            return f"{typed} is a setting of training and has no effect here; {hint}"
        near = [names[like] for like in difflib.get_close_matches(name, names, n=1)]
        meant += meant_elsewhere([name], known) or same or near
    return f"there is no flag {' or '.join(unknown)}; {_did_you_mean(meant) or '--help lists the flags'}"


def _did_you_mean(names: Sequence[str]) -> str:
    return f"did you mean {', '.join(f'--{name}' for name in names)}?" if names else ""
