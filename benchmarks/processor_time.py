"""What else ran on the machine while something was measured."""

import os
import resource
from pathlib import Path


class OthersTime:
    """Processor time of processes that are not this one and not its children. Linux only."""

    def __init__(self) -> None:
        self._busy, self._total = _machine_seconds()
        self._own = _own_seconds()

    def share(self) -> float:
        """Of all processor time of the machine since this was made; to be called when children have ended."""
        busy, total = _machine_seconds()
        others = busy - self._busy - (_own_seconds() - self._own)
        return max(0.0, others / max(total - self._total, 1e-9))


def _machine_seconds() -> tuple[float, float]:
    """Of all cores since the boot: not idle, and all. Time that a hypervisor took away is not idle."""
    first_line = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = [int(field) for field in first_line.split()[1:9]]  # those of guests are in those of users
    idle = ticks[3] + ticks[4]
    per_second = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / per_second, sum(ticks) / per_second


def _own_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
