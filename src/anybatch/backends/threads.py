"""How many threads torch and a native call use."""

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import torch

from anybatch import machine
from anybatch.config import RunConfig
from anybatch.distributed import group

Result = TypeVar("Result")

FIRST_INTERVAL, LONGEST_INTERVAL = 4, 256
"""Calls between two attempts with the number of threads that was slower: twice as many after each that was
slower again."""


class Threads:
    """One thread, or as many as there may be: whichever was faster, by the better of its last two calls.

    Threads wait for each other many times per call. Where other programs need the cores, such as further
    runs, several threads are slower than one. Results do not depend on the number, so it may change at any
    time.
    """

    def __init__(self, most: int):
        self._most = most
        self._seconds: dict[int, tuple[float, float]] = {}
        """Of the last two calls with each number, per size: one that allocates memory is slow by chance."""
        self._faster = most
        self._interval = FIRST_INTERVAL
        self._calls = 0

    def run(self, size: int, call: Callable[[int], Result]) -> Result:
        """`call` with a number of threads; `size` is the amount of work, in any unit."""
        threads = self._next()
        start = perf_counter()
        result = call(threads)
        now = (perf_counter() - start) / max(size, 1)
        self._seconds[threads] = (self._seconds.get(threads, (now, now))[1], now)
        return result

    def _next(self) -> int:
        for untried in (self._most, 1):
            if untried not in self._seconds:
                return untried
        faster = min(self._seconds, key=lambda threads: min(self._seconds[threads]))
        if faster != self._faster:
            self._faster, self._interval, self._calls = faster, FIRST_INTERVAL, 0
        self._calls += 1
        if self._calls < self._interval:
            return faster
        self._calls = 0
        self._interval = min(2 * self._interval, LONGEST_INTERVAL)
        return 1 if faster == self._most else self._most


def cores_of_this_rank() -> int:
    """The cores that this process may use: ranks on one machine share them."""
    return max(1, machine.available_cores() // group.local_ranks())


def native_threads(config: RunConfig) -> int:
    """The most threads that native code may use; it uses as many as pay off. Actors leave none to spare."""
    if config.threads:
        return config.threads
    return cores_of_this_rank() if config.collection is None else 1


def set_threads(config: RunConfig, encoder: str) -> None:
    """Threads of torch: one for small networks, which lose more to waking threads than they gain; all cores
    for convolutions."""
    torch.set_num_threads(config.threads or (cores_of_this_rank() if encoder in ("nature", "impala") else 1))
