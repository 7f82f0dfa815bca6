"""Errors of an actor, which the learner raises."""

import traceback
from typing import Any

from anybatch import errors
from anybatch.errors import UserError, note_own_line
from anybatch.storage import message


class ActorFailed(Exception):
    """An actor's environment or network raised an error, which a retry would raise again."""


def packed_error(error: Exception) -> bytes:
    """An answer that raises an actor's error in the learner."""
    if not getattr(error, "__notes__", ()):  # those of environments have been noted
        note_own_line(error)
    name = type(error).__name__ if isinstance(error, UserError) else None
    return message.pack({"error": str(error), "name": name, "trace": traceback.format_exc()})


def raise_if_error(answer: dict[str, Any]) -> None:
    """Raise what `packed_error` packed: our own errors unchanged, any other with its traceback."""
    if "error" not in answer:
        return
    if answer["name"] is not None:
        raise getattr(errors, answer["name"], UserError)(answer["error"])
    raise ActorFailed(f"an environment or a network failed in an actor:\n{answer['trace']}")
