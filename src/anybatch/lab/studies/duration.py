"""Durations as people write and read them."""

import re
from decimal import Decimal

from anybatch.errors import ConfigError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
WRITTEN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+", re.ASCII)


def seconds(text: str) -> float:
    """The seconds of a duration such as 20m, 2h, 1h30m or 90s. Raises ValueError for anything else."""
    if not WRITTEN.fullmatch(text):
        raise ValueError(f"{text!r} must be a duration such as 20m, 2h or 1h30m")
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))


def of_budget(text: str | None) -> float | None:
    """The seconds of a time limit that a person has requested; None without one."""
    if text is None:
        return None
    try:
        found = seconds(text)
    except ValueError as error:
        raise ConfigError(f"--budget: {error}") from None
    if found == 0:
        raise ConfigError(f"--budget {text}: must be longer than 0")
    return found


def written(duration: float) -> str:
    """A duration as `seconds` reads it."""
    return f"{Decimal(str(duration)):f}".removesuffix(".0") + "s"


def in_words(duration: float) -> str:
    """A duration in words, in its two largest units: 2 h 5 min."""
    whole = round(duration)
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        minutes, seconds_left = divmod(whole, 60)
        return f"{minutes} min {seconds_left} s" if seconds_left else f"{minutes} min"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"
