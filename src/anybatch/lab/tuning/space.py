"""The search space: which settings of a preset, how far around its numbers, and on which scale.

The center is the preset's number at the tuning batch. All searches are uniform in the logarithm of a
coordinate: the number itself, or 1 minus it for a discount or λ, whose distance from 1 matters.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from anybatch.config import CONFIGS
from anybatch.config.tunable import MINIBATCHES, Dimension
from anybatch.errors import ConfigError
from anybatch.lab.studies.configs import setting_at

FIXED = "fixed"
"""The word for a number that is not searched."""
SMALLEST_MINIBATCH = 16
"""Smallest minibatch in the default search, in samples."""


DIMENSIONS = tuple(dict.fromkeys(one for kind in CONFIGS.values() for one in kind.tunable))
"""The numbers that can be searched with any algorithm."""
BY_NAME = {dimension.name: dimension for dimension in DIMENSIONS}


@dataclass(frozen=True, kw_only=True)
class Range:
    """The range of one dimension of a search."""

    name: str
    low: float
    high: float
    center: float
    """The preset's number, rescaled to the tuning batch."""

    @property
    def dimension(self) -> Dimension:
        return BY_NAME[self.name]

    @property
    def places(self) -> tuple[float, float]:
        """Bounds of the coordinate."""
        low, high = sorted((self.dimension.place(self.low), self.dimension.place(self.high)))
        return low, high

    @property
    def first(self) -> float:
        """The coordinate of the first trial: the preset's own, or the nearest end of the range."""
        low, high = self.places
        return min(max(self.dimension.place(self.center), low), high)

    def number(self, place: float) -> float:
        """The number at a coordinate. Rounding must not leave the range."""
        within = min(max(self.dimension.number(place), self.low), self.high)
        return int(within) if self.dimension.whole else within


Asked = Mapping[str, tuple[float, float] | None]
"""Ranges by name; None for numbers that are not searched."""


def parse(words: Iterable[str]) -> Asked:
    """What --search says: NAME=LOW..HIGH, or NAME=fixed."""
    asked: dict[str, tuple[float, float] | None] = {}
    for word in words:
        name, _, rest = word.partition("=")
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"the numbers are {', '.join(BY_NAME)}"
            raise ConfigError(f"--search {word}: there is no number {name!r}; {hint}")
        if name in asked:
            raise ConfigError(f"--search names {name} twice: {word} contradicts the first")
        asked[name] = None if rest == FIXED else bounds(word, rest, BY_NAME[name])
    return asked


def bounds(word: str, text: str, dimension: Dimension) -> tuple[float, float]:
    first, _, last = text.partition("..")
    try:
        low, high = float(first), float(last)
    except ValueError:
        raise ConfigError(
            f"--search {word}: must be {dimension.name}=LOW..HIGH or {dimension.name}={FIXED}"
        ) from None
    places = (dimension.place(low), dimension.place(high))
    if not all(math.isfinite(place) and dimension.makes_sense(place) for place in places):
        raise ConfigError(f"--search {word}: both ends must be {dimension.sense}")
    if dimension.whole and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"--search {word}: both ends must be {dimension.sense}")
    if low >= high:
        raise ConfigError(f"--search {word}: the first end must be below the second")
    return low, high


def space_of(settings: Mapping[str, Any], asked: Asked) -> tuple[tuple[Range, ...], dict[str, str]]:
    """The ranges around settings at the tuning batch, and why other numbers are not searched."""
    ranges: list[Range] = []
    left_out: dict[str, str] = {}
    for name, ends in asked.items():
        if ends is not None and (reason := absence(BY_NAME[name], settings)) is not None:
            raise ConfigError(f"--search {name}: cannot be searched, since {reason}")
    for dimension in CONFIGS[settings["algorithm"]].tunable:
        if absence(dimension, settings) is not None:
            continue
        if dimension.name in asked and asked[dimension.name] is None:
            left_out[dimension.name] = "--search keeps it fixed"
            continue
        found = range_of(dimension, settings, asked.get(dimension.name))
        if isinstance(found, str):
            left_out[dimension.name] = found
        else:
            ranges.append(found)
    if not ranges:
        raise ConfigError("there is nothing to search: --search keeps every number fixed")
    return tuple(ranges), left_out


def absence(dimension: Dimension, settings: Mapping[str, Any]) -> str | None:
    """Why a number cannot be searched in these settings; None if it can."""
    value = setting_at(settings, dimension.setting)
    if dimension.needs is not None:
        path, wanted = dimension.needs
        there = setting_at(settings, path)
        if there != wanted:
            return f"it needs {path} = {wanted}, and this preset has {there or 'no such setting'}"
    if value is None:
        return f"{dimension.setting} is not a number in this preset"
    if dimension.name == MINIBATCHES and settings.get("minibatch", "auto") not in ("auto", "scaled", "keep"):
        return f"minibatch = {settings['minibatch']} decides the number of minibatches"
    return None


def range_of(
    dimension: Dimension, settings: Mapping[str, Any], asked: tuple[float, float] | None
) -> Range | str:
    """The range of a dimension; a reason if there is none around the preset's number."""
    center = dimension.of_setting(float(setting_at(settings, dimension.setting)))
    place = dimension.place(center)
    samples = settings["num_envs"] * settings["num_steps"]
    if asked is not None:
        if dimension.name == MINIBATCHES and asked[1] > samples:
            raise ConfigError(
                f"--search {dimension.name}={asked[0]:g}..{asked[1]:g}: an iteration has {samples} samples, "
                "which is the largest number of minibatches"
            )
        return Range(name=dimension.name, low=asked[0], high=asked[1], center=center)
    if not dimension.makes_sense(place):
        return f"the preset has {center:g}, around which there is no range; --search can give one"
    low, high = place / dimension.factor, min(place * dimension.factor, dimension.largest)
    if dimension.whole:
        most = max(samples // SMALLEST_MINIBATCH, 1) if dimension.name == MINIBATCHES else math.inf
        low, high = max(1, round(low)), max(place, min(round(high), most))
    ends = sorted((dimension.number(low), dimension.number(high)))
    if ends[0] >= ends[1]:
        return f"the preset has {center:g}, and there is nothing to choose from"
    return Range(name=dimension.name, low=ends[0], high=ends[1], center=center)
