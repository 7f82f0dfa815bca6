"""Kills at random moments: is anything lost or counted twice, and is the finished run the undisturbed one?

A round begins a fresh run, kills its processes some times, continues it after each kill as a person would,
and lets it come to its end. What a run is, and what is killed, differs by setup.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from actor_runs import measured
from forked_commands import Command, Commands
from process_trees import is_running, processes_below
from small_studies import STUDY
from small_tunings import decisive, recorded, request
from small_tunings import words as tuning_words
from toy_runs import differences, newest_state

from anybatch.lab.tuning.plan import TuningPlan
from anybatch.runs import log
from anybatch.storage.checkpoint import Checkpoints

Record = dict[str, Any]

KILLS_OF_A_ROUND = 10
WHILE_STARTING = 0.3
"""Share of the kills at a moment before the process has saved anything."""
PATIENCE_SECONDS = 300.0
LINGER_SECONDS = 30.0
"""How long the other processes of a command may outlive its first one."""
SAVE = ("--record.checkpoint-every-iterations=1", "--record.no-tensorboard", "--evaluation.num-envs=1")
CARTPOLE = ("--env=native:CartPole-v1", "--threads=1", *SAVE)
PPG = (
    *("--preset=procgen-small-ppg-ewma", "--env=toy:Target", "--network.encoder=mlp"),
    *("--network.hidden-sizes=16", "--num-envs=4", "--num-steps=8", "--phase.policy-iterations=3"),
    *("--phase.auxiliary-epochs=2", "--phase.auxiliary-minibatch=16", "--total-env-steps=3200"),
)
PQN = (
    *("--preset=cartpole-pqn", "--num-envs=8", "--controller.kind=divergence", "--controller.every=2"),
    *("--controller.min-steps=8", "--controller.max-steps=32", "--total-env-steps=19200"),
)
QUEUE = (
    *("--preset=cartpole-ppo-ewma", "--num-envs=8", "--num-steps=16", "--normalize.observations=step"),
    *("--staleness.iterations=2", "--total-env-steps=12800"),
)
LAGGING = (
    *("--preset=cartpole-ppo-ewma", "--num-envs=32", "--num-steps=8", "--staleness.iterations=2"),
    *("--update.epochs=1", "--total-env-steps=25600"),
)
RANKS = ("--preset=cartpole-ppo-ewma", "--num-envs=8", "--num-steps=32", "--total-env-steps=15360")


class TrainingRun:
    """A run of `anybatch train`, continued by `anybatch resume`."""

    def __init__(
        self,
        base: Path,
        flags: Sequence[str],
        *,
        launch: Sequence[str] = (),
        queue: Sequence[str] | None = None,
    ):
        """`launch`: flags that a resume needs too. `queue`: the undisturbed run has these instead."""
        self._base, self._flags, self._launch = base, flags, launch
        self._queue = launch if queue is None else queue

    def words(self, place: Path) -> list[str]:
        """The command line that begins the run in a folder, or continues it."""
        if (place / "run" / "config.json").exists():
            return ["resume", str(place / "run"), *self._launch]
        shutil.rmtree(place / "run", ignore_errors=True)  # a kill before anything was recorded
        return ["train", f"--run-dir={place}", "--name=run", *self._flags, *self._launch]

    def undisturbed_words(self, place: Path) -> list[str]:
        return ["train", f"--run-dir={place}", "--name=run", *self._flags, *self._queue]

    def marks(self, place: Path) -> set[str]:
        """What changes whenever the run gets further."""
        return {path.name for path in (place / "run" / "checkpoints").glob("step_*")}

    def harm(self, place: Path, before: Record, undisturbed: Path) -> Record:
        """What a kill has done to the files of the run, which were as `before` at the last one."""
        rows = measured(place / "run") if (place / "run").exists() else []
        checkpoints = Checkpoints(place / "run", keep=1)
        names = checkpoints.newest_first()
        loaded = checkpoints.load_latest() if names else None
        reached = loaded.env_steps if loaded else 0
        logged = max((row["env_steps"] for row in rows), default=0)
        return {
            "env_steps": reached,
            "lost": int(reached < before.get("env_steps", 0)) + int(logged < reached),
            "unloadable": int(bool(names) and (loaded is None or loaded.path != names[0])),
            "counted_twice": counted_twice(rows),
            "rows_unlike": unlike(rows, measured(undisturbed / "run")),
        }

    def difference(self, place: Path, undisturbed: Path) -> Record:
        """How the finished run differs from the undisturbed one."""
        rows, reference = measured(place / "run"), measured(undisturbed / "run")
        states = newest_state(place / "run"), newest_state(undisturbed / "run")
        found = differences(*states)
        return {
            "rows": len(rows),
            "rows_unlike": unlike(rows, reference) + abs(len(rows) - len(reference)),
            "state_unlike": len(found),
            "counted_twice": counted_twice(rows),
        }


class Cells:
    """A study or a tuning: cells that are trained one after the other, each once."""

    def __init__(self, words: Callable[[Path], list[str]]):
        self._words = words

    def words(self, place: Path) -> list[str]:
        """The command line that begins it in a folder, or continues it."""
        return self._words(place / "out")

    undisturbed_words = words

    def marks(self, place: Path) -> set[str]:
        places = [*place.glob("out/cells/*.json"), *place.glob("out/runs/*/checkpoints/step_*")]
        return {str(path.relative_to(place)) for path in places}

    def harm(self, place: Path, before: Record, _undisturbed: Path) -> Record:
        files = sorted(path.name for path in place.glob("out/cells/*.json"))
        for path in place.glob("out/cells/*.json"):
            json.loads(path.read_text())
        logs = [log.read(folder) for folder in place.glob("out/runs/*")]
        return {
            "cells": files,
            "lost": len(set(before.get("cells", ())) - set(files)),
            "unloadable": 0,
            "counted_twice": sum(map(counted_twice, logs)),
            "rows_unlike": 0,  # known when a cell is finished
        }

    def difference(self, place: Path, undisturbed: Path) -> Record:
        ours, theirs = decisive(place / "out"), decisive(undisturbed / "out")
        trials, plan = (
            {},
            TuningPlan.read(place / "out") if (place / "out" / "trials.journal").exists() else None,
        )
        if plan is not None:
            trials = {trial.number: trial for trial in recorded(place / "out", plan)}
            assert trials == {trial.number: trial for trial in recorded(undisturbed / "out", plan)}, "trials"
        # A trial that was pruned may have come to its end, or not.
        pruned = {f"trial-{number:04}" for number, trial in trials.items() if not trial.is_finished}
        names = [name for name in ours.keys() | theirs.keys() if name.partition("__")[0] not in pruned]
        return {
            "rows": len(names),
            "rows_unlike": sum(ours.get(name) != theirs.get(name) for name in names),
            "state_unlike": 0,
            "counted_twice": 0,
        }


def counted_twice(rows: Sequence[Record]) -> int:
    return sum(late["env_steps"] <= early["env_steps"] for early, late in pairwise(rows))


def unlike(rows: Sequence[Record], reference: Sequence[Record]) -> int:
    return sum(ours != theirs for ours, theirs in zip(rows, reference, strict=False))


def small_study(base: Path) -> Cells:
    file = base / "study.toml"
    file.write_text(STUDY)
    return Cells(lambda out: ["study", str(file), "--out", str(out), "--jobs", "1"])


def small_tuning(base: Path) -> Cells:
    asked = request(base)
    return Cells(lambda out: tuning_words(asked, out))


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A kind of run, and how often it is killed."""

    make: Callable[[Path], TrainingRun | Cells]
    share: float
    """Of all kills."""
    victims: tuple[str, ...] = ("first",)
    """The first process, another one, or all of them at once."""
    spread_seconds: float = 0.5
    """How long after the first thing that a process saves it is killed at the latest."""


