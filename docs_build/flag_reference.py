"""The page of all commands and their flags, made from the dataclasses that the command line parses."""

import inspect
from collections.abc import Iterable

from anybatch.cli.flags import Flags, PlanFromFlags, SettingsFlags, TrainFlags
from anybatch.cli.help_page import FLAGS, shown
from anybatch.cli.parser import Flag, flag_table
from anybatch.config import CONFIGS

INTRODUCTION = """# Commands and flags

Every command and flag, generated from the code. `anybatch COMMAND --help` shows the flags of a command with
the values of the preset or run that you name. Where it explains only the common ones, `--help-all` explains
every flag. Whole numbers can be written as `10k`, `2.5M` or `1e6`.
"""
SETTINGS = """## Settings of a run

`train` and `plan` take every setting as a flag. `resume` does too, but starts from the settings recorded with
the run. So do `evaluate`, `watch`, `export` and `push`, which take only the settings that have an effect on a
trained policy. The defaults below are those of the config classes; presets
change many of them, and `anybatch presets NAME` prints a preset's values.
"""


def page() -> str:
    commands = [section(name, kind) for name, kind in FLAGS.items()]
    return "\n".join([INTRODUCTION, *commands, SETTINGS, *groups()])


def section(name: str, kind: type[Flags]) -> str:
    """What a command does, an example, and its own flags."""
    own = [flag for flag in flag_table(kind()).values() if flag.path[0] != "config"]
    parts = [f"## `anybatch {name}`", inspect.getdoc(kind) or "", f"```bash\n{kind.example}\n```"]
    parts.append(table(own, kind.positional))
    if takes_every_setting(name):
        parts.append("Every [setting of a run](#settings-of-a-run) is a flag too.")
    elif kind.offered is not None:
        names = sorted(kind.offered, key=lambda name: ("." in name, name))
        listed = ", ".join(f"`--{name}`" for name in names)
        parts.append(f"Of the [settings of a run](#settings-of-a-run), these are flags too: {listed}.")
    return "\n\n".join(parts) + "\n"


def groups() -> list[str]:
    """The common settings first, then each group of settings, once, with the algorithms that have it."""
    found: dict[tuple[str, type], tuple[list[Flag], list[str]]] = {}
    for algorithm, kind in CONFIGS.items():
        config = kind().pinned()
        for flag in settings_of(algorithm):
            group = type(getattr(config, flag.path[1])) if flag.group else type(None)
            flags, algorithms = found.setdefault((flag.group, group), ([], []))
            if flag.name not in [known.name for known in flags]:
                flags.append(flag)
            if algorithm not in algorithms:
                algorithms.append(algorithm)
    parts: list[str] = []
    for (name, _), (flags, algorithms) in found.items():
        whose = "" if len(algorithms) == len(CONFIGS) else f" ({', '.join(algorithms).upper()})"
        parts.append((f"### `--{name}.…`{whose}\n\n" if name else "") + table(flags) + "\n")
    return parts


def settings_of(algorithm: str) -> list[Flag]:
    """The flags of every setting of an algorithm."""
    flags = flag_table(TrainFlags(config=CONFIGS[algorithm]().pinned()))
    return [flag for flag in flags.values() if flag.path[0] == "config"]


def setting_flags(algorithm: str) -> set[str]:
    return {f"--{flag.name}" for flag in settings_of(algorithm)}


def command_flags(name: str) -> set[str]:
    """The flags that a command itself has, and the settings of a run if it takes only some of them."""
    kinds = [FLAGS[name], PlanFromFlags] if name == "plan" else [FLAGS[name]]
    own = {f"--{flag.name}" for kind in kinds for flag in flag_table(kind()).values()}
    return own | {f"--{name}" for name in FLAGS[name].offered or ()}


def takes_every_setting(name: str) -> bool:
    return issubclass(FLAGS[name], SettingsFlags) and FLAGS[name].offered is None


def table(flags: Iterable[Flag], positional: tuple[str, ...] = ()) -> str:
    lines = ["| flag | default | meaning |", "|---|---|---|"]
    for flag in flags:
        name, default = f"--{flag.name}", shown(flag.default)
        if flag.name in positional:
            name, default = flag.name.upper(), ""
        lines.append(f"| `{name}` | {default} | {escaped(flag.meaning)} |")
    return "\n".join(lines)


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
