"""scipy.stats, imported when something is computed: training needs none of it."""

from functools import cache
from typing import Any

from anybatch.errors import UserError


@cache
def stats() -> Any:
    """The module; an error that says how to install it if it is missing."""
    try:
        from scipy import stats
    except ImportError:
        raise UserError(
            "the statistics of studies need the package scipy: install it with pip install 'anybatch[lab]'"
        ) from None
    return stats