ANY = ("first", "other", "all")
SETUPS = {
    "PPO with a queue": Setup(make=lambda base: TrainingRun(base, (*CARTPOLE, *QUEUE)), share=0.24),
    "PPG": Setup(make=lambda base: TrainingRun(base, (*SAVE, *PPG)), share=0.20),
    "PQN with a controller": Setup(make=lambda base: TrainingRun(base, (*CARTPOLE, *PQN)), share=0.20),
    "two actors": Setup(
        make=lambda base: TrainingRun(base, (*CARTPOLE, *LAGGING), launch=("--actors=local:2",), queue=()),
        share=0.12,
        victims=ANY,
        spread_seconds=1.0,
    ),
    "two ranks": Setup(
        make=lambda base: TrainingRun(base, (*CARTPOLE, *RANKS), launch=("--ranks=2",)),
        share=0.08,
        victims=ANY,
        spread_seconds=2.0,
    ),
    "a study": Setup(make=small_study, share=0.09, victims=ANY),
    "a tuning": Setup(make=small_tuning, share=0.07, victims=ANY),
}


def kills_of(setup: str, count: int) -> int:
    """How many of `count` kills a setup gets."""
    return max(1, round(SETUPS[setup].share * count))


class Round:
    """One run from its start to its end, with kills in between."""

    def __init__(self, commands: Commands, name: str, folder: Path, rng: random.Random):
        self._commands, self._name, self._rng = commands, name, rng
        self.setup = SETUPS[name]
        folder.mkdir(parents=True, exist_ok=True)
        self.run = self.setup.make(folder)
        self.place, self.undisturbed = folder / "disturbed", folder / "undisturbed"
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        self._before: Record = {}
        self._start_seconds = 3.0

    def go(self, kills: int) -> Iterator[Record]:
        """So many kills, fewer if the run is finished before, and then the comparison."""
        self._finish_undisturbed()
        done, ended_by_itself = 0, []
        finished = False
        while not finished:
            with self._commands.start(self.run.words(self.place)) as command:
                while done < kills and self._reaches_a_moment(command):
                    victim = self._rng.choice(self.setup.victims)
                    yield {"record": "kill", "setup": self._name, "victim": victim} | self._kill(
                        command, victim
                    )
                    done += 1
                    if victim != "other":
                        break
                else:
                    code = command.wait(PATIENCE_SECONDS)
                    finished = code == 0
                    if not finished:
                        ended_by_itself.append(code)
                        assert len(ended_by_itself) < 10, command.said()
        difference = self.run.difference(self.place, self.undisturbed)
        yield {
            "record": "round",
            "setup": self._name,
            "kills": done,
            "ended_by_itself": ended_by_itself,
        } | difference

    def _finish_undisturbed(self) -> None:
        finished = self.undisturbed / "finished"
        if finished.exists():
            return
        shutil.rmtree(self.undisturbed, ignore_errors=True)
        self.undisturbed.mkdir()
        with self._commands.start(self.run.undisturbed_words(self.undisturbed)) as command:
            assert command.wait(PATIENCE_SECONDS) == 0, command.said()
        finished.touch()

    def _reaches_a_moment(self, command: Command) -> bool:
        """Wait until some moment of the command's life. Returns whether it has not ended by then."""
        started, before = time.monotonic(), self.run.marks(self.place)
        if self._rng.random() < WHILE_STARTING:
            time.sleep(self._rng.uniform(0, self._start_seconds))
            return command.poll() is None
        while self.run.marks(self.place) <= before:
            if command.poll() is not None:
                return False
            assert time.monotonic() - started < PATIENCE_SECONDS, command.said()
            time.sleep(0.01)
        self._start_seconds = time.monotonic() - started
        time.sleep(self._rng.uniform(0, self.setup.spread_seconds))
        return command.poll() is None

    def _kill(self, command: Command, victim: str) -> Record:
        below = sorted(processes_below(command.pid) - {command.pid})
        if victim == "other":
            kill([self._rng.choice(below)] if below else [])
            return {"left_behind": 0}
        kill([command.pid, *(below if victim == "all" else ())])
        code = command.wait(60)
        assert code in (-signal.SIGKILL, 0), (code, command.said())
        deadline = time.monotonic() + LINGER_SECONDS
        while (left := [process for process in below if is_running(process)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        kill(left)
        self._before = self.run.harm(self.place, self._before, self.undisturbed)
        return {"left_behind": len(left)} | {
            name: self._before[name] for name in self._before if name != "cells"
        }


def kill(processes: Sequence[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def kills(commands: Commands, count: int, done: Sequence[Record], work: Path, seed: int) -> Iterator[Record]:
    """The kills that are missing of `count`, and the comparison at the end of each round."""
    for name in SETUPS:
        mine = [record for record in done if record["setup"] == name]
        killed = sum(record["record"] == "kill" for record in mine)
        rounds = sum(record["record"] == "round" for record in mine)
        while killed < kills_of(name, count):
            rng = random.Random(f"{seed} {name} {killed}")
            folder = work / name.replace(" ", "-")
            round_ = Round(commands, name, folder, rng)
            for record in round_.go(min(KILLS_OF_A_ROUND, kills_of(name, count) - killed)):
                killed += record["record"] == "kill"
                yield record | {"round": rounds}
            rounds += 1
