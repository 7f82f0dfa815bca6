"""Whole numbers as people write them."""

import re

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
