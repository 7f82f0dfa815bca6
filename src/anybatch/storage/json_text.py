"""Reading JSON from files that somebody else may have written."""

import json
import math
from typing import Any

from anybatch.config.require import DEEPEST_NESTING


def parse(text: str | bytes) -> Any:
    """The content of a JSON text. Raises ValueError if it is not JSON or is nested too deeply."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [content]
    for _ in range(DEEPEST_NESTING):
        level = [inner for node in level for inner in _inside(node)]
        if not level:
            return content
    raise ValueError("it is nested too deeply")


def is_number(value: object) -> bool:
    """Whether a value of a JSON text is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _inside(node: Any) -> list[Any]:
    """The containers inside a container."""
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [value for value in values if isinstance(value, dict | list)]
