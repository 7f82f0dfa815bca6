"""Stopping a run at the end of an iteration, or an evaluation at once."""

import contextlib
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
IN_FORCE: list["GracefulStop"] = []
"""Those that a signal would reach now, of runs that train in this process."""

Handler = Callable[[int, FrameType | None], None]


class Stopped(KeyboardInterrupt):
    """A signal ended what was in progress. Not an Exception: no environment's own code may swallow it."""

    def __init__(self, number: int, sentence: str = "Stopped.") -> None:
        super().__init__(sentence)
        self.signal = signal.Signals(number)


class GracefulStop:
    """The first Ctrl-C, SIGTERM or SIGHUP sets `requested`; the second one ends the process at once.

    Only the main thread can have signal handlers: elsewhere this is inert.
    """

    def __init__(self, say: Callable[[str], None] = print, *, is_repeated: bool = False) -> None:
        """`is_repeated`: signals are sent several times by themselves, so that a second one means no more."""
        self.requested = False
        self.signal: signal.Signals | None = None
        """The one that asked for the stop."""
        self._say = say
        self._handling = handling(self._handle, once=not is_repeated)

    def __enter__(self) -> Self:
        self._handling.__enter__()
        IN_FORCE.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        IN_FORCE.remove(self)
        self._handling.__exit__(kind, error, trace)

    def take_over(self, number: int) -> None:
        """A stop that another rank was asked for, by that signal; 0 where it was none."""
        self.requested, self.signal = True, signal.Signals(number) if number else None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.requested, self.signal = True, signal.Signals(number)
        # trap: the signal may have interrupted a write to the same stream, which refuses to be re-entered.
        with contextlib.suppress(RuntimeError, OSError):
            self._say(
                "Stopping after this iteration. If it does not end, press Ctrl-C again, or send the signal "
                "again: that stops at once, and the newest checkpoint stays."
            )


def request_stop() -> None:
    """Stop the runs that train in this process as SIGTERM would, from any thread and without a signal.

    Where none trains, nothing happens.
    """
    for stop in IN_FORCE:
        stop.requested, stop.signal = True, signal.SIGTERM


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP raises Stopped here, also within an environment's step."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(number)

    with handling(stop):
        yield


@contextlib.contextmanager
def handling(first: Handler, *, once: bool = True) -> Iterator[None]:
    """Call `first` at the first signal that asks for an end. From then on they do what they do by default.

    Not `once`, it is called at every signal.

    By default Ctrl-C raises KeyboardInterrupt, and the others end the process. A checkpoint is whole or
    absent, so nothing is lost.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        for each in before if once else ():
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
        first(number, frame)

    # What is ignored stays ignored: `nohup`, or a shell's background job, asked for that.
    before = {
        number: handler for number in SIGNALS if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, handle)
        if once:
            _handle_once(number)
    try:
        yield
    finally:
        for number, handler in before.items():
            # None stands for a handler that was not installed from Python and cannot be put back by it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _handle_once(number: int) -> None:
    """Let the kernel put the default back when the signal is delivered, before Python's handler has run.

    It runs between two bytecodes of the main thread: never, while an engine hangs in code of its own. A
    second signal then still ends the process. Without glibc the default comes back when the handler runs.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "sysv_signal"):
        return
    for function in (libc.signal, libc.sysv_signal):
        function.argtypes, function.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.sysv_signal(number, libc.signal(number, None))  # the handler is what the first call replaced
