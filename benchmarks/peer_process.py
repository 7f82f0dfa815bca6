"""What a process of `peers.py` is asked and what it answers. Imports nothing that a venv might lack."""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stopwatch import Stopwatch
from work import Work

RETURN_EPISODES = 100
"""A training return is the mean over so many last episodes."""


@dataclass(frozen=True)
class Rate:
    """How fast a trainer is, and how long it takes to be that fast."""

    env_steps_per_second: float
    start_seconds: float
    """From the start of the process to its first iteration."""
    first_iteration_extra_seconds: float
    """What the first iteration took more than a later one: compilation, for those who compile then."""
    versions: dict[str, str]
    others_share: float = 0.0
    """Of the machine's processor time, what other processes took meanwhile; told by whoever started this."""


@dataclass(frozen=True)
class Reached:
    """When a trainer had the return that was asked for."""

    seconds: float | None
    """From the start of the process; None if the training ended without it."""
    env_steps: int
    """Those done by then, or all."""
    versions: dict[str, str]
    others_share: float = 0.0
    """As of a rate."""


@dataclass(frozen=True)
class Request:
    """The arguments of a process: `rate CASE SECONDS WORK` or `return RETURN SEED`."""

    trainer: str
    case: str = ""
    seconds: float = 0.0
    work: Work | None = None
    wanted_return: float = 0.0
    seed: int = 0

    def arguments(self) -> list[str]:
        if self.work is None:
            return [self.trainer, "return", str(self.wanted_return), str(self.seed)]
        return [self.trainer, "rate", self.case, str(self.seconds), self.work.to_json()]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Request":
        trainer, kind, *rest = arguments
        if kind == "return":
            return cls(trainer, wanted_return=float(rest[0]), seed=int(rest[1]))
        return cls(trainer, case=rest[0], seconds=float(rest[1]), work=Work.from_json(rest[2]))


def answer(rate: Callable[[Request], Rate], reached: Callable[[Request], Reached]) -> None:
    """Do what the command line asks for, and print the result as the last line."""
    request = Request.parse(sys.argv[1:])
    result = reached(request) if request.work is None else rate(request)
    print(json.dumps(asdict(result)), flush=True)


def rate_of(stopwatch: Stopwatch, work: Work, packages: Sequence[str], rate: float | None = None) -> Rate:
    """To be called right after training. `rate` is that of the stopwatch unless it is given."""
    start_seconds = process_seconds() - stopwatch.since_first_tick
    rate = rate or stopwatch.env_steps / stopwatch.elapsed
    extra = stopwatch.first_iteration_seconds - work.iteration_batch / rate
    return Rate(rate, start_seconds, max(0.0, extra), versions(packages))


def versions(packages: Sequence[str]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in packages}


def process_seconds() -> float:
    """How long this process has lived, as Linux counts it, to a hundredth of a second."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # after the boot; field 22 of proc(5)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
