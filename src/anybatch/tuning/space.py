"""The search space: which settings of a preset, how far around its numbers, and on which scale.

The center is the preset's number at the tuning batch. All searches are uniform in the logarithm of a
coordinate: the number itself, or 1 minus it for a discount or λ, whose distance from 1 matters.
"""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from anybatch.errors import ConfigError
from anybatch.rules import center_of_mass, decay_from_center_of_mass

FIXED = "fixed"
"""The word for a number that is not searched."""
DIGITS = 4
"""Significant digits of a trial's numbers, so that the tuned preset is readable."""
SMALLEST_MINIBATCH = 16
"""Smallest minibatch in the default search, in samples."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A number that can be searched."""

    name: str
    setting: str
    """Its place in the config."""
    factor: float
    """The coordinate is searched from the center ÷ factor to the center × factor."""
    sense: str
    """Its valid values, for error messages."""
    largest: float = 1.0
    """Largest coordinate that makes sense."""
    coordinate: Literal["number", "complement"] = "number"
    """The searched coordinate: the number, or 1 minus it."""
    is_decay: bool = False
    """Whether the setting is a decay and the number its center of mass."""
    whole: bool = False
    needs: tuple[str, str] | None = None
    """A setting and the value it must have for this number to be used."""

    def place(self, number: float) -> float:
        """The coordinate of a number."""
        return 1.0 - number if self.coordinate == "complement" else number

    def number(self, place: float) -> float:
        """The number at a coordinate, rounded to a few digits."""
        if self.whole:
            return round(place)
        short = float(f"{place:.{DIGITS}g}")
        return 1.0 - short if self.coordinate == "complement" else short

    def of_setting(self, value: float) -> float:
        return center_of_mass(value) if self.is_decay else value

    def to_setting(self, number: float) -> float:
        if self.whole:
            return int(number)
        return decay_from_center_of_mass(number) if self.is_decay else number

    def makes_sense(self, place: float) -> bool:
        return (1.0 if self.whole else 0.0) <= place <= self.largest and place > 0


MINIBATCHES = "minibatches"
ABOVE_0, BELOW_1, COUNT = "above 0 and at most 1", "at least 0 and below 1", "a whole number of at least 1"
DIMENSIONS = (
    Dimension(name="learning-rate", setting="optimizer.learning_rate", factor=8, sense=ABOVE_0),
    Dimension(name="entropy-coefficient", setting="objective.entropy_coefficient", factor=10, sense=ABOVE_0),
    Dimension(
        name="discount", setting="objective.discount", factor=4, sense=BELOW_1, coordinate="complement"
    ),
    Dimension(
        name="gae-lambda", setting="objective.gae_lambda", factor=4, sense=BELOW_1, coordinate="complement"
    ),
    Dimension(
        name="q-lambda", setting="objective.q_lambda", factor=4, sense=BELOW_1, coordinate="complement"
    ),
    Dimension(name="clip", setting="objective.clip", factor=2, sense=ABOVE_0),
    Dimension(
        name="proximal-center-of-mass",
        setting="proximal.ewma_decay",
        factor=4,
        sense="above 0 and at most 1e+06",
        largest=1e6,
        is_decay=True,
        needs=("proximal.policy", "ewma"),
    ),
    Dimension(
        name="proximal-copy-every",
        setting="proximal.copy_every",
        factor=4,
        sense=COUNT,
        largest=1e6,
        whole=True,
        needs=("proximal.policy", "periodic"),
    ),
    Dimension(
        name=MINIBATCHES,
        setting="update.minibatches_per_epoch",
        factor=4,
        sense=COUNT,
        largest=1e6,
        whole=True,
    ),
    Dimension(name="exploration-end", setting="exploration.end", factor=8, sense=ABOVE_0),
    Dimension(name="exploration-fraction", setting="exploration.fraction", factor=4, sense=ABOVE_0),
    Dimension(
        name="auxiliary-learning-rate", setting="phase.auxiliary_learning_rate", factor=8, sense=ABOVE_0
    ),
)
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Space:
    """The searched ranges, and the numbers that are not searched, with the reason."""

    ranges: tuple[Range, ...]
    left_out: Mapping[str, str]

    def numbers(self, places: Mapping[str, float]) -> dict[str, float]:
        """A point of the search in numbers."""
        return {one.name: one.number(places[one.name]) for one in self.ranges}


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


def space_of(settings: Mapping[str, Any], asked: Asked) -> Space:
    """The search around settings at the tuning batch."""
    ranges: list[Range] = []
    left_out: dict[str, str] = {}
    for dimension in DIMENSIONS:
        reason = absence(dimension, settings)
        if reason is not None:
            if asked.get(dimension.name) is not None:
                raise ConfigError(f"--search {dimension.name}: cannot be searched, since {reason}")
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
    return Space(tuple(ranges), left_out)


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
    if dimension.name == MINIBATCHES and settings.get("minibatch_limit") is not None:
        return f"minibatch_limit = {settings['minibatch_limit']} decides the number of minibatches"
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


def setting_at(settings: Mapping[str, Any], path: str) -> Any:
    """A setting by its path; None if there is none."""
    found: Any = settings
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def ranges_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[Range, ...]:
    return tuple(Range(**one) for one in data)
