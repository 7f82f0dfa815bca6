"""The preset of a new run: the named one, else the environment's, else the default."""

from dataclasses import dataclass, field

import tyro

from anybatch import planning
from anybatch.cli.flag_values import FLAG_VALUES
from anybatch.cli.usage_error import as_user_error
from anybatch.cli.words import HELP_FLAGS, value_of
from anybatch.config import EnvConfig
from anybatch.presets import Choice


@dataclass(frozen=True, kw_only=True)
class EnvFlags:
    """Flags about the environment that must be known before the other flags have defaults."""

    env: str = ""
    env_config: EnvConfig = field(default_factory=EnvConfig)


def choice_by_env(words: list[str]) -> Choice | None:
    """The choice for the environment that a command line names; None if it names none."""
    if value_of("--env", words) is None:
        return None
    flags = [word for word in words if word not in HELP_FLAGS]
    with as_user_error(), FLAG_VALUES:
        named, _ = tyro.cli(EnvFlags, args=flags, return_unknown_args=True)
    if not named.env:
        return None
    return planning.choose_preset(named.env, named.env_config)
