"""Checks of settings, each of which refuses a config with one sentence, and numbers as people write them."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from anybatch.errors import ConfigError


@dataclass(frozen=True)
class Bound:
    """Values that a number may have."""

    words: str
    holds: Callable[[float], bool]


AT_LEAST_1 = Bound("must be at least 1", lambda value: value >= 1)
POSITIVE = Bound("must be positive", lambda value: value > 0)
NOT_NEGATIVE = Bound("must not be negative", lambda value: value >= 0)
SHARE = Bound("must be in [0, 1]", lambda value: 0 <= value <= 1)
DECAY = Bound("must be in [0, 1)", lambda value: 0 <= value < 1)
PART = Bound("must be above 0 and at most 1", lambda value: 0 < value <= 1)


def require_bounds(config: object, group: str, **bounds: Bound) -> None:
    """Refuse numbers of a group of settings that are out of bounds. None is within all of them."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        flag = f"{group}.{name}" if group else name
        require(value is None or bound.holds(value), f"{flag.replace('_', '-')} = {value}: {bound.words}")


def between(smallest: int, largest: int) -> Bound:
    return Bound(f"must be from {smallest} to {largest:,}", lambda value: smallest <= value <= largest)


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


WRITTEN = re.compile(
    r"(?P<sign>[+-]?)(?P<integer>\d+(?:_\d+)*)(?:\.(?P<fraction>\d+))?(?:e(?P<power>[+-]?\d+))?(?P<unit>[kmb]?)",
    re.ASCII | re.IGNORECASE,
)
UNITS = {"": 0, "k": 3, "m": 6, "b": 9}
"""Powers of ten."""
MOST_DIGITS = 40
"""More digits are a typing mistake, and those of 1e999999999 would fill the memory."""


def whole_number(text: str) -> int:
    """1000000, 1_000_000, 1e6, 1000k and 1M are the same number; b is a billion. Raises ValueError for
    anything else.

    Not 1,000,000: in a list of sizes, 256,256 is more likely meant as two numbers.
    """
    not_whole = ValueError(f"{text!r} must be a whole number")
    found = WRITTEN.fullmatch(text.strip())
    if found is None:
        raise not_whole
    fraction = found["fraction"] or ""
    digits = (found["integer"].replace("_", "") + fraction).lstrip("0") or "0"
    power = int((found["power"] or "0")[:MOST_DIGITS]) + UNITS[found["unit"].lower()] - len(fraction)
    if power < 0:
        digits, cut = digits[:power] or "0", digits[power:]
        if cut.strip("0"):
            raise not_whole
        power = 0
    if digits == "0":
        return 0
    if len(digits) + power > MOST_DIGITS:
        raise ValueError(f"{text!r} must have at most {MOST_DIGITS} digits")
    return int(found["sign"] + digits + "0" * power)
