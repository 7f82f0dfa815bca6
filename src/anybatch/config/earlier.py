"""Settings as earlier versions wrote them, in preset files and in the records of runs."""

from typing import Any

from anybatch.config.groups import NormalizeConfig, TunedAt


def upgraded(kind: type[Any], settings: dict[str, object]) -> dict[str, object]:
    """The settings of a group in the form of this version."""
    if kind is TunedAt and "ranks" in settings:
        return _all_envs(settings)
    if kind is NormalizeConfig and isinstance(settings.get("observations"), bool):
        return settings | {"observations": "step" if settings["observations"] else "none"}
    return settings


def _all_envs(settings: dict[str, object]) -> dict[str, object]:
    """Envs were counted per rank; now one number counts the envs of all ranks."""
    rest = {name: value for name, value in settings.items() if name != "ranks"}
    ranks, num_envs = settings["ranks"], settings.get("num_envs")
    if type(ranks) is int and ranks >= 1 and type(num_envs) is int:
        return rest | {"num_envs": num_envs * ranks}
    return settings  # refused as unknown
