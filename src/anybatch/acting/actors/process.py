"""An actor as a process on this machine.

Its standard input receives frames: what to build, weights, requests. Its standard output has a frame for
every answer and, at intervals, signs of life. It ends with its input, so a killed learner leaves no process
behind.

Nothing heavy is imported before the first sign of life: importing torch takes longer than some timeouts.
"""

import os
import queue
import struct
import sys
import threading
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from anybatch.acting.actors.engine import CHECK_SECONDS

if TYPE_CHECKING:
    from anybatch.acting.actors.worker import ActorWorker

SET_UP, WEIGHTS, REQUEST, ANSWER, ALIVE, BUSY = b"S", b"W", b"R", b"A", b"L", b"B"
"""Kinds of frames. BUSY is a sign of life of an actor that must make progress."""

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
        from anybatch.acting.actors.failures import packed_error

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
    """Standard output, reserved for frames: what an engine prints goes to standard error."""
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
