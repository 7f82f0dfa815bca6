"""The config of a preset: its chain of files over the defaults, and the origin of each number."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.errors import ConfigError
from anybatch.presets.files import OWN_BATCH, PresetFile

DEFAULT_ORIGIN = "default"
"""Origin of numbers that no file of a chain states."""


@dataclass(frozen=True)
class Preset:
    """A named configuration and the files it is merged from."""

    name: str
    config: AnyConfig
    files: tuple[PresetFile, ...]
    """The root first; the last one has the preset's name."""

    @property
    def description(self) -> str:
        return self.files[-1].description

    @property
    def source(self) -> str:
        """The source of the numbers in its own file."""
        return self.files[-1].source

    @property
    def extends(self) -> list[str]:
        """The presets whose numbers it inherits, the nearest first."""
        return [file.name for file in self.files[-2::-1]]

    def sources(self) -> dict[str, str]:
        """The source of each file of the chain, its own first."""
        return {file.name: file.source for file in reversed(self.files)}

    def origins(self) -> dict[str, str]:
        """The file that each number comes from, by the number's path, such as optimizer.learning_rate."""
        found = {path: DEFAULT_ORIGIN for path, _ in leaves(config_to_dict(self.config))}
        found["algorithm"] = DEFAULT_ORIGIN
        for file in self.files:
            states_own_batch = file is self.files[0] or file.settings.get("tuned_at") == OWN_BATCH
            batch = [path for path in found if path.startswith("tuned_at.")] if states_own_batch else []
            stated = [path for path, _ in leaves(file.settings) if path in found]
            found |= dict.fromkeys([*batch, *stated], file.name)
        return found


def merge(name: str, files: tuple[PresetFile, ...]) -> Preset:
    """The settings of each file over those of the file it extends, and of the root over the defaults.

    Numbers were tuned at the batch of the file they come from. So a root is tuned at its own batch, unless it
    says otherwise, and a file that extends another inherits `tuned_at` along with the numbers: if it only
    changes `num_envs`, they rescale. `tuned_at = "own batch"` says that all of them were chosen at the new
    batch.
    """
    where = f"preset {files[-1].name}"
    stated = [file.settings["algorithm"] for file in files if "algorithm" in file.settings]
    kind = algorithm_config(str(stated[-1]) if stated else "ppo", where)
    settings = config_to_dict(kind())
    tuned_at: dict[str, Any] = {}
    for file in files:
        own = {key: value for key, value in file.settings.items() if key not in ("algorithm", "tuned_at")}
        settings = overlaid(settings, own)
        tuned_at = tuned_at_of(file, settings, tuned_at)
    settings["tuned_at"] = tuned_at
    return Preset(name, config_from_dict(kind, settings, where=where), files)


def tuned_at_of(file: PresetFile, settings: dict[str, Any], inherited: dict[str, Any]) -> dict[str, Any]:
    """The batch of one file's numbers; `settings` are merged up to it, `inherited` is empty for a root."""
    stated = file.settings.get("tuned_at", {})
    if stated == OWN_BATCH:
        return own_batch(settings)
    return (inherited or own_batch(settings)) | stated


def own_batch(settings: dict[str, Any]) -> dict[str, int]:
    """The tuned batch of settings that were tuned at their own batch."""
    return {
        "num_envs": settings["num_envs"],
        "num_steps": settings["num_steps"],
        "minibatches_per_epoch": settings["update"]["minibatches_per_epoch"],
        "epochs": settings["update"]["epochs"],
    }


def algorithm_config(name: str, where: str) -> type[AnyConfig]:
    """The config class of an algorithm."""
    if name not in CONFIGS:
        raise ConfigError(f"{where}: there is no algorithm {name!r}; the algorithms are {', '.join(CONFIGS)}")
    return CONFIGS[name]


def overlaid(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`settings` overridden by `changes`, table by table. Unknown names are kept, to be refused by name."""
    merged = dict(settings)
    for key, value in changes.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = overlaid(merged[key], value) if both_tables else value
    return merged


def leaves(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting and its path; a table without entries is a setting too."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
