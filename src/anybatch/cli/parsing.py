"""From the words of a command line to its flags, over the settings of a preset or of a recorded run."""

import inspect
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO, TypeVar

import tyro
from rich.console import Console

from anybatch import envs, user_modules
from anybatch import presets as preset_files
from anybatch.cli import help_page, lost_output
from anybatch.cli.flag_values import FLAG_VALUES
from anybatch.cli.flags import PlanFlags, RunFlags, TrainFlags
from anybatch.cli.offered import offered_by, offering
from anybatch.cli.preset_choice import choice_by_env
from anybatch.cli.usage_error import as_user_error
from anybatch.cli.words import HELP_FLAGS, value_of
from anybatch.errors import EnvError, UserError
from anybatch.planning import decoupled_by_default
from anybatch.runs.plan_text import wrapped

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
    if value_of("--num-envs", words) is not None:
        flags.config.refuse_named_num_envs()
    # Standard output is for JSON only.
    to_reader = sys.stderr if isinstance(flags, PlanFlags) and flags.json else sys.stdout
    say = partial(sentence, stream=to_reader)
    if choice is not None:
        say(f"preset {choice.preset}: {choice.reason}; --preset selects another")
    config = decoupled_by_default(flags.config, say, policy_is_chosen=names_policy(words))
    return replace(flags, config=config)


def names_policy(words: list[str]) -> bool:
    return value_of("--proximal.policy", words) is not None


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
    config = flags.config
    if value_of("--env", words) is not None:  # named here, not by a preset or by the record of a run
        envs.import_as_named(config.env)
    if value_of("--network.factory", words) is not None and config.network.factory is not None:
        from anybatch.networks import custom as custom_networks  # imports torch

        custom_networks.import_as_named(config.network.factory)
    if value_of("--ray-address", words) is not None and config.ray_address is not None:
        user_modules.name("ray_address", config.ray_address)
    return with_options(flags, options | flags.config.env_config.options)


def with_options(flags: AnyFlags, options: dict[str, str]) -> AnyFlags:
    env_config = replace(flags.config.env_config, options=options)
    return replace(flags, config=replace(flags.config, env_config=env_config))


def sentence(text: str, stream: TextIO) -> None:
    """Print a sentence; on a terminal, wrapped between words."""
    with lost_output.tolerated():  # a reader who is gone does not end a training
        print(wrapped(text, Console(file=stream)), file=stream)
