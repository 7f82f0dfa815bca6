"""Processes and their descendants, as Linux lists them."""

from pathlib import Path


def processes_below(process: int) -> set[int]:
    """A process and all below it."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {process}
    while below := {child for child, parent in parents.items() if parent in found} - found:
        found |= below
    return found


def is_running(process: int) -> bool:
    """Whether it has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
