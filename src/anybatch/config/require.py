"""How a config refuses its values."""

import math
from dataclasses import fields, is_dataclass
from typing import Any

from anybatch.errors import ConfigError


def require(condition: bool, sentence: str) -> None:
    """Refuse a config: `sentence` names the fields and the values they have."""
    if not condition:
        raise ConfigError(sentence)


def require_finite(config: Any, group: str = "") -> None:
    """Refuse infinities and what is no number, in all groups: no setting means them, and JSON has none."""
    for setting in fields(config):
        value = getattr(config, setting.name)
        path = group + setting.name.replace("_", "-")
        if is_dataclass(value):
            require_finite(value, f"{path}.")
        elif isinstance(value, float):
            require(math.isfinite(value), f"{path} = {value}: a finite number is wanted")
