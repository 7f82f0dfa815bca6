"""The processes of a run, found from outside, and what can happen to them."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

ACTOR = ("anybatch.actor_process", "ray::RemoteActor")
RANK = ("multiprocessing.spawn",)
HEAD_OF_RAY = ("gcs_server", "raylet/raylet")
"""What the command lines of processes contain."""
START_SECONDS = 60.0
"""How long a process that is looked for may take to appear."""

Fault = Callable[[int, random.Random], None]
"""Does something to the processes of the run whose first process has this id."""


def descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = status.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(status.parent.name))
    found = list(children.get(process, []))
    for child in found:
        found += children.get(child, [])
    return found


def named(process: int, marks: tuple[str, ...]) -> list[int]:
    """The descendants whose command line contains one of the marks."""
    found: list[int] = []
    for one in descendants(process):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{one}/cmdline").read_bytes().decode(errors="replace")
            if any(mark in command for mark in marks):
                found.append(one)
    return found


def awaited(process: int, marks: tuple[str, ...]) -> list[int]:
    """`named`, waiting for what is just being started again; empty if the run ends meanwhile."""
    until = time.monotonic() + START_SECONDS
    while not (found := named(process, marks)) and time.monotonic() < until and is_alive(process):
        time.sleep(0.1)
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def send(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def kill_actor(run: int, rng: random.Random) -> None:
    send(rng.sample(actors := awaited(run, ACTOR), min(1, len(actors))), signal.SIGKILL)


def stop_actor(run: int, rng: random.Random) -> None:
    send(rng.sample(actors := awaited(run, ACTOR), min(1, len(actors))), signal.SIGSTOP)


def kill_rank(run: int, rng: random.Random) -> None:
    send(rng.sample(ranks := awaited(run, RANK), min(1, len(ranks))), signal.SIGKILL)


def kill_learner(run: int, _rng: random.Random) -> None:
    """The first process of the run; with several ranks the one that started them."""
    send([run], signal.SIGKILL)


def kill_head_of_ray(run: int, _rng: random.Random) -> None:
    send(awaited(run, HEAD_OF_RAY), signal.SIGKILL)


def several_at_once(run: int, rng: random.Random) -> None:
    """All actors, each killed or stopped, and perhaps a rank."""
    actors, ranks = awaited(run, ACTOR), named(run, RANK)
    for actor in actors:
        send([actor], rng.choice([signal.SIGKILL, signal.SIGSTOP]))
    send(rng.sample(ranks, min(rng.randint(0, 1), len(ranks))), signal.SIGKILL)


OF_ACTORS: dict[str, Fault] = {
    "actor killed": kill_actor,
    "actor stopped": stop_actor,
    "learner killed": kill_learner,
    "several at once": several_at_once,
}
SETUPS: dict[str, tuple[list[str], dict[str, Fault]]] = {
    "actors": (["--actors=local:2"], OF_ACTORS),
    "ranks": (["--actors=local:1", "--ranks=2"], OF_ACTORS | {"rank killed": kill_rank}),
    "ray": (["--actors=ray:2"], OF_ACTORS | {"Ray's head killed": kill_head_of_ray}),
}
"""Flags of a run, and the faults that it gets."""
