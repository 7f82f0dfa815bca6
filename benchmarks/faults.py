"""Does a run with actors survive what happens to processes, and is it the run that nothing happened to?

    python benchmarks/faults.py --faults 20
    python benchmarks/faults.py --faults 20 --actors ray:2

Trains on CartPole, whose native engine restores episodes exactly, and injects faults at random moments: an
actor killed, an actor stopped so that it hangs, all actors killed at once, the learner killed and the run
resumed. At the end the metrics of the whole run are compared with those of the same run in one process with a
queue.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from anybatch.runs import log
from anybatch.runs.checkpoint import Checkpoints

ACTOR_MARKS = ("anybatch.acting.actors.process", "ray::RemoteActor")
"""What the command line of an actor's process contains."""
HANG_SECONDS = 60.0
TIMEOUT_SECONDS = 5.0
COMMAND = [sys.executable, "-c", "from anybatch.cli import main; main()"]
TRAIN = [
    "train",
    "--preset=cartpole-ppo-ewma",
    "--env=native:CartPole-v1",
    "--num-envs=16",
    "--num-steps=32",
    "--staleness.iterations=2",
    "--optimizer.anneal=none",
    "--record.checkpoint-every-iterations=5",
    "--record.no-tensorboard",
    "--evaluation.num-envs=1",
]
FOREVER = 10**9
NOT_COMPARED = ("wall_seconds", "charts/SPS", "time/", "actors/")


class Learner:
    """The process of a run, which is resumed whenever it was killed."""

    def __init__(self, base: Path, actors: str) -> None:
        self.base, self.actors = base, actors
        self.unloadable = 0
        self._start([*TRAIN, f"--total-env-steps={FOREVER}", f"--actors={actors}", f"--run-dir={base}"])

    def _start(self, words: list[str]) -> None:
        words = [*words, f"--actor-timeout={TIMEOUT_SECONDS}"]
        self.process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL)

    @property
    def folder(self) -> Path | None:
        return next(iter(self.base.iterdir()), None)

    def lines(self) -> int:
        """Rows that were written so far, also those that a resume has superseded."""
        if self.folder is None:
            return 0
        files = [self.folder / name for name in (log.METRICS_FILE, log.SUPERSEDED_FILE)]
        return sum(file.read_bytes().count(b"\n") for file in files if file.exists())

    def actor_processes(self) -> list[int]:
        return [process for process in descendants(self.process.pid) if is_actor(process)]

    def wait_for_rows(self, number: int, seconds: float) -> float | None:
        """Seconds until so many more rows are there; None if that takes too long."""
        before, started = self.lines(), time.monotonic()
        while self.lines() < before + number:
            if time.monotonic() - started > seconds or self.process.poll() is not None:
                return None
            time.sleep(0.05)
        return time.monotonic() - started

    def kill_and_resume(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.folder is not None
        complaints: list[str] = []
        try:
            Checkpoints(self.folder, keep=3).load_latest(complaints.append)
        except ValueError as error:
            complaints.append(str(error))
        self.unloadable += bool(complaints)
        self._start(["resume", str(self.folder)])

    def stop(self) -> int:
        """Ask it to end, as an operator does. Returns its exit code."""
        self.process.terminate()
        return self.process.wait(HANG_SECONDS)


def descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found = list(children.get(process, []))
    for child in found:
        found += children.get(child, [])
    return found


def is_actor(process: int) -> bool:
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return any(mark in command for mark in ACTOR_MARKS)


def send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just been started again
        os.kill(process, number)


def kill_actor(learner: Learner, rng: random.Random) -> None:
    send(rng.choice(learner.actor_processes() or [learner.process.pid]), signal.SIGKILL)


def stop_actor(learner: Learner, rng: random.Random) -> None:
    for process in rng.sample(learner.actor_processes(), k=1) if learner.actor_processes() else []:
        send(process, signal.SIGSTOP)


def kill_all_actors(learner: Learner, _rng: random.Random) -> None:
    for process in learner.actor_processes():
        send(process, signal.SIGKILL)


def kill_learner(learner: Learner, _rng: random.Random) -> None:
    learner.kill_and_resume()


FAULTS: dict[str, Callable[[Learner, random.Random], None]] = {
    "actor killed": kill_actor,
    "actor stopped": stop_actor,
    "all actors killed": kill_all_actors,
    "learner killed": kill_learner,
}


def compared(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(NOT_COMPARED)}


def undisturbed(base: Path, env_steps: int) -> list[dict[str, Any]]:
    """The metrics of the same run in one process."""
    words = [*TRAIN, f"--total-env-steps={env_steps}", f"--run-dir={base}"]
    subprocess.run([*COMMAND, *words], stdout=subprocess.DEVNULL, check=True)
    (folder,) = base.iterdir()
    return log.read(folder)


def soak(faults: int, seed: int, actors: str, base: Path) -> dict[str, Any]:
    rng = random.Random(seed)
    learner = Learner(base / "disturbed", actors)
    done: Counter[str] = Counter()
    recovered: list[float] = []
    hangs = 0
    try:
        assert learner.wait_for_rows(3, HANG_SECONDS) is not None, "the run did not start"
        for _ in range(faults):
            time.sleep(rng.uniform(0.0, 1.0))
            kind = rng.choice(list(FAULTS))
            FAULTS[kind](learner, rng)
            done[kind] += 1
            seconds = learner.wait_for_rows(8, HANG_SECONDS)  # more than what the lag lets it do alone
            if seconds is None:
                hangs += 1
                learner.kill_and_resume()
            else:
                recovered.append(seconds)
        code = learner.stop()
    finally:
        learner.process.kill()
    assert learner.folder is not None
    rows = log.read(learner.folder)
    env_steps = [row["env_steps"] for row in rows]
    plain = undisturbed(base / "undisturbed", env_steps[-1])
    pairs = zip(rows, plain, strict=False)
    return {
        "actors": actors,
        "faults": dict(done),
        "seconds to the eighth row after a fault, the longest": round(max(recovered, default=0.0), 1),
        "hangs over 60 s": hangs,
        "unloadable checkpoints": learner.unloadable,
        "rows": len(rows),
        "rows unlike those of the undisturbed run": sum(compared(a) != compared(b) for a, b in pairs)
        + abs(len(rows) - len(plain)),
        "env steps counted twice": sum(late <= early for early, late in pairwise(env_steps)),
        "exit code after SIGTERM": code,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--actors", default="local:2")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        for name in ("disturbed", "undisturbed"):
            (Path(base) / name).mkdir()
        print(json.dumps(soak(arguments.faults, arguments.seed, arguments.actors, Path(base)), indent=2))


if __name__ == "__main__":
    main()
