"""The pages of the public Python names and of the equations, made from signatures and docstrings."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import anybatch
from anybatch import equations
from anybatch.cli.parser import documented

INTRODUCTION = """# Python API

Every public name of `import anybatch`, generated from the code. The settings of the config classes are the
[flags](flags.md#settings-of-a-run) of the command line, with underscores instead of dashes.
"""
EQUATIONS_INTRODUCTION = """# Equations

`anybatch.rules` contains the papers' rules for plain numbers and imports only the standard library.
`anybatch.equations` contains their formulas on tensors and imports only torch in addition. You can use both
in any trainer. This page is generated from the code.
"""
FIRST = ("anybatch.equations.objectives", "anybatch.rules", "anybatch.equations.returns")
"""Modules that most readers look for; the others follow in the order of the alphabet."""
LONGEST_LINE = 90
NETWORKS = ("anybatch.networks", "anybatch.weight_average")
RUNS = ("TrainedRun", "Iteration", "Agent", "PlanView", "Curve", "Evaluation")
SECTIONS: dict[str, Callable[[str, Any], bool]] = {
    "Functions": lambda _, value: inspect.isfunction(value),
    "Runs and agents": lambda name, _: name in RUNS,
    "Tuning": lambda _, value: getattr(value, "__module__", "").startswith("anybatch.lab.tuning"),
    "Configs": lambda _, value: getattr(value, "__module__", "").startswith("anybatch.config"),
    "Networks": lambda _, value: getattr(value, "__module__", "").startswith(NETWORKS),
    "Environments": lambda _, value: getattr(value, "__module__", "").startswith("anybatch.envs"),
    "Errors": lambda _, value: isinstance(value, type) and issubclass(value, Exception),
}


def page() -> str:
    parts = [INTRODUCTION]
    waiting = {name: getattr(anybatch, name) for name in anybatch.__all__ if name != "__version__"}
    for title, belongs in SECTIONS.items():
        names = [name for name, value in waiting.items() if belongs(name, value)]
        parts.append(f"## {title}\n")
        parts += [entry(name, waiting.pop(name)) for name in names]
    assert not waiting, f"the API reference has no section for {', '.join(waiting)}"
    return "\n".join(parts)


def equations_page() -> str:
    parts = [EQUATIONS_INTRODUCTION]
    names = {f"{equations.__name__}.{found.name}": None for found in pkgutil.iter_modules(equations.__path__)}
    for module in map(importlib.import_module, {**dict.fromkeys(FIRST), **names}):
        parts.append(f"## `{module.__name__}`\n\n{text_of(module)}\n")
        parts += [entry(name, value) for name, value in vars(module).items() if is_own(name, value, module)]
    return "\n".join(parts)


def is_own(name: str, value: Any, module: Any) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")


def entry(name: str, value: Any) -> str:
    if inspect.isfunction(value):
        return "\n".join([f"### `{name}`\n", code(signature(name, value)), text_of(value), ""])
    lines = [f"### `{name}`\n", f"{text_of(value)}\n"]
    if dataclasses.is_dataclass(value) or documented_fields(value):
        lines.append(fields_table(value))
    lines += members(value)
    return "\n".join(lines)


def documented_fields(value: Any) -> dict[str, str]:
    if dataclasses.is_dataclass(value) and isinstance(value, type):
        return documented(value)
    return {}


def fields_table(value: Any) -> str:
    docs = documented_fields(value)
    rows = [
        f"| `{field.name}` | {docs.get(field.name, '').replace('|', chr(92) + '|')} |"
        for field in dataclasses.fields(value)
        if docs.get(field.name) or not value.__module__.startswith("anybatch.config")
    ]
    return "\n".join(["| field | meaning |", "|---|---|", *rows, ""]) if rows else ""


def members(value: type) -> Iterator[str]:
    """The public methods and properties that a class defines itself."""
    if value.__module__.startswith("anybatch.config") or issubclass(value, Exception):
        return
    for name, member in vars(value).items():
        if name.startswith("_") or name in ("forward",):
            continue
        if isinstance(member, property) and member.fget is not None:
            yield f"**`{name}`** {text_of(member.fget)}\n"
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function):
            yield "\n".join([code(signature(name, function)), text_of(function), ""])


def signature(name: str, function: Any) -> str:
    """`name(…) -> …` as it is written, one parameter a line where it is long."""
    found = inspect.signature(function)
    # Without the modules of types, and without the quotes of a type that is defined further below.
    plain = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(\w+)", r"\1", str(found))
    plain = re.sub(r"(->|:) '(\w+)'", r"\1 \2", plain)
    line = f"{name}{plain}"
    if len(line) <= LONGEST_LINE:
        return line
    head, _, tail = line.rpartition(") ->")
    inner = head.partition("(")[2]
    return "\n".join([f"{name}(", *(f"    {part}," for part in split_parameters(inner)), f") ->{tail}"])


def split_parameters(text: str) -> list[str]:
    """At commas that are within no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def text_of(value: Any) -> str:
    """A docstring as Markdown. Formulas in it are indented, which makes them blocks of code."""
    doc = inspect.getdoc(value) or "" if has_own_doc(value) else ""
    return "\n".join(line if line.startswith("    ") else escaped(line) for line in doc.splitlines())


def escaped(line: str) -> str:
    return line.replace("*", "\\*").replace("<", "&lt;")


def has_own_doc(value: Any) -> bool:
    """Not the one that a dataclass makes of its signature."""
    doc = getattr(value, "__doc__", None)
    return bool(doc) and not doc.startswith(f"{getattr(value, '__name__', '')}(")
