"""How far the current iteration is, and how long it will still take.

Collectors and backends report to the pace of the run that trains in their thread. A report only counts and
looks at the clock; a few times per second, the progress is shown and a request to stop is considered.
"""

import signal
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple

from anybatch.runs.stop import GracefulStop, Stopped

SHOWN_AFTER_SECONDS = 0.5
"""Nothing is shown within iterations that are shorter."""
EVERY_SECONDS = 0.25
ENDING_SECONDS = 7.0
"""How long a run continues after SIGTERM to complete an iteration: schedulers kill it some seconds later."""


class Left(NamedTuple):
    """How long something still takes."""

    seconds: float
    at_least: bool = False
    """Whether there is a part whose speed is unknown."""


class Pace:
    """The position of a run within its iteration."""

    def __init__(
        self, stop: GracefulStop, show: Callable[[], None], *, can_be_interrupted: bool = True
    ) -> None:
        """`show` is called while an iteration takes long. If the run cannot be interrupted within an
        iteration, it completes it after SIGTERM too."""
        self._stop, self._show = stop, show
        self._can_be_interrupted = can_be_interrupted
        self._began: float | None = None
        self._learns_since = 0.0
        self._collected = self._num_steps = 0
        self._stepped = self._gradient_steps = 0
        self._samples = 0
        self._seconds_per_sample: float | None = None
        self.last_seconds = 0.0
        """Of the last complete iteration."""
        self._next_look = 0.0

    def begin_iteration(self, *, samples: int, gradient_steps: int) -> None:
        self._began = self._learns_since = time.monotonic()
        self._next_look = self._began + SHOWN_AFTER_SECONDS
        self._samples, self._gradient_steps = samples, gradient_steps
        self._collected = self._num_steps = self._stepped = 0

    def end_iteration(self) -> None:
        if self._began is not None:
            self.last_seconds = time.monotonic() - self._began
            self._seconds_per_sample = self.last_seconds / self._samples
            self._began = None

    def collected(self, steps: int, total: int) -> None:
        """Report that `steps` of a rollout are done."""
        self._collected, self._num_steps = steps, total
        self.check()

    def begin_learning(self) -> None:
        """Report that collection is done."""
        self._collected = self._num_steps
        self._learns_since = time.monotonic()

    def stepped(self, count: int = 1) -> None:
        """Report gradient steps."""
        self._stepped += count
        self.check()

    def check(self) -> None:
        """Called within everything that may take long. Raises Stopped if the run must end here."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + EVERY_SECONDS
        if self.must_end:
            raise Stopped(signal.SIGTERM)
        if self._began is not None and self._num_steps + self._stepped > 0:
            self._show()

    @property
    def must_end(self) -> bool:
        """Whether SIGTERM arrived and the iteration cannot be completed soon after it."""
        if not self._can_be_interrupted or self._stop.signal != signal.SIGTERM:
            return False
        return time.monotonic() - self._stop.requested_at + self.left().seconds > ENDING_SECONDS

    def left(self) -> Left:
        """How long the iteration still takes, by its own speed so far or by that of the last one."""
        if self._began is None:
            return Left(0.0)
        now = time.monotonic()
        if self._stepped:
            per_step = (now - self._learns_since) / self._stepped
            return Left(per_step * max(0, self._gradient_steps - self._stepped))
        elapsed = now - self._began
        collecting = elapsed * (self._num_steps - self._collected) / max(self._collected, 1)
        if self._seconds_per_sample is None:
            return Left(collecting, at_least=True)
        return Left(max(collecting, self._seconds_per_sample * self._samples - elapsed))

    @property
    def samples_ahead(self) -> float:
        """The samples of this iteration, times the share of its time that has passed."""
        if self._began is None:
            return 0.0
        elapsed = time.monotonic() - self._began
        return self._samples * elapsed / max(elapsed + self.left().seconds, 1e-9)

    @property
    def samples_collected(self) -> int:
        """Of this iteration."""
        if self._began is None or not self._num_steps:
            return 0
        return self._samples * self._collected // self._num_steps

    @property
    def note(self) -> str:
        if self._collected < self._num_steps:
            return f"collecting {self._collected}/{self._num_steps}"
        return f"step {self._stepped}/{max(self._gradient_steps, self._stepped)}"


CURRENT: ContextVar[Pace] = ContextVar("pace")
"""The pace of the run that trains in this thread."""
NO_RUN = Pace(GracefulStop(), lambda: None)


def current() -> Pace:
    """Where to report. Without a run, reports have no effect."""
    return CURRENT.get(NO_RUN)
