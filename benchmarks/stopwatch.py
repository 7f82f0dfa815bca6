"""Env steps per second of a training loop that says when each of its iterations ends."""

from collections.abc import Callable
from time import perf_counter

WARM_UP_ITERATIONS = 2


class Stopwatch:
    """Call `tick` at the start and after every iteration; stop when `is_done`."""

    def __init__(self, seconds: float, warm_up_iterations: int = WARM_UP_ITERATIONS):
        self._seconds = seconds
        self._warm_up = warm_up_iterations
        self._ticks: list[tuple[float, int]] = []

    def tick(self, env_steps: int) -> None:
        self._ticks.append((perf_counter(), env_steps))

    @property
    def is_done(self) -> bool:
        """At least one iteration after the warm-up, and as many as fill the seconds."""
        return self.iterations >= 1 and self.elapsed >= self._seconds

    @property
    def iterations(self) -> int:
        """Those after the warm-up."""
        return len(self._ticks) - 1 - self._warm_up

    @property
    def elapsed(self) -> float:
        return self._ticks[-1][0] - self._ticks[self._warm_up][0]

    @property
    def env_steps(self) -> int:
        return self._ticks[-1][1] - self._ticks[self._warm_up][1]

    @property
    def since_first_tick(self) -> float:
        return perf_counter() - self._ticks[0][0]

    @property
    def first_iteration_seconds(self) -> float:
        return self._ticks[1][0] - self._ticks[0][0]

    @property
    def since_last_tick(self) -> float:
        return perf_counter() - self._ticks[-1][0]


def calls_per_second(call: Callable[[], object], seconds: float) -> float:
    """After a warm-up of a tenth of the time."""
    _count_calls(call, seconds / 10)
    start = perf_counter()
    calls = _count_calls(call, seconds)
    return calls / (perf_counter() - start)


def _count_calls(call: Callable[[], object], seconds: float) -> int:
    calls, end = 0, perf_counter() + seconds
    while perf_counter() < end:
        call()
        calls += 1
    return max(calls, 1)
