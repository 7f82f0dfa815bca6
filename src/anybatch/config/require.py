"""Groups of settings with the bounds of their numbers, and whole numbers as people write them."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, cast, get_args, get_type_hints

from anybatch.errors import ConfigError


@dataclass(frozen=True)
class Bound:
    """Values that a number may have, in the type of a setting: `clip: Annotated[float, POSITIVE]`."""

    words: str
    holds: Callable[[float], bool]


def between(smallest: int, largest: int) -> Bound:
    return Bound(f"must be from {smallest} to {largest:,}", lambda value: smallest <= value <= largest)


LARGEST_COUNT = 10**12
"""Largest whole number in a setting: engines and torch count in 64 bits, and products of counts must fit."""
LARGEST_FLOAT = 3.4e38
"""Largest number in a setting: losses are computed in 32 bits."""
DEEPEST_NESTING = 64
"""Of data in files. What we write has less than half of it; more would exhaust the stack."""
MOST_THREADS = 1024

AT_LEAST_1 = Bound("must be at least 1", lambda value: value >= 1)

PositiveInt = Annotated[int, AT_LEAST_1]
NonNegativeInt = Annotated[int, Bound("must not be negative", lambda value: value >= 0)]
NumEnvs = Annotated[int, between(1, 2**20)]
NumThreads = Annotated[int, between(0, MOST_THREADS)]
LayerWidth = Annotated[int, between(1, 2**14)]
PositiveFloat = Annotated[float, Bound("must be positive", lambda value: value > 0)]
NonNegativeFloat = Annotated[float, Bound("must not be negative", lambda value: value >= 0)]
Share = Annotated[float, Bound("must be in [0, 1]", lambda value: 0 <= value <= 1)]
Decay = Annotated[float, Bound("must be in [0, 1)", lambda value: 0 <= value < 1)]
Part = Annotated[float, Bound("must be above 0 and at most 1", lambda value: 0 < value <= 1)]


def require(condition: bool, sentence: str) -> None:
    """Refuse a config unless `condition` holds. `sentence` names the fields and their values."""
    if not condition:
        raise ConfigError(sentence)


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of settings. Its numbers must be finite, and within the bounds that their types state."""

    group_name: ClassVar[str] = ""

    def __init_subclass__(cls, *, group: str | None = None) -> None:
        """`group` is its name in flags; the common settings have none."""
        if group is not None:
            cls.group_name = group

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, bound = getattr(self, setting.name), bounds_in(type(self)).get(setting.name)
            numbers = [number for number in as_tuple(value) if isinstance(number, int | float)]
            flag = ".".join(filter(None, (self.group_name, setting.name.replace("_", "-"))))
            shown = f"{flag} = {' '.join(map(str, as_tuple(value)))}"
            if bound is not None:
                require(all(map(bound.holds, numbers)), f"{shown}: {bound.words}")
            for number in numbers:
                if isinstance(number, float):
                    require(math.isfinite(number), f"{shown}: must be finite")
                    require(abs(number) <= LARGEST_FLOAT, f"{shown}: must not exceed {LARGEST_FLOAT:g}")
                elif setting.name != "seed":
                    require(abs(number) <= LARGEST_COUNT, f"{shown}: must not exceed {LARGEST_COUNT:,}")


def as_tuple(value: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)


@cache
def bounds_in(kind: type) -> dict[str, Bound]:
    """The bounds in the types of a dataclass's fields."""
    found = ((name, bound_of(hint)) for name, hint in get_type_hints(kind, include_extras=True).items())
    return {name: bound for name, bound in found if bound is not None}


def bound_of(hint: Any) -> Bound | None:
    """The bound in a type such as PositiveInt, PositiveInt | None or tuple[PositiveInt, ...]."""
    if isinstance(hint, Bound):
        return hint
    parts = (*get_args(hint), *getattr(hint, "__metadata__", ()))
    return next((bound for part in parts if (bound := bound_of(part)) is not None), None)


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
