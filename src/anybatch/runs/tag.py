"""What differs between a run and its preset, short enough for the name of a folder."""

from typing import Any

from anybatch.config import AnyConfig
from anybatch.config.serialization import config_to_dict

MOST_CHARACTERS = 40
SHORT = {
    "num_envs": "n",
    "num_steps": "t",
    "update.epochs": "e",
    "update.minibatches_per_epoch": "mb",
    "optimizer.learning_rate": "lr",
    "optimizer.name": "",
    "controller.kind": "",
    "proximal.policy": "",
    "proximal.ewma_decay": "ewma",
    "proximal.copy_every": "copy",
    "objective.entropy_coefficient": "ent",
    "objective.kl_penalty": "kl",
    "staleness.iterations": "stale",
    "staleness.proximal_age": "age",
}
"""Common abbreviations; other settings use the last word of their name."""
NOT_NAMED = {
    "env",
    "seed",
    "total_env_steps",
    "device",
    "threads",
    "native",
    "microbatch",
    "actors",
    "ray_address",
    "actor_timeout",
    "env_config.engine_threads",
}
"""Settings that the folder's name already contains, or that curves do not depend on."""
GROUPS_NOT_NAMED = ("evaluation.", "record.")


def tag_of(config: AnyConfig, preset: AnyConfig) -> str:
    """The settings that differ, such as n16-lr0.001, in config order. Empty if none does.

    Those for which there is no room are counted: n16-lr0.001+2.
    """
    here, there = flat(config_to_dict(config)), flat(config_to_dict(preset))
    parts = [
        _part(path, value)
        for path, value in here.items()
        if value != there.get(path) and path not in NOT_NAMED and not path.startswith(GROUPS_NOT_NAMED)
    ]
    named = parts
    while len(tag := _joined(named, len(parts))) > MOST_CHARACTERS:
        named = named[:-1]
    return tag


def _joined(named: list[str], count: int) -> str:
    return "-".join(named) + (f"+{count - len(named)}" if len(named) < count else "")


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their whole names, such as optimizer.learning_rate."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _part(path: str, value: Any) -> str:
    name = SHORT.get(path, path.rpartition(".")[2])
    if isinstance(value, list):
        return name + "x".join(map(_text, value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{name}{_text(value)}" if is_number or not name else f"{name}={_text(value)}"


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    return format(value, "g") if isinstance(value, float) else str(value)
