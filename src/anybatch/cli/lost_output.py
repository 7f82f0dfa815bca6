"""Output whose reader is gone: `anybatch presets | head`, or a closed terminal."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def tolerated() -> Iterator[None]:
    """Continue if a print fails because its reader is gone."""
    try:
        yield
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        discard()


def discard() -> None:
    """Discard what could not be written: Python would try again at exit, and fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
