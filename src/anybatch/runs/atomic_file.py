"""Files that are complete or absent, whatever happens while they are written."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Replace the content of `path` in one step: a reader, or a kill, sees the old content or the new one."""
    aside = path.with_name(f".aside-{path.name}")
    try:
        aside.write_bytes(content)
        sync(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
