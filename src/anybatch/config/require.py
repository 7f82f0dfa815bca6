"""Checks of settings; each refuses a config with one sentence."""

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from anybatch.errors import ConfigError


def require(condition: bool, sentence: str) -> None:
    """Refuse a config unless `condition` holds. `sentence` names the fields and their values."""
    if not condition:
        raise ConfigError(sentence)


LARGEST_COUNT = 10**12
"""Largest whole number in a setting: engines and torch count in 64 bits, and products of counts must fit."""
LARGEST_FLOAT = 3.4e38
"""Largest number in a setting: losses are computed in 32 bits."""
DEEPEST_NESTING = 64
"""Of data in files. What we write has less than half of it; more would exhaust the stack."""
LARGEST_LAYER = 2**14
MOST_ENVS = 2**20
MOST_THREADS = 1024


def require_sense(config: Any, group: str = "") -> None:
    """Refuse numbers, in all groups, that are non-finite or too large to compute with."""
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


def require_layers(name: str, sizes: Sequence[int]) -> None:
    """Refuse layer widths of a setting of the network that are not positive or are too large."""
    require(
        all(1 <= size <= LARGEST_LAYER for size in sizes),
        f"network.{name} = {' '.join(map(str, sizes))}: must be from 1 to {LARGEST_LAYER:,}",
    )
