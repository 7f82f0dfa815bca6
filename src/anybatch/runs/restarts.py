"""A run whose ranks are restarted continues in its folder.

torch's elastic agent starts all ranks with the same command line whenever one is lost or joins. A note in the
folder of runs, named after the agents' run id, says which run they belong to; it is removed when the run
ends.
"""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from anybatch.distributed import collectives, group
from anybatch.errors import UserError
from anybatch.storage import safe_files
from anybatch.storage.checkpoint import Checkpoints

_RUN_ID = "TORCHELASTIC_RUN_ID"
_NO_ID = "none"
"""torchrun's run id if none was given: only a restart is then known to belong to the same job."""
PATIENCE_SECONDS = 30.0
"""How long restarted ranks wait for the earlier ones to end."""


class Stoppable(Protocol):
    """The part of a run's outcome that this module needs."""

    @property
    def stopped_by(self) -> signal.Signals | None: ...


Result = TypeVar("Result", bound=Stoppable)


def is_job() -> bool:
    """Whether an agent started this process and may restart it."""
    return _RUN_ID in os.environ


def note_of(base: Path) -> Path | None:
    """The note of this job; None if no agent started it."""
    run_id = os.environ.get(_RUN_ID)
    return None if run_id is None else base / f".elastic-{re.sub(r'[^A-Za-z0-9._-]', '-', run_id)[:80]}"


def begun_run(base: Path) -> Path | None:
    """The folder of the run that this job began, if it can be continued; the same on every rank."""
    name = _noted(base) if collectives.rank() == 0 else ""
    name = collectives.text_from_rank_0(name)
    return base / name if name else None


def _noted(base: Path) -> str:
    note = note_of(base)
    is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if note is None or not note.is_file() or (is_first and os.environ.get(_RUN_ID) == _NO_ID):
        return ""
    name = Path(note.read_text(encoding="utf-8").strip()).name
    return name if name and Checkpoints(base / name, keep=1).exist() else ""


def begin(base: Path, folder: Path) -> None:
    """Note that this job belongs to the run in `folder`."""
    note = note_of(base)
    if note is not None and collectives.rank() == 0:
        safe_files.replace(note, f"{folder.name}\n".encode())


def to_its_end(base: Path, train: Callable[[], Result]) -> Result:
    """Train, and remove the job's note when the run is over or refused.

    A rank that is lost leaves the note. So does a signal under torchrun, which sends one to all ranks when a
    node joins: only ranks started by `--ranks` know that a person stopped them.
    """
    try:
        outcome = train()
    except (UserError, KeyboardInterrupt) as error:
        if isinstance(error, UserError) or not group.is_under_torchrun():
            _forget(base)
        raise
    if outcome.stopped_by is None or not group.is_under_torchrun():
        _forget(base)
    return outcome


def _forget(base: Path) -> None:
    note = note_of(base)
    if note is not None and collectives.rank() == 0:
        note.unlink(missing_ok=True)
