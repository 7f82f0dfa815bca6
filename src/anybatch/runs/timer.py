"""Seconds spent in each section of an iteration."""

from time import perf_counter
from types import TracebackType


class Section:
    """Seconds accumulated by one `with` section. Sections of one name do not nest."""

    __slots__ = ("_start", "failed", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.failed = False
        """Whether an error ended it."""
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += perf_counter() - self._start
        self.failed = error is not None


class Timer:
    """`with timer("rollout"): …` accumulates; `take()` returns the seconds and resets them."""

    def __init__(self) -> None:
        self._sections: dict[str, Section] = {}
        self._start = perf_counter()

    def __call__(self, name: str) -> Section:
        section = self._sections.get(name)
        if section is None:
            section = self._sections[name] = Section()
        return section

    @property
    def failed(self) -> str | None:
        """The section that an error ended; None if there is none."""
        return next((name for name, section in self._sections.items() if section.failed), None)

    def take(self) -> dict[str, float]:
        """Seconds per section since the last call, and the remaining time as `other`."""
        now = perf_counter()
        seconds = {name: section.seconds for name, section in self._sections.items()}
        seconds["other"] = max(0.0, now - self._start - sum(seconds.values()))
        for section in self._sections.values():
            section.seconds = 0.0
        self._start = now
        return seconds
