"""Actors as processes on this machine, which communicate through standard input and output."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading

from anybatch.acting.actors import process
from anybatch.acting.actors.engine import CHECK_SECONDS, START_SECONDS, ActorLost, Watch

END_SECONDS = 5.0
"""Seconds that a process gets to end by itself."""


class LocalEngine:
    """Processes with a fresh interpreter each: they inherit none of this program's state."""

    def __init__(self, actors: int, *, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._actors: list[_Process | None] = [None] * actors

    def set_up(self, actor: int, recipe: bytes) -> None:
        before = self._actors[actor]
        if before is not None:
            before.kill()
        self._actors[actor] = started = _Process(self._timeout)
        started.send(process.SET_UP, recipe)

    def publish(self, weights: bytes) -> bytes:
        return weights

    def request(self, actor: int, request: bytes, weights: bytes) -> None:
        there = self._process(actor)
        there.send_weights(weights)
        there.send(process.REQUEST, request)

    def receive(self, actor: int) -> bytes:
        return self._process(actor).receive()

    def process_ids(self) -> list[int]:
        return [actor.pid for actor in self._actors if actor is not None]

    def close(self) -> None:
        there = [actor for actor in self._actors if actor is not None]
        for actor in there:
            actor.end()
        for actor in there:
            actor.wait()
        self._actors = [None] * len(self._actors)

    def _process(self, actor: int) -> "_Process":
        there = self._actors[actor]
        assert there is not None
        return there


class _Process:
    """One actor. Threads read and write, so that the learner never waits for a process that hangs."""

    def __init__(self, timeout_seconds: float) -> None:
        # -P: a package of our name in the working folder must not be imported instead.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", process.COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._watch = Watch(timeout_seconds)
        self._outgoing: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue()
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        self._sent_weights: bytes | None = None
        self._is_starting = True
        for work in (self._write, self._read):
            threading.Thread(target=work, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, kind: bytes, payload: bytes) -> None:
        self._outgoing.put((kind, payload))

    def send_weights(self, weights: bytes) -> None:
        """Send a version once, however often it is requested in a row."""
        if weights is not self._sent_weights:
            self._sent_weights = weights
            self.send(process.WEIGHTS, weights)

    def receive(self) -> bytes:
        self._watch.begin(START_SECONDS if self._is_starting else 0.0)
        while True:
            with contextlib.suppress(queue.Empty):
                answer = self._answers.get(timeout=CHECK_SECONDS)
                if answer is None:
                    raise ActorLost(self._how_it_ended())
                self._is_starting = False
                return answer
            self._watch.refuse_hanging()

    def kill(self) -> None:
        self._process.kill()
        self.end()
        self.wait()

    def end(self) -> None:
        """Close its input, so that it ends."""
        self._outgoing.put(None)

    def wait(self) -> None:
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None
        with contextlib.suppress(OSError):  # the reader notices that the process has ended
            while (frame := self._outgoing.get()) is not None:
                process.write_frame(stream, *frame)
        with contextlib.suppress(OSError):
            stream.close()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with stream:
            while (frame := process.read_frame(stream)) is not None:
                kind, payload = frame
                if kind == process.ANSWER:
                    self._answers.put(payload)
                    self._watch.begin()
                else:
                    self._watch.hear(payload, working=kind == process.BUSY)
        self._answers.put(None)

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"
