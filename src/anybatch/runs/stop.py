"""Stopping a run at the end of an iteration, or an evaluation immediately."""

import contextlib
import ctypes
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
IN_FORCE: list["GracefulStop"] = []
"""The stop requests of runs that train in this process, which a signal would reach now."""

STOPPING = (
    "Stopping after this iteration. To stop at once, press Ctrl-C or send the signal again; "
    "the newest checkpoint is kept."
)

Handler = Callable[[int, FrameType | None], None]


class Stopped(KeyboardInterrupt):
    """A signal ended the current work. Not an Exception, so that no environment's code can swallow it."""

    def __init__(self, number: int, sentence: str = "Stopped.") -> None:
        super().__init__(sentence)
        self.signal = signal.Signals(number)


class GracefulStop:
    """The first Ctrl-C, SIGTERM or SIGHUP sets `requested`; the second one ends the process at once.

    Only the main thread can have signal handlers: in other threads this does nothing.
    """

    def __init__(self, *, is_repeated: bool = False, sentence: Callable[[], str] = lambda: STOPPING) -> None:
        """`is_repeated`: a signal may arrive several times, so a second one does not mean more.

        `sentence` is what a person is told after the first signal.
        """
        self.requested = False
        self.requested_at = 0.0
        """On the monotonic clock."""
        self.signal: signal.Signals | None = None
        """The signal that requested the stop."""
        self._sentence = sentence
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

    def request(self) -> None:
        """Stop after this iteration, though no signal arrived."""
        self.requested = True

    def take_over(self, number: int) -> None:
        """Accept a stop requested by the signal `number`, perhaps on another rank; 0 if by no signal."""
        self.requested, self.requested_at = True, time.monotonic()
        self.signal = signal.Signals(number) if number else None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.take_over(number)
        # trap: the signal may have interrupted a write to the same stream, which is not reentrant.
        with contextlib.suppress(RuntimeError, OSError):
            logger.info(self._sentence())


def request_stop() -> None:
    """Stop the runs that train in this process as SIGTERM would, from any thread and without a signal.

    If none trains, nothing happens.
    """
    for stop in IN_FORCE:
        stop.take_over(signal.SIGTERM)


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP raises Stopped here, even within an environment's step."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(number)

    with handling(stop):
        yield


@contextlib.contextmanager
def handling(first: Handler, *, once: bool = True) -> Iterator[None]:
    """Call `first` at the first signal that requests a stop. After that, signals have their default effect.

    Unless `once`, it is called at every signal.

    By default Ctrl-C raises KeyboardInterrupt, and the others end the process. A checkpoint is complete or
    absent, so nothing is lost.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    # Ignored signals stay ignored: `nohup`, or a shell's background job, requested that.
    before = {
        number: handler for number in SIGNALS if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }
    for number in before:
        _install(number, _Once(first, list(before)) if once else first)
    try:
        yield
    finally:
        for number, handler in before.items():
            # None means a handler that was not installed from Python and cannot be restored by it.
            _install(number, signal.SIG_DFL if handler is None else handler)


class _Once:
    """Calls `first` at the first of the signals; after that, they have their default effect."""

    def __init__(self, first: Handler, numbers: list[signal.Signals]) -> None:
        self._first, self._numbers = first, numbers

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for each in self._numbers:
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
        self._first(number, frame)


def _install(number: signal.Signals, handler: Handler | int) -> None:
    """Install a new handler, or the one that was there before; Python forgets what the kernel was told."""
    signal.signal(number, handler)
    if isinstance(handler, _Once):
        _handle_once(number)


def _handle_once(number: int) -> None:
    """Let the kernel restore the default when the signal is delivered, before Python's handler has run.

    That handler runs between two bytecodes of the main thread, so never while an engine hangs in native code.
    A second signal then still ends the process. Without glibc the default is restored when the handler runs.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "sysv_signal"):
        return
    for function in (libc.signal, libc.sysv_signal):
        function.argtypes, function.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.sysv_signal(number, libc.signal(number, None))  # the handler is what the first call replaced
