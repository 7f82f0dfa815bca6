"""Named configurations. Each file says where its numbers are from and the batch they were tuned at."""

import difflib
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.errors import ConfigError

DEFAULT = "cartpole-ppo-ewma"


@dataclass(frozen=True)
class Preset:
    """A preset file, read."""

    name: str
    description: str
    source: str
    config: AnyConfig


def names() -> list[str]:
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load(name: str) -> Preset:
    """A preset by name, or a file of the user's own by its path, ending in .toml."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"there is no preset file {name}")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the preset file {name} cannot be read: {error}") from None
        return parse(path.stem, text)
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.3)
        raise ConfigError(f"there is no preset {name!r}; the nearest are {', '.join(near or names())}")
    return parse(name, (resources.files(__name__) / f"{name}.toml").read_text())


def parse(name: str, text: str) -> Preset:
    """The settings of a file over the defaults. It was tuned at its own batch, unless it says otherwise."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"preset {name}: {error}") from None
    except RecursionError:
        raise ConfigError(f"preset {name} is nested too deeply") from None
    kind = algorithm_config(str(table.pop("algorithm", "ppo")), where=f"preset {name}")
    description, source = str(table.pop("description", "")), str(table.pop("source", ""))
    for key in ("tuned_at", "update"):
        if not isinstance(table.get(key, {}), dict):
            raise ConfigError(f"preset {name}: {key} = {table[key]!r} must be a table, [{key}]")
    tuned_at = table.pop("tuned_at", {})
    settings = overlaid(config_to_dict(kind()), table)
    settings["tuned_at"] = own_batch(settings) | tuned_at
    return Preset(name, description, source, config_from_dict(kind, settings, where=f"preset {name}"))


def own_batch(settings: dict[str, Any]) -> dict[str, int]:
    """What settings were tuned at if they were tuned as they are."""
    return {
        "num_envs": settings["num_envs"],
        "num_steps": settings["num_steps"],
        "minibatches_per_epoch": settings["update"]["minibatches_per_epoch"],
        "epochs": settings["update"]["epochs"],
        "ranks": 1,
    }


def algorithm_config(name: str, where: str) -> type[AnyConfig]:
    """The config class of an algorithm."""
    if name not in CONFIGS:
        raise ConfigError(f"{where}: there is no algorithm {name!r}; there are {', '.join(CONFIGS)}")
    return CONFIGS[name]


def overlaid(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`settings` with `changes` laid over them, table by table. Unknown names stay, to be refused by name."""
    merged = dict(settings)
    for key, value in changes.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = overlaid(merged[key], value) if both_tables else value
    return merged
