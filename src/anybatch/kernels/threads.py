"""How many threads a native call uses."""

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

Result = TypeVar("Result")

FIRST_INTERVAL, LONGEST_INTERVAL = 4, 256
"""Calls between two attempts with the number of threads that was slower: twice as many after each."""


class Threads:
    """One thread, or as many as there may be: whichever was faster the last time.

    Threads wait for each other many times per call. Where other programs need the cores, such as further
    runs, several threads are slower than one. Results do not depend on the number, so it may change at any
    time.
    """

    def __init__(self, most: int):
        self._most = most
        self._seconds: dict[int, float] = {}
        self._interval = FIRST_INTERVAL
        self._calls = 0

    def run(self, size: int, call: Callable[[int], Result]) -> Result:
        """`call` with a number of threads; `size` is the amount of work, in any unit."""
        threads = self._next()
        start = perf_counter()
        result = call(threads)
        self._seconds[threads] = (perf_counter() - start) / max(size, 1)
        return result

    def _next(self) -> int:
        for untried in (self._most, 1):
            if untried not in self._seconds:
                return untried
        faster = min(self._seconds, key=lambda threads: self._seconds[threads])
        self._calls += 1
        if self._calls < self._interval:
            return faster
        self._calls = 0
        self._interval = min(2 * self._interval, LONGEST_INTERVAL)
        return 1 if faster == self._most else self._most
