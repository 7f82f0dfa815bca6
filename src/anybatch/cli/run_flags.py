"""The flags of commands about runs, over the settings of a preset or of a recorded run."""

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from anybatch import planning, presets
from anybatch.cli.flags import Flags, NewRunFlags, RunFlags
from anybatch.cli.parser import Argv, flag_table, parse, read, with_values
from anybatch.config import EnvConfig
from anybatch.config.require import whole_number
from anybatch.errors import EnvError, UserError
from anybatch.presets import Choice

logger = logging.getLogger(__name__)

NewRun = TypeVar("NewRun", bound=NewRunFlags)
KnownRun = TypeVar("KnownRun", bound=RunFlags)
MOST_RANKS = 1024


def with_preset(kind: type[NewRun], argv: Argv) -> NewRun:
    """The flags over the settings of a preset: the named one, else the environment's, else the default."""
    try:
        name, choice = preset_of(argv)
    except EnvError:
        parse(kind(), argv)  # a wrong flag is reported first
        raise
    flags = parse(of_preset(kind, name), argv)
    planning.import_named(flags.config, named_settings(argv))
    if choice is not None:
        logger.info(f"preset {choice.preset}: {choice.reason}; --preset selects another")
    return replace(flags, config=planning.decided(flags.config, named_settings(argv)))


def with_run(kind: type[KnownRun], argv: Argv) -> KnownRun:
    """The flags over the settings recorded with the run that is named first."""
    if not argv.leading:
        raise UserError(kind.required)
    defaults = of_run(kind, Path(argv.leading[0]))
    flags = parse(defaults, argv)
    planning.import_named(flags.config, named_settings(argv))
    return replace(flags, run=defaults.run)


def defaults_of(kind: type[Flags], argv: Argv) -> Flags:
    """The flags whose values the help of a command line shows."""
    if issubclass(kind, NewRunFlags):
        try:
            name, _ = preset_of(argv)
        except EnvError:  # help needs no environment
            name = presets.DEFAULT
        return of_preset(kind, name)
    if issubclass(kind, RunFlags) and argv.leading:
        return of_run(kind, Path(argv.leading[0]))
    return kind()


def preset_of(argv: Argv) -> tuple[str, Choice | None]:
    """The preset of a new run, and how it was chosen if it was not named."""
    name = argv.value("preset")
    if name is not None:
        return name, None
    choice = choice_by_env(argv)
    return (choice.preset if choice else presets.DEFAULT), choice


def of_preset(kind: type[NewRun], name: str) -> NewRun:
    # The numbers of a preset refer to its batch, whatever batch the flags name.
    return kind(preset=name, config=presets.load(name).config.pinned())


def of_run(kind: type[KnownRun], path: Path) -> KnownRun:
    from anybatch.runs.record import RunRecord  # imports torch

    record = RunRecord(path)
    return kind(run=record.folder, config=record.config.pinned())


@dataclass(frozen=True, kw_only=True)
class EnvFlags(Flags):
    """The flags about the environment, which must be known before the other flags have defaults."""

    env: str = ""
    env_config: EnvConfig = field(default_factory=EnvConfig)


def choice_by_env(argv: Argv) -> Choice | None:
    """The preset for the environment that a command line names; None if it names none."""
    values, *_ = read(flag_table(EnvFlags()), argv)
    named = with_values(EnvFlags(), values)
    if not named.env:
        return None
    return planning.choose_preset(named.env, named.env_config)


def named_settings(argv: Argv) -> set[str]:
    """The settings that the command line names, of those for which it matters."""
    return {name for name in planning.NAMEABLE if name.replace("_", "-") in argv}


def number_of_ranks(argv: Argv) -> int:
    """The value of `--ranks`; 1 without the flag."""
    word = argv.value("ranks") or "1"
    try:
        number = whole_number(word)
    except ValueError:
        number = 0
    if not 1 <= number <= MOST_RANKS:
        raise UserError(f"--ranks {word}: must be a whole number from 1 to {MOST_RANKS:,}")
    return number
