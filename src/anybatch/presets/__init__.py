"""Named configurations. Each file states the source of its numbers and the batch they were tuned at.

About a dozen files are complete; the others extend one of them and state what differs.
"""

from pathlib import Path

from anybatch.config import AnyConfig
from anybatch.presets.by_env import Choice, for_env, for_spec, is_procgen
from anybatch.presets.files import (
    DEFAULT_ORIGIN,
    Preset,
    algorithm_config,
    chain,
    merge,
    names,
    overlaid,
    own_batch,
    parsed,
    read,
)
from anybatch.presets.toml_text import as_toml

DEFAULT = "classic-ppo-ewma"
"""The preset of a run that names neither a preset nor an environment."""

__all__ = [
    "DEFAULT",
    "DEFAULT_ORIGIN",
    "Choice",
    "Preset",
    "algorithm_config",
    "as_toml",
    "for_env",
    "for_few_cores",
    "for_spec",
    "load",
    "names",
    "overlaid",
    "own_batch",
    "parse",
]


def load(name: str) -> Preset:
    """A built-in preset by name, or the user's own file by its path, ending in .toml."""
    return merge(Path(name).stem if name.endswith(".toml") else name, chain(read(name)))


def for_few_cores(config: AnyConfig) -> str | None:
    """A preset with a network that few cores are fast enough for; None if there is none, or it is used."""
    if not is_procgen(config.env):
        return None
    name = f"procgen-small-{'ppg' if config.algorithm == 'ppg' else 'ppo'}-ewma"
    return None if config.network == load(name).config.network else name


def parse(name: str, text: str) -> Preset:
    """A preset from the text of a file. Paths that it extends are relative to the working folder."""
    return merge(name, chain(parsed(name, text, identity=f"the text of {name}", folder=Path())))
