"""Stopping a run at the end of an iteration instead of in the middle of one."""

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GracefulStop:
    """The first Ctrl-C or SIGTERM sets `requested`; Ctrl-C after that raises KeyboardInterrupt.

    Only the main thread can have signal handlers: elsewhere this is inert.
    """

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self.requested = False
        self._say = say
        self._handlers_before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._handlers_before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers_before.items():
            # None stands for a handler that was not installed from Python and cannot be put back by it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # pyright: ignore[reportArgumentType]
        self._handlers_before.clear()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.requested = True
        # trap: the signal may have interrupted a write to the same stream, which refuses to be re-entered.
        with contextlib.suppress(RuntimeError, OSError):
            self._say("Stopping after this iteration. Press Ctrl-C again to stop at once.")
