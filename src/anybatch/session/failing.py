"""Errors of a user's own code in a run: they keep their traceback, and get a note on how to continue."""

from collections.abc import Iterator
from contextlib import contextmanager

from anybatch.algorithms import AnyState
from anybatch.errors import LostRankError, UserError, note_own_line, own_line
from anybatch.runs.run import Run

STAGES = {
    "rollout": "while it collected",
    "returns": "while it computed returns",
    "update": "while it learned",
    "auxiliary": "in an auxiliary phase",
    "evaluation": "in an evaluation",
}
"""What a run does in each section of its timer."""


@contextmanager
def noting_training(state: AnyState, run: Run, resume: str) -> Iterator[None]:
    """Note where a run ended, and what continues it: `resume` is code or a command."""
    try:
        yield
    except Exception as error:
        if needs_note(error):
            note_place(error)
            stage = STAGES.get(run.timer.failed or "", "between two iterations")
            error.add_note(
                f"This error ended the run at {state.env_steps:,} env steps, {stage}. "
                f"Continue with: {resume} (saved at {run.saved_env_steps:,} env steps)."
            )
        raise


@contextmanager
def noting_evaluation(resume: str) -> Iterator[None]:
    """Note that the training before a failed evaluation is complete."""
    try:
        yield
    except Exception as error:
        if needs_note(error):
            note_place(error)
            error.add_note(
                "This error ended the evaluation after the training, which is complete and saved. "
                f"Evaluate again with: {resume}"
            )
        raise


def needs_note(error: Exception) -> bool:
    """Whether an error may be that of a user's code. Ours are sentences, and so are those about files."""
    is_about_file = isinstance(error, OSError) and error.filename is not None
    is_users = has_notes(error) or own_line(error) is not None
    return not isinstance(error, UserError | LostRankError) and (is_users or not is_about_file)


def note_place(error: Exception) -> None:
    """Note the line to look at first, unless an environment or a network has been named with it."""
    if not has_notes(error):
        note_own_line(error)


def has_notes(error: Exception) -> bool:
    return bool(getattr(error, "__notes__", ()))
