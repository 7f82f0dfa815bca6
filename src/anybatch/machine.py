"""How much memory there is, and sizes for a person."""

import os
from pathlib import Path

# Where Linux says what a container may use; version 2 of the interface, then version 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_bytes() -> int:
    """Memory that can still be used: the machine's, or the container's limit where that is less."""
    free = _meminfo_available() or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _LIMITS):
        text = path.read_text().strip() if path.is_file() else ""
        if text.isdigit():
            free = min(free, int(text))
    return free


def _meminfo_available() -> int | None:
    path = Path("/proc/meminfo")
    for line in path.read_text().splitlines() if path.is_file() else ():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


def readable(count: int) -> str:
    """A number of bytes with three digits and a decimal unit."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
