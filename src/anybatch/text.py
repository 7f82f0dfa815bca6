"""Numbers as people write them, and messages that a terminal can show."""

import re
import unicodedata

LONGEST_WORD = 400
LETTERS_KEPT = 60
"""Of a longer word in a message."""


def one_line(message: str) -> str:
    """A message on one line, whatever it quotes: a typed value or a file of somebody else can have line
    breaks, codes that a terminal obeys, or a word of thousands of letters."""
    visible = (repr(char)[1:-1] if unicodedata.category(char) == "Cc" else char for char in message)
    longest = rf"([^\s:;,]{{{LETTERS_KEPT}}})[^\s:;,]{{{LONGEST_WORD - LETTERS_KEPT},}}"
    return re.sub(longest, r"\1…", "".join(visible))


def number_text(value: float, digits: int) -> str:
    """At least `digits` significant digits with commas, and all those before the point: 12,500, not
    1.25e+04."""
    is_longer = abs(value) >= 10**digits - 0.5  # what rounds to one digit more is longer too
    return f"{value:,.0f}" if is_longer else f"{value:,.{digits}g}"


def probability_text(value: float) -> str:
    """A probability as a whole percentage; one that an estimate rounds to certainty is not called certain."""
    rounded = f"{value:.0%}"
    return {"100%": "more than 99%", "0%": "less than 1%"}.get(rounded, rounded)


def counted(count: float, noun: str) -> str:
    """0 samples, 1 sample, 1.5 samples, 1,024 samples: at most one decimal."""
    number = f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"
    return f"{number} {noun}{'s' * (count != 1)}"


def duration_text(seconds: float) -> str:
    """40 s, 3 min, 2.5 h, 4 days: a duration that was estimated."""
    for unit, length, limit in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds / length < limit:
            shown = seconds / length
            return f"{shown:.2g} {unit}" if unit == "h" and shown < 10 else f"{shown:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def readable(count: int) -> str:
    """A number of bytes with three digits and a decimal unit."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 999.5:  # above, three digits would round to 1e+03
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
