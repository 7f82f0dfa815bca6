"""`anybatch COMMAND --help`: one layout for all commands, without what the command itself imports."""

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from anybatch.cli import flags as core
from anybatch.cli import lab_flags as lab
from anybatch.cli.flags import Flags, RunFlags
from anybatch.cli.parser import Argv, Flag, flag_table
from anybatch.cli.run_flags import defaults_of

FLAGS: dict[str, type[Flags]] = {
    "train": core.TrainFlags,
    "plan": core.PlanFlags,
    "plan --from": core.PlanFromFlags,
    "resume": core.ResumeFlags,
    "evaluate": core.EvaluateFlags,
    "watch": core.WatchFlags,
    "export": core.ExportFlags,
    "push": core.PushFlags,
    "pull": core.PullFlags,
    "advise": core.AdviseFlags,
    "report": core.ReportFlags,
    "plot": core.PlotFlags,
    "dial": core.DialFlags,
    "tune": lab.TuneFlags,
    "study": lab.StudyFlags,
    "check-env": core.CheckEnvFlags,
    "presets": core.PresetsFlags,
    "doctor": core.DoctorFlags,
}
"""The flags of each command."""
NARROWEST, WIDEST = 40, 120
WIDEST_NAME = 25
"""Longer names are on a line of their own."""
UNBROKEN = "\N{NO-BREAK SPACE}"


def show(name: str, words: list[str]) -> None:
    """Print the help of a command, with the values of the preset or run that the words name."""
    argv = Argv(words)
    if name == "plan" and "from" in argv:
        name = "plan --from"
    flags = defaults_of(FLAGS[name], argv)
    table = flag_table(flags)
    if isinstance(flags, RunFlags) and not argv.leading:  # the settings are those of a run that is not named
        for setting in [flag for flag in table.values() if flag.path[0] == "config"]:
            table[setting.name] = replace(setting, default="as recorded")
    print("\n".join(page(name, flags, table, everything="help-all" in argv)))


def page(name: str, flags: Flags, table: dict[str, Flag], *, everything: bool) -> Iterator[str]:
    """The lines of a help page: usage, description, flags and an example."""
    width = page_width()
    positional = [table.pop(place) for place in flags.positional]
    common = [table[first] for first in flags.common or table if first in table]
    others = [flag for flag in table.values() if flag not in common]
    yield usage(name, positional, optional=not flags.required)
    for paragraph in (inspect.getdoc(flags) or "").split("\n\n"):
        yield ""
        yield from textwrap.wrap(paragraph, width)
    yield ""
    named = [(flag.name.upper(), flag.meaning) for flag in positional]
    in_full = everything or not others
    yield from rows([*named, *(explained(flag, in_full=in_full) for flag in common)], width)
    groups = [(group, list(found)) for group, found in groupby(others, key=lambda flag: flag.group)]
    if everything:
        for _, found in groups:
            yield ""
            yield from rows([explained(flag, in_full=True) for flag in found], width)
    elif groups:
        yield f"\nOther flags, which `anybatch {name} --help-all` explains:\n"
        yield from rows([listed(group, found) for group, found in groups], width)
    yield f"\nExample:\n  {flags.example}"


def page_width() -> int:
    return max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))


def usage(name: str, positional: list[Flag], *, optional: bool) -> str:
    words = [f"{flag.name.upper()}{'...' if flag.takes_many else ''}" for flag in positional]
    shown_words = [f"[{word}]" for word in words] if optional else words
    command = "plan --from TRAINER --num-envs N" if name == "plan --from" else name
    return " ".join(["usage: anybatch", command, *shown_words, "[FLAGS]"])


def explained(flag: Flag, *, in_full: bool) -> tuple[str, str]:
    """A flag, and its meaning with its default; not in full, only up to the first period or semicolon."""
    meaning = flag.meaning if in_full else re.split(r"[.;] ", flag.meaning)[0].removesuffix(".")
    default = shown(flag.default)
    if flag.default is True:
        group, dot, name = flag.name.rpartition(".")
        default = f"on; --{group}{dot}no-{name} turns it off"
    says_default = flag.default in (None, ()) and "Default: " in flag.meaning
    unbroken = default.replace(" ", UNBROKEN)
    return f"--{flag.name}", meaning if says_default else f"{meaning} [{unbroken}]"


def listed(group: str, flags: Iterable[Flag]) -> tuple[str, str]:
    """A group of flags by name."""
    names = ", ".join(flag.name.rpartition(".")[2] for flag in flags)
    return (f"--{group}.…" if group else "--…"), names


def rows(pairs: list[tuple[str, str]], width: int) -> Iterator[str]:
    """Two columns."""
    margin = 4 + max((len(name) for name, _ in pairs if len(name) <= WIDEST_NAME), default=0)
    for name, text in pairs:
        wrapped = textwrap.wrap(text, width - margin, break_on_hyphens=False) or [""]
        lines = [line.replace(UNBROKEN, " ") for line in wrapped]
        if len(name) > margin - 4:
            yield f"  {name}"
            yield from (" " * margin + line for line in lines)
        else:
            yield f"  {name:{margin - 4}}  {lines[0]}".rstrip()
            yield from (" " * margin + line for line in lines[1:])


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
