"""What a process of `learning.py` is asked and what it answers. Imports nothing that a venv might lack."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from peer_process import process_seconds, versions


@dataclass(frozen=True)
class Request:
    """One run of a trainer."""

    trainer: str
    task: str
    env_steps: int
    seed: int
    bins: int
    settings: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Curve:
    """The training episodes of a run, by equal parts of it."""

    env_steps: int
    bins: int
    sums: list[float] = field(init=False)
    counts: list[int] = field(init=False)
    seconds: list[float | None] = field(init=False)
    """From the start of the process to the end of each part."""

    def __post_init__(self) -> None:
        self.sums, self.counts, self.seconds = [0.0] * self.bins, [0] * self.bins, [None] * self.bins

    def add(self, env_steps: int, mean_return: float, episodes: int = 1) -> None:
        """Episodes that ended after so many env steps; those beyond the end are in the last part."""
        place = min(max(-(-env_steps * self.bins // self.env_steps) - 1, 0), self.bins - 1)
        self.sums[place] += mean_return * episodes
        self.counts[place] += episodes

    def reached(self, env_steps: int) -> None:
        """Note the time for the parts that end here or have ended."""
        now = round(process_seconds(), 2)
        for place in range(min(env_steps * self.bins // self.env_steps, self.bins)):
            if self.seconds[place] is None:
                self.seconds[place] = now

    def to_json(self) -> dict[str, Any]:
        pairs = zip(self.sums, self.counts, strict=True)
        return {
            "curve": [float(f"{total / count:.6g}") if count else None for total, count in pairs],
            "episodes": sum(self.counts),
            "seconds": self.seconds,
        }


def answer(run: Callable[[Request, Curve], dict[str, Any]], packages: tuple[str, ...]) -> None:
    """Do what the command line asks for, and print the row of the run as the last line.

    `run` fills the curve and returns what else the row has.
    """
    request = Request(**json.loads(sys.argv[1]))
    curve = Curve(request.env_steps, request.bins)
    extra = run(request, curve)
    row = curve.to_json() | extra | {"versions": versions(packages)}
    print(json.dumps(row | {"cpu_seconds": round(time.process_time(), 1)}), flush=True)
