"""The numbers of a config that a tuning can search. The config of each algorithm lists its own."""

from dataclasses import dataclass
from typing import Literal

from anybatch.rules import center_of_mass, decay_from_center_of_mass

DIGITS = 4
"""Significant digits of a trial's numbers, so that the tuned preset is readable."""


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
LEARNING_RATE = Dimension(name="learning-rate", setting="optimizer.learning_rate", factor=8, sense=ABOVE_0)
DISCOUNT = Dimension(
    name="discount", setting="objective.discount", factor=4, sense=BELOW_1, coordinate="complement"
)
MINIBATCHES_PER_EPOCH = Dimension(
    name=MINIBATCHES,
    setting="update.minibatches_per_epoch",
    factor=4,
    sense=COUNT,
    largest=1e6,
    whole=True,
)
