"""Errors of an environment's own code: they keep their traceback, and get a note that says whose they are."""

from types import FrameType
from typing import Any

from anybatch.errors import UserError, note_own_line


def note_making(error: Exception, env_id: str) -> None:
    """For an error of an environment's constructor."""
    if not isinstance(error, UserError):
        error.add_note(f"This error was raised while {env_id} was being made.")
        note_own_line(error)


def note_playing(error: Exception, env_id: str, engine: Any, *, first_env: int) -> None:
    """For an error of a step or a reset; `engine` is a vector env of Gymnasium.

    `first_env` is the run-wide number of its first env.
    """
    if isinstance(error, UserError):
        return
    found = env_in_traceback(error, list(getattr(engine, "envs", ())))
    whose = env_id if found is None else f"environment {first_env + found[0]} of {env_id}, in its {found[1]}"
    error.add_note(f"This error was raised by {whose}.")
    note_own_line(error)


def env_in_traceback(error: Exception, envs: list[Any]) -> tuple[int, str] | None:
    """Which of the envs was called, and the method; None if it was called in another process."""
    trace = error.__traceback__
    while trace is not None:
        frame: FrameType = trace.tb_frame
        called = frame.f_locals.get("self")
        for number, env in enumerate(envs):
            if called is env:
                return number, frame.f_code.co_name
        trace = trace.tb_next
    return None
