"""Output whose reader has gone away: `anybatch presets | head`, or a terminal that was closed."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def tolerated() -> Iterator[None]:
    """Continue where a print fails because its reader is gone."""
    try:
        yield
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        discard()


def discard() -> None:
    """Discard what could not be written: Python would try again at its exit, and fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
