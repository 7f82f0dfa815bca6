"""Reading a foreign configuration: key=value words, or a JSON or YAML file."""

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anybatch.config.whole_number import MOST_DIGITS
from anybatch.errors import UserError, cause_of
from anybatch.foreign.trainers import Settings, Trainer, shown
from anybatch.runs.json_text import DEEPEST

FILES = (".json", ".yaml", ".yml")
MOST_VALUES = 10_000
"""Most values in a setting."""
SECTIONS = {"algorithm", "training", "env_runners", "learners"}
"""Groups of settings within a trainer's configuration; other tables are values or names of environments."""


def read_settings(trainer: Trainer, given: Sequence[str]) -> Settings:
    """The settings in the given words; later ones override earlier ones. The names are the trainer's."""
    settings: Settings = {}
    for word in given:
        key, equals, value = word.partition("=")
        if Path(key).suffix.lower() in FILES and not equals:
            settings |= read_file(trainer, Path(word))
        elif equals and key:
            settings[plain_key(key)] = parsed(value)
        else:
            raise UserError(
                f"{word}: settings of {trainer.title} must be key=value, such as "
                f"{trainer.learning_rate}=3e-4, or a file that ends in {', '.join(FILES)}"
            )
    for key, value in settings.items():
        refuse_unplain(key, value)
    return settings


def refuse_unplain(key: str, setting: Any) -> None:
    """Refuse what is not text, numbers, and lists and tables of these, or cannot be printed again.

    `key` is the name of the setting, or of a file with several.
    """
    level = [setting]
    for _ in range(DEEPEST):
        for value in level:
            if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
                raise UserError(f"{key}: numbers must have at most {MOST_DIGITS} digits")
            if value is not None and not isinstance(value, str | int | float | list | tuple | dict):
                raise UserError(f"{key} = {shown(value)}: must be a number, a string, a list or a table")
        level = [inner for value in level for inner in inside(value)]
        if len(level) > MOST_VALUES:  # references within YAML can multiply a few lines without limit
            raise UserError(f"{key}: must have at most {MOST_VALUES:,} values")
        if not level:
            return
    raise UserError(f"{key}: it is nested too deeply")


def inside(value: Any) -> list[Any]:
    """The values inside a list or a table, and the keys of the latter."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple) else []


def plain_key(key: str) -> str:
    """The key of a command-line flag: --num-envs is num_envs."""
    return key.removeprefix("--").replace("-", "_")


def parsed(text: str) -> Any:
    """A number, True, None or a list as Python writes them; anything else is a string."""
    try:
        return ast.literal_eval({"true": "True", "false": "False", "null": "None"}.get(text, text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def read_file(trainer: Trainer, path: Path) -> Settings:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix.lower() == ".json" else from_yaml(path, text)
    except RecursionError:
        raise UserError(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {cause_of(error)}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a table of settings")
    refuse_unplain(str(path), content)
    return flattened(trainer, content, path)


def from_yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise UserError(f"{path} needs the package pyyaml: install it with pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from None
    except (LookupError, TypeError, AttributeError) as error:  # of a value that is not what its tag says
        raise ValueError(f"it has a value that is not what its tag says ({error!r})") from None


def flattened(trainer: Trainer, content: dict[Any, Any], path: Path) -> Settings:
    """One table, from sections of one configuration or from a file with one configuration by name."""
    tables = {str(key): value for key, value in content.items() if isinstance(value, dict)}
    named = [key for key in tables if key not in SECTIONS and key not in trainer.known]
    if named and len(tables) == len(content):
        if len(named) > 1:
            raise UserError(f"{path} has several configurations, {', '.join(named[:5])}: it must have one")
        return flattened(trainer, tables[named[0]], path)
    settings: Settings = {}
    for key, value in content.items():
        if key in SECTIONS and isinstance(value, dict):
            settings |= value
        else:
            settings[str(key)] = value
    return settings
