"""Actors as processes on this machine: first the actor's side, then the learner's.

An actor's standard input receives frames: what to build, weights, requests. Its standard output has a frame
for every answer and, at intervals, signs of life. It ends with its input, so a killed learner leaves no
process behind.

Nothing heavy is imported before the first sign of life: importing torch takes longer than some timeouts.
"""

import contextlib
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from anybatch.acting.actors.transport import CHECK_SECONDS, START_SECONDS, ActorLost, Watch

if TYPE_CHECKING:
    from anybatch.acting.actors.worker import ActorWorker

SET_UP, WEIGHTS, REQUEST, ANSWER, ALIVE, BUSY = b"S", b"W", b"R", b"A", b"L", b"B"
"""Kinds of frames. BUSY is a sign of life of an actor that must make progress."""

END_SECONDS = 5.0
"""Seconds that a process gets to end by itself."""
_HEADER = struct.Struct("!cQ")
COMMAND = """
import ctypes, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
libc = ctypes.CDLL(None)
if hasattr(libc, "prctl"):
    libc.prctl(1, signal.SIGKILL)
from anybatch.actor_process import main
main()
"""
"""Signals that end a run reach the whole process group; actors ignore them, because the learner lets the
rollout finish. Linux ends the process with its parent even while it is suspended (1 is PR_SET_PDEATHSIG)."""


def write_frame(stream: IO[bytes], kind: bytes, payload: bytes = b"") -> None:
    stream.write(_HEADER.pack(kind, len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """The next frame; None if the other side has ended."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    kind, length = _HEADER.unpack(header)
    payload = stream.read(length)
    return (kind, payload) if len(payload) == length else None


def main(build: Callable[[bytes], "ActorWorker"]) -> None:
    """Handle frames until there are no more. `build` makes the worker that a recipe describes."""
    answers = _private_stdout()
    lock = threading.Lock()

    def write(kind: bytes, payload: bytes = b"") -> None:
        with lock:
            write_frame(answers, kind, payload)

    actor = _Actor(build)
    frames = _frames()
    threading.Thread(target=_give_signs_of_life, args=(actor, write), daemon=True).start()
    while True:
        answer = actor.take(*frames.get())
        if answer is not None:
            write(ANSWER, answer)


class _Actor:
    def __init__(self, build: Callable[[bytes], "ActorWorker"]) -> None:
        self._build = build
        self.worker: ActorWorker | None = None
        self.working = False
        self._weights = b""

    def take(self, kind: bytes, payload: bytes) -> bytes | None:
        """The answer to a frame; an error is also an answer."""
        if kind == WEIGHTS:
            self._weights = payload
            return None
        from anybatch.acting.actors.worker import packed_error

        try:
            if kind == SET_UP:
                self.worker = self._build(payload)
                return self.worker.first_answer()
            assert self.worker is not None
            self.working = True
            return self.worker.answer(payload, self._weights)
        except Exception as error:
            return packed_error(error)
        finally:
            self.working = False


def _private_stdout() -> IO[bytes]:
    """Standard output, reserved for frames: what an environment prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _frames() -> queue.Queue[tuple[bytes, bytes]]:
    """The frames as they arrive. The process ends as soon as its input ends, even within a rollout."""
    waiting: queue.Queue[tuple[bytes, bytes]] = queue.Queue()

    def read() -> None:
        while (frame := read_frame(sys.stdin.buffer)) is not None:
            waiting.put(frame)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return waiting


def _give_signs_of_life(actor: _Actor, write: Callable[..., None]) -> None:
    pause = threading.Event()
    while not pause.wait(CHECK_SECONDS):
        worker = actor.worker
        progress = "" if worker is None else repr(worker.progress)
        try:
            write(BUSY if actor.working else ALIVE, progress.encode())
        except OSError:
            os._exit(0)


class LocalTransport:
    """Processes with a fresh interpreter each: they inherit none of this program's state."""

    def __init__(self, actors: int, *, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._actors: list[_Process | None] = [None] * actors

    def set_up(self, actor: int, recipe: bytes) -> None:
        before = self._actors[actor]
        if before is not None:
            before.kill()
        self._actors[actor] = started = _Process(self._timeout)
        started.send(SET_UP, recipe)

    def publish(self, weights: bytes) -> bytes:
        return weights

    def request(self, actor: int, request: bytes, weights: bytes) -> None:
        there = self._process(actor)
        there.send_weights(weights)
        there.send(REQUEST, request)

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
            [sys.executable, "-P", "-c", COMMAND],
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
            self.send(WEIGHTS, weights)

    def receive(self) -> bytes:
        self._watch.begin(START_SECONDS if self._is_starting else 0.0)
        while True:
            with contextlib.suppress(queue.Empty):
                answer = self._answers.get(timeout=CHECK_SECONDS)
                if answer is None:
                    raise ActorLost(self._how_it_ended())
                self._is_starting = False
                return answer
            self._watch.validate_responding()

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
                write_frame(stream, *frame)
        with contextlib.suppress(OSError):
            stream.close()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with stream:
            while (frame := read_frame(stream)) is not None:
                kind, payload = frame
                if kind == ANSWER:
                    self._answers.put(payload)
                    self._watch.begin()
                else:
                    self._watch.hear(payload, working=kind == BUSY)
        self._answers.put(None)

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"
