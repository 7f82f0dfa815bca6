"""The page of all commands and their flags, made from the dataclasses that the command line parses."""

import contextlib
import dataclasses
import importlib
import io
import re
from collections.abc import Iterator
from typing import Any

from anybatch.cli import flags, main
from anybatch.cli.documented import documented
from anybatch.cli.help_page import POSITIONAL, setting_names
from anybatch.cli.offered import offered_by
from anybatch.config import CONFIGS, RunConfig

INTRODUCTION = """# Commands and flags

Every command and flag, generated from the code. `anybatch COMMAND --help` shows the common flags of a command
with the values of the preset or run that you name, and `--help-all` shows every flag. Whole numbers can be
written as `10k`, `2.5M` or `1e6`.
"""
SETTINGS = """## Settings of a run

`train` and `plan` take every setting as a flag. `resume` does too, but starts from the settings recorded with
the run. So do `evaluate`, `watch`, `export` and `push`, which take only the settings that have an effect on a
trained policy. The defaults below are those of the config classes; presets
change many of them, and `anybatch presets NAME` prints a preset's values.
"""


def page() -> str:
    parts = [INTRODUCTION, *(command_section(name, title) for name, title in command_names().items())]
    parts.append(SETTINGS)
    parts += [table(rows) if not heading else f"### {heading}\n\n{table(rows)}" for heading, rows in groups()]
    return "\n".join(parts)


def command_names() -> dict[str, str]:
    """Every command and what `anybatch --help` says of it."""
    usage: str = importlib.import_module("anybatch.cli.main").USAGE
    entries = re.findall(r"^  (\w+) +(.*(?:\n {4,}.*)*)$", usage, re.M)
    return {name: " ".join(said.split()) for name, said in entries}


def command_section(name: str, title: str) -> str:
    kind = flags_of(name)
    heading = f"## `anybatch {name}`\n\n{sentence(title)}\n"
    if kind is None:
        return f"{heading}\n```text\n{help_text(name)}\n```\n"
    positional = [field for field in documented(kind) if field in POSITIONAL]
    rows = [
        (field.name.upper() if field.name in positional else flag(field.name), shown(default_of(field)), help)
        for field in dataclasses.fields(kind)
        if (help := documented(kind).get(field.name)) is not None
    ]
    return f"{heading}\n{table(rows)}\n{settings_of(kind)}"


def settings_of(kind: Any) -> str:
    """The sentence about the settings of a run that a command takes."""
    if not takes_settings(kind):
        return ""
    offered = offered_by(kind)
    if offered is None:
        return "Every [setting of a run](#settings-of-a-run) is a flag too.\n"
    names = set[str]().union(*(setting_names(config(), offered) for config in CONFIGS.values()))
    listed = ", ".join(f"`{flag(name)}`" for name in sorted(names, key=lambda name: ("." in name, name)))
    return f"Of the [settings of a run](#settings-of-a-run), these are flags too: {listed}.\n"


def sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def flags_of(name: str) -> Any:
    """The dataclass that a command parses: `TrainFlags` for `train`. None if its help is a text."""
    return getattr(flags, f"{name.capitalize()}Flags", None)


def takes_settings(kind: Any) -> bool:
    return any(field.name == "config" for field in dataclasses.fields(kind))


def help_text(name: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return said.getvalue().rstrip()


Row = tuple[str, str, str]


def groups() -> Iterator[tuple[str, list[Row]]]:
    """The common settings first, then each group of settings, once, with the algorithms that have it."""
    yield "", setting_rows(RunConfig, "")
    found: dict[tuple[str, type], list[str]] = {}
    for algorithm, kind in CONFIGS.items():
        for name, group in config_groups(kind):
            found.setdefault((name, group), []).append(algorithm)
    for (name, group), algorithms in found.items():
        whose = "" if len(algorithms) == len(CONFIGS) else f" ({', '.join(algorithms).upper()})"
        yield f"`--{dashed(name)}.…`{whose}", setting_rows(group, f"{name}.")


def config_groups(kind: type) -> Iterator[tuple[str, type]]:
    config: Any = kind()
    for field in dataclasses.fields(config):
        value = getattr(config.pinned(), field.name)
        if dataclasses.is_dataclass(value):
            yield field.name, type(value)


def setting_rows(kind: Any, prefix: str) -> list[Row]:
    return [
        (flag(prefix + field.name), shown(default_of(field)), documented(kind)[field.name])
        for field in dataclasses.fields(kind)
        if field.name in documented(kind) and not dataclasses.is_dataclass(default_of(field))
    ]


def default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def setting_flags(algorithm: str) -> set[str]:
    """The flags of every setting of an algorithm."""
    kind = CONFIGS[algorithm]
    names = {field.name for field in dataclasses.fields(kind)}
    names |= {
        f"{name}.{field.name}" for name, group in config_groups(kind) for field in dataclasses.fields(group)
    }
    return {flag(name) for name in names}


def command_flags(name: str) -> set[str]:
    """The flags that a command itself has, and the settings of a run if it takes only some of them."""
    kind = flags_of(name)
    if kind is None:
        return set(re.findall(r"--[\w.-]+", help_text(name)))
    own = {flag(field.name) for field in dataclasses.fields(kind)}
    offered = offered_by(kind)
    some = (setting_names(config(), offered) for config in CONFIGS.values()) if offered is not None else ()
    return own.union(*({flag(name) for name in names} for names in some))


def takes_every_setting(name: str) -> bool:
    kind = flags_of(name)
    return kind is not None and takes_settings(kind) and offered_by(kind) is None


def flag(name: str) -> str:
    return f"--{dashed(name)}"


def dashed(name: str) -> str:
    return name.replace("_", "-")


def shown(value: object) -> str:
    """A default as it would be typed."""
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == () or value == {} or value == "":
        return "none"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
    )


def table(rows: list[Row]) -> str:
    lines = [f"| `{name}` | {default} | {escaped(help)} |" for name, default, help in rows]
    return "\n".join(["| flag | default | meaning |", "|---|---|---|", *lines, ""])


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
