"""Checks of settings, each of which refuses a config in one sentence."""

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from anybatch.errors import ConfigError


def require(condition: bool, sentence: str) -> None:
    """Refuse a config: `sentence` names the fields and the values they have."""
    if not condition:
        raise ConfigError(sentence)


LARGEST_COUNT = 10**12
"""Largest count of a setting: engines and torch count in 64 bits, and products of counts must fit."""
LARGEST_FLOAT = 3.4e38
"""Largest number of a setting: losses are computed in 32 bits."""
LARGEST_LAYER = 2**14
MOST_ENVS = 2**20
MOST_THREADS = 1024


def require_sense(config: Any, group: str = "") -> None:
    """Refuse, in all groups, numbers that are not finite or too large to compute with."""
    for setting in fields(config):
        value = getattr(config, setting.name)
        path = group + setting.name.replace("_", "-")
        if is_dataclass(value):
            require_sense(value, f"{path}.")
        elif isinstance(value, float):
            require(math.isfinite(value), f"{path} = {value}: must be finite")
            require(abs(value) <= LARGEST_FLOAT, f"{path} = {value}: must not exceed {LARGEST_FLOAT:g}")
        elif isinstance(value, int) and path != "seed":
            require(abs(value) <= LARGEST_COUNT, f"{path} = {value}: must not exceed {LARGEST_COUNT:,}")


def require_layers(sizes: Sequence[int]) -> None:
    """Refuse widths of layers that no network can have."""
    require(
        all(1 <= size <= LARGEST_LAYER for size in sizes),
        f"network sizes must be positive and at most {LARGEST_LAYER:,}, got {tuple(sizes)}",
    )
