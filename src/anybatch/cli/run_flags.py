"""The flags of commands about runs, over the settings of a preset or of a recorded run."""

import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TextIO, TypeVar

from rich.console import Console

from anybatch import envs, presets, user_modules
from anybatch.cli import lost_output
from anybatch.cli.flag_table import flag_table
from anybatch.cli.flags import Flags, NewRunFlags, PlanFlags, RunFlags
from anybatch.cli.parser import Argv, parse, read, with_values
from anybatch.config import AnyConfig, EnvConfig
from anybatch.config.require import whole_number
from anybatch.envs.ids import refuse_unknown
from anybatch.errors import EnvError, UserError
from anybatch.planning import decoupled_by_default
from anybatch.presets import Choice
from anybatch.runs.plan_text import wrapped

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
    if "num-envs" in argv:
        flags.config.refuse_named_num_envs()
    import_named_parts(flags.config, argv)
    # Standard output is for JSON only.
    to_reader = sys.stderr if isinstance(flags, PlanFlags) and flags.json else sys.stdout
    say = partial(sentence, stream=to_reader)
    if choice is not None:
        say(f"preset {choice.preset}: {choice.reason}; --preset selects another")
    config = decoupled_by_default(flags.config, say, policy_is_chosen="proximal.policy" in argv)
    return replace(flags, config=config)


def with_run(kind: type[KnownRun], argv: Argv) -> KnownRun:
    """The flags over the settings recorded with the run that is named first."""
    if not argv.leading:
        raise UserError(kind.required)
    defaults = of_run(kind, Path(argv.leading[0]))
    flags = parse(defaults, argv)
    import_named_parts(flags.config, argv)
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
    envs.import_as_named(named.env)
    refuse_unknown(named.env, named.env_config)
    return presets.for_env(named.env, named.env_config)


def import_named_parts(config: AnyConfig, argv: Argv) -> None:
    """Import a person's own modules that the command line names itself, not only a preset or a record."""
    if "env" in argv:
        envs.import_as_named(config.env)
    if "network.factory" in argv and config.network.factory is not None:
        from anybatch.networks import custom as custom_networks  # imports torch

        custom_networks.import_as_named(config.network.factory)
    if "ray-address" in argv and config.ray_address is not None:
        user_modules.name("ray_address", config.ray_address)


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


def sentence(text: str, stream: TextIO) -> None:
    """Print a sentence; on a terminal, wrapped between words."""
    with lost_output.tolerated():  # a reader who is gone does not end a training
        print(wrapped(text, Console(file=stream)), file=stream)
