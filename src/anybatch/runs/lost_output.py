"""Output that cannot be written: its reader is gone (`anybatch presets | head`, a closed terminal), it was
closed before the start, its disk is full, or its encoding lacks a character."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator


def open_closed_streams() -> None:
    """Connect streams that are closed, as after `anybatch train >&-`, to nowhere.

    The next file to be opened would otherwise get the number of standard output, and what a library prints.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))


def replace_unknown_characters() -> None:
    """Print ? for what a terminal's encoding lacks, such as √ in Latin-1, or for a file name that is no
    text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


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
