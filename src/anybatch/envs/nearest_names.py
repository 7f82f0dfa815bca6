"""The answer to an id that does not exist."""

import difflib
from collections.abc import Sequence

from anybatch.errors import EnvError


def unknown(env_id: str, known: Sequence[str], hint: str = "") -> EnvError:
    """An error that names the three of `known` nearest to the part of `env_id` after its last colon."""
    by_lower_case = {candidate.rpartition(":")[2].lower(): candidate for candidate in known}
    bare = env_id.rpartition(":")[2].lower()
    nearest = difflib.get_close_matches(bare, by_lower_case, n=3, cutoff=0.0)
    names = ", ".join(by_lower_case[candidate] for candidate in nearest)
    return EnvError(f"there is no environment {env_id}; the nearest names are {names}{hint}")
