"""Errors that a person can act on. The command line prints their one sentence and exits with code 2.

Errors of a person's own code keep their traceback, and `note_own_line` says where to look first.
"""

import sysconfig
import traceback
from pathlib import Path

TYPED = ("<stdin>", "<python-input")
"""How Python names what was typed at its prompt."""
LIBRARIES = (Path(__file__).parent, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")))
"""Folders whose code is not the user's, besides those of installed packages."""


class UserError(ValueError):
    """A request cannot be fulfilled; the message says which, and what would work."""


class ConfigError(UserError):
    """Two settings contradict each other, or one is out of range. The message names fields and values."""


class EnvError(UserError):
    """An environment does not exist, cannot be used, or returned a non-finite value."""


class CheckpointError(UserError):
    """A run folder has no usable checkpoint."""


class DiskError(UserError):
    """A file could not be written. Earlier files are intact."""


class TrainingError(UserError):
    """Training cannot continue: the loss or the gradient is non-finite."""


class RankError(UserError):
    """A run on several ranks ends because of another rank, which has reported why: the message is empty."""


class LostRankError(RuntimeError):
    """Another rank has ended or does not answer. Whatever started the ranks may restart them."""


def note_own_line(error: Exception) -> None:
    """Note the line of a person's own code to look at first, if an error went through it."""
    line = own_line(error)
    if line is not None and not isinstance(error, UserError | LostRankError):
        error.add_note(f"Look first at {line}.")


def own_line(error: Exception) -> str | None:
    """The innermost line of a traceback that is neither ours nor that of an installed library."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not is_of_library(frame.filename):
            path, here = Path(frame.filename), Path.cwd()
            shown = path.relative_to(here) if path.is_relative_to(here) else path
            return f"line {frame.lineno} of {shown}, in {frame.name}"
    return None


def is_of_library(filename: str) -> bool:
    """Whether code is ours, Python's, an installed package's or generated."""
    if filename.startswith("<"):  # cells of a notebook are named otherwise
        return not filename.startswith(TYPED)
    path = Path(filename)
    installed = "site-packages" in path.parts or "dist-packages" in path.parts
    return installed or any(path.is_relative_to(folder) for folder in LIBRARIES)


def cause_of(error: Exception) -> str:
    """What went wrong, without the number of the error and the file, which the sentence names already.

    A file where a folder is needed is named: the system only says that it exists.
    """
    if isinstance(error, FileExistsError) and error.filename is not None:
        return f"{error.filename} is not a folder"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
