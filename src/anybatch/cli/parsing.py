"""From the words of a command line to its flags, over the settings of a preset or of a recorded run."""

import inspect
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import tyro

from anybatch import planning
from anybatch import presets as preset_files
from anybatch.cli import help_page
from anybatch.cli.flag_values import FLAG_VALUES
from anybatch.cli.flags import PlanFlags, RunFlags, TrainFlags
from anybatch.cli.offered import offered_by, offering
from anybatch.cli.preset_choice import choice_by_env
from anybatch.cli.usage_error import as_user_error
from anybatch.cli.words import HELP_FLAGS, value_of
from anybatch.errors import EnvError, UserError

logger = logging.getLogger(__name__)

NewRun = TypeVar("NewRun", TrainFlags, PlanFlags)
KnownRun = TypeVar("KnownRun", bound=RunFlags)
AnyFlags = TypeVar("AnyFlags", bound=TrainFlags | PlanFlags | RunFlags)


def with_preset(kind: type[NewRun], words: list[str]) -> NewRun:
    """Parse twice: the preset becomes the defaults, so that --help shows its numbers."""
    name, choice = value_of("--preset", words), None
    if name is None:
        try:
            choice = choice_by_env(words)
        except EnvError:
            # Help needs no environment, and a wrong flag is reported first.
            parse(kind(config=preset_files.load(preset_files.DEFAULT).config), words)
            raise
        name = choice.preset if choice else preset_files.DEFAULT
    flags = parse(kind(preset=name, config=preset_files.load(name).config), words)
    if choice is not None:
        logger.info(f"preset {choice.preset}: {choice.reason}; --preset selects another")
    return replace(flags, config=planning.decided(flags.config, named_settings(words)))


def named_settings(words: list[str]) -> set[str]:
    """The settings that the command line names, of those for which the planning asks."""
    flags = {name: f"--{name.replace('_', '-')}" for name in planning.NAMEABLE}
    return {name for name, flag in flags.items() if value_of(flag, words) is not None}


def with_run(kind: type[KnownRun], words: list[str]) -> KnownRun:
    """Parse twice: the run's recorded config becomes the defaults."""
    if not words or words[0].startswith("-"):
        if HELP_FLAGS & set(words):
            return parse(kind(run=Path("RUN")), words)
        raise UserError("name the run folder first, such as runs/ for the newest run in that folder")
    from anybatch.runs.record import RunRecord  # imports torch

    record = RunRecord(Path(words[0]))
    flags = parse(kind(run=record.folder, config=record.config), words)
    return replace(flags, run=record.folder)


def parse(defaults: AnyFlags, words: list[str]) -> AnyFlags:
    """The flags applied over their defaults, whose numbers refer to the batch of the defaults."""
    defaults = replace(defaults, config=defaults.config.pinned())
    if {"-h", "--help"} & set(words):
        help_page.show(defaults)
        sys.exit(0)
    # For a non-empty dict, tyro makes one flag per key and accepts no others.
    options = defaults.config.env_config.options
    defaults = with_options(defaults, {})
    rules = offering(defaults.config, offered_by(defaults))
    if "--help-all" in words:
        with FLAG_VALUES, rules:
            prog, description = f"anybatch {defaults.command}", inspect.getdoc(defaults)
            tyro.cli(type(defaults), default=defaults, args=["--help"], prog=prog, description=description)
    known, settings = help_page.flag_names(defaults), help_page.setting_names(defaults.config)
    with as_user_error(known, of_training=settings - known), FLAG_VALUES, rules:
        flags = tyro.cli(type(defaults), default=defaults, args=words)
    planning.import_named(flags.config, named_settings(words))
    return with_options(flags, options | flags.config.env_config.options)


def with_options(flags: AnyFlags, options: dict[str, str]) -> AnyFlags:
    env_config = replace(flags.config.env_config, options=options)
    return replace(flags, config=replace(flags.config, env_config=env_config))
