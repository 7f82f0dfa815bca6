"""Axes: their ends, their ticks, and how numbers are written on them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

MOST_TICKS = 5
SMALLEST_DECIMAL = 1e-4
"""Ticks with a smaller step are written with powers of ten."""
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A range of values and the ticks within it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value is: 0 at the low end of the axis, 1 at its high end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


def axis_over(
    values: Iterable[float], scale: str, *, rounded: bool, most_log_ticks: int = MOST_TICKS + 1
) -> Axis:
    """An axis that holds all values; `rounded` extends it to its next ticks.

    Values that a logarithmic axis cannot show are ignored.
    """
    known = [value for value in values if math.isfinite(value) and (scale == "linear" or value > 0)]
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    if scale == "log":
        return _log_axis(low, high, most_log_ticks)
    return _linear_axis(low, high, rounded=rounded)


def axis_of_names(names: tuple[str, ...], places: tuple[float, ...]) -> Axis:
    """An axis with names at these places, in ascending order, and some room at both ends."""
    return Axis(places[0] - 0.4, places[-1] + 0.4, places, names)


def _linear_axis(low: float, high: float, *, rounded: bool) -> Axis:
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # one value only: some room around it
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    step = _nice_step((high - low) / MOST_TICKS)
    if rounded:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    return Axis(low, high, ticks, tuple(written(tick, step) for tick in ticks))


def _log_axis(low: float, high: float, most: int) -> Axis:
    if high / low < 4:
        middle = math.sqrt(low * high)
        low, high = middle / 2.5, middle * 2.5
    else:
        room = (high / low) ** 0.04
        low, high = low / room, high * room
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            break
    every = -(-len(ticks) // most)
    shown = tuple(ticks[::every])
    return Axis(low, high, shown, tuple(written(tick, tick) for tick in shown), log=True)


def _nice_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(nice * power for nice in NICE if nice * power >= rough * (1 - 1e-9))


def written(value: float, step: float) -> str:
    """A tick's value, with as many decimals as the step between ticks needs: 0.25, 50k, 2×10⁻⁵."""
    if abs(value) < step / 1e6 or value == 0:
        return "0"
    sign, size = ("−" if value < 0 else ""), abs(value)
    for unit, suffix in SUFFIXES:
        if size >= unit and (unit > 1e3 or size >= 1e4 or step >= 1e3):
            return f"{sign}{_trimmed(size / unit, step / unit)}{suffix}"
    if step < SMALLEST_DECIMAL:
        power = math.floor(math.log10(size) + 1e-9)
        mantissa = f"{size / 10.0**power:.3g}"
        exponent = f"10{str(power).translate(SUPERSCRIPTS)}"
        return f"{sign}{exponent}" if mantissa == "1" else f"{sign}{mantissa}×{exponent}"
    return f"{sign}{_trimmed(size, step)}"


def _trimmed(value: float, step: float) -> str:
    decimals = max(0, 2 - math.floor(math.log10(step) + 1e-9))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
