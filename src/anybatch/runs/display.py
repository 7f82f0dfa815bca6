"""The display of a run while it trains.

A small live panel on a terminal, one changing line in a notebook, an occasional line elsewhere. A program
that trains without progress sees nothing; its log gets the messages.
"""

import contextlib
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from statistics import harmonic_mean
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from anybatch.config import AnyConfig
from anybatch.dial import Plan
from anybatch.runs import lost_output
from anybatch.text import number_text

if TYPE_CHECKING:
    from rich.live import Live
    from rich.panel import Panel

PANEL_EVERY_SECONDS = 0.25
LINE_EVERY_SECONDS = 10.0
PANEL_COLUMNS = 84

RECENT_EPISODES = 100
"""The training return of a run is the mean over this many of the last episodes, as in published tables."""
RECENT_RETURN = "charts/recent_return"
"""Only on the display: the mean of a single iteration is too noisy to read."""

Shown = tuple[str, str, Callable[[float], str]]
"""Label, metric, and how its value is written."""

FOUR_DIGITS = partial(number_text, digits=4)
WHOLE = "{:,.0f}".format
RESULTS: tuple[Shown, ...] = (
    (f"return (last {RECENT_EPISODES})", RECENT_RETURN, FOUR_DIGITS),
    ("length", "charts/episodic_length", FOUR_DIGITS),
    ("evaluation", "evaluation/return", FOUR_DIGITS),
    ("KL", "losses/approx_kl", "{:.2g}".format),
    ("clipped", "losses/clipfrac", "{:.0%}".format),
    ("auxiliary epochs", "auxiliary/epochs", "{:.2f}".format),
)
OF_MOVING_POLICIES = ("losses/approx_kl", "losses/clipfrac")
SMALLEST_KL = 1e-6
"""Below it the learning rate is practically 0, as at the end of annealing, and both numbers say nothing."""
AVERAGED_SPEEDS = 10
"""The speed that is shown is that of the last iterations together."""
SPEED: tuple[Shown, ...] = (("SPS", "charts/SPS", WHOLE),)
BATCHES: tuple[Shown, ...] = (
    ("iteration batch", "batch/iteration", WHOLE),
    ("minibatch", "batch/minibatch", WHOLE),
    ("microbatch", "batch/microbatch", WHOLE),
)


LOGGER = logging.getLogger("anybatch")


class Display(Protocol):
    """The interface that a run reports to while it trains."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, done: int, *, seconds: float) -> None:
        """Show what is there at the start; `seconds` have passed before, if a run is resumed."""
        ...

    def update(
        self,
        done: int,
        metrics: Mapping[str, float | None],
        note: str = "",
        *,
        ahead: float = 0.0,
        at_least: bool = False,
    ) -> None:
        """Show progress. What is `ahead` of `done` counts towards the time left, perhaps a lower bound."""
        ...


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def begin(self, done: int, *, seconds: float) -> None:
        pass

    def update(
        self,
        done: int,
        metrics: Mapping[str, float | None],
        note: str = "",
        *,
        ahead: float = 0.0,
        at_least: bool = False,
    ) -> None:
        pass


class Output(logging.Handler):
    """Where a run reports: to a person, or only to the log of the program that runs it.

    Within `with Output(shown=True)`, the messages of the logger `anybatch` are printed, above the panel if
    there is one. They do not reach the root logger meanwhile, which might print them a second time.
    """

    def __init__(self, *, shown: bool, stream: TextIO | None = None) -> None:
        super().__init__(logging.INFO)
        self.shown = shown
        self._stream = stream
        self._displays: list[Progress] = []
        self._before = (logging.NOTSET, True)

    def __enter__(self) -> Self:
        if self.shown:
            self._before = (LOGGER.level, LOGGER.propagate)
            LOGGER.addHandler(self)
            LOGGER.setLevel(logging.INFO)
            LOGGER.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown:
            LOGGER.removeHandler(self)
            LOGGER.level, LOGGER.propagate = self._before

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, as the base class requires."""
        message = record.getMessage()
        if self._displays:
            self._displays[-1].print_message(message)
            return
        from rich.console import Console

        from anybatch.runs.plan_text import wrapped

        console = Console(file=self._stream)
        with lost_output.tolerated():
            for line in message.splitlines():
                print(wrapped(line, console), file=self._stream)

    @contextlib.contextmanager
    def display(
        self, total: int, title: str, *, unit: str = "env steps", transient: bool = False
    ) -> Iterator[Display]:
        """The display of something that takes long."""
        if not self.shown:
            yield Quiet()
            return
        with Progress(total, title, self._stream, unit=unit, transient=transient) as display:
            self._displays.append(display)
            try:
                yield display
            finally:
                self._displays.remove(display)

    def show_plan(self, config: AnyConfig, plan: Plan) -> None:
        """Print the plan of a run that begins; a reader who is gone does not end it."""
        if self.shown:
            from anybatch.runs import plan_text

            # SystemExit is what rich raises then, after discarding further output.
            with lost_output.tolerated(), contextlib.suppress(SystemExit):
                plan_text.show(config, plan)


QUIET = Output(shown=False)


class Progress:
    """Shows env steps, speed, time left, results and batches. A call that draws nothing is nearly free."""

    def __init__(
        self,
        total: int,
        title: str,
        stream: TextIO | None = None,
        *,
        unit: str = "env steps",
        transient: bool = False,
    ) -> None:
        """`unit` is what is counted. A transient display leaves nothing behind except the printed lines."""
        self._total = total
        self._title = title
        self._unit = unit
        self._transient = transient
        self._note = ""
        self._stream = sys.stdout if stream is None else stream
        self._on_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._live: Live | None = None
        self._notebook: Any = None  # IPython's display handle
        self._every_seconds = PANEL_EVERY_SECONDS if self._on_terminal else LINE_EVERY_SECONDS
        self._next_draw = time.monotonic() + (0 if self._on_terminal else LINE_EVERY_SECONDS)
        self._began = time.monotonic()
        self._first: tuple[float, int] | None = None  # time and count of the first update
        self._done = 0
        self._ahead, self._at_least = 0.0, False
        self._speeds: deque[float] = deque(maxlen=AVERAGED_SPEEDS)
        self._latest: dict[str, float | None] = {}
        self._changed = False
        """Whether there are numbers that are not drawn yet."""
        self._reader_is_gone = False

    def __enter__(self) -> Self:
        if self._on_terminal:
            from rich.console import Console
            from rich.live import Live

            # No refresh thread: it would compete with the training loop, which draws often enough.
            self._live = Live(
                console=Console(file=self._stream), auto_refresh=False, transient=self._transient
            )
            self._live.start()
        elif _in_notebook():
            from IPython.display import display  # pyright: ignore[reportMissingImports, reportMissingModuleSource]

            self._notebook = display({"text/plain": self._title}, raw=True, display_id=True)
            self._every_seconds, self._next_draw = PANEL_EVERY_SECONDS, 0.0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._changed and not self._transient:
            self._draw()
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()

    def begin(self, done: int, *, seconds: float) -> None:
        self._done = done
        self._began -= seconds
        self._first = (time.monotonic(), done)
        if self._on_terminal:
            self._draw()

    def update(
        self,
        done: int,
        metrics: Mapping[str, float | None],
        note: str = "",
        *,
        ahead: float = 0.0,
        at_least: bool = False,
    ) -> None:
        """Store the latest numbers, and draw them if it is time to. Absent metrics keep their last value."""
        self._changed |= done != self._done or bool(metrics)
        self._done, self._note = done, note
        self._ahead, self._at_least = ahead, at_least
        self._latest.update(metrics)
        speed = metrics.get("charts/SPS")
        if speed:
            self._speeds.append(speed)
            self._latest["charts/SPS"] = harmonic_mean(self._speeds)
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)
        if now >= self._next_draw:
            self._next_draw = now + self._every_seconds
            self._draw()

    def print_message(self, sentence: str) -> None:
        """Print a sentence; on a terminal, above the panel."""
        if self._live is None:
            self._print(sentence)
        elif not self._reader_is_gone:
            with self._noticing_a_closed_terminal():
                self._live.console.print(sentence, markup=False, highlight=False)

    def _draw(self) -> None:
        self._changed = False
        if self._live is None:
            pairs = [*self._pace(), *self._known(RESULTS)]
            line = " · ".join([f"{self._steps()} ({self._share():.0%})", *map(" ".join, pairs)])
            if self._notebook is None:
                self._print(line)
            else:
                self._notebook.update({"text/plain": f"{self._title}: {line}"}, raw=True)
        elif not self._reader_is_gone:
            with self._noticing_a_closed_terminal():
                self._live.update(self._panel(self._live.console.width), refresh=True)

    @contextlib.contextmanager
    def _noticing_a_closed_terminal(self) -> Iterator[None]:
        try:
            yield
        except OSError:  # ends the display, not the training
            self._reader_is_gone = True

    def _print(self, line: str) -> None:
        if self._reader_is_gone:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            print(line.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)
        except OSError:  # `anybatch train | head` ends the lines, not the training
            self._reader_is_gone = True

    def _panel(self, columns: int) -> "Panel":
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = Table.grid(expand=True, padding=(0, 1))
        bar.add_column(ratio=1)
        bar.add_column(justify="right")
        bar.add_row(ProgressBar(total=self._total, completed=self._done), f"{self._share():.1%}")
        rows: list[Columns] = []
        for pairs in ([("", self._steps()), *self._pace()], self._known(RESULTS), self._known(BATCHES)):
            cells = [
                Text.assemble((f"{label} " if label else "", "dim"), (value, "bold"))
                for label, value in pairs
            ]
            rows.append(Columns(cells, padding=(0, 3)))
        width = min(
            columns - 2, PANEL_COLUMNS
        )  # trap: an echoed ^C must not wrap, or a line would be left behind
        return Panel(Group(bar, *rows), title=Text(self._title, "bold"), title_align="left", width=width)

    def _share(self) -> float:
        return min(1.0, self._done / self._total)

    def _steps(self) -> str:
        note = f", {self._note}" if self._note else ""
        return f"{self._done:,} of {self._total:,} {self._unit}{note}"

    def _pace(self) -> list[tuple[str, str]]:
        pairs = self._known(SPEED)
        done = self._done + self._ahead
        if self._first is not None and done > self._first[1]:
            seconds_per_step = (time.monotonic() - self._first[0]) / (done - self._first[1])
            left = timedelta(seconds=round(max(0, self._total - done) * seconds_per_step))
            pairs.append(("left", f"more than {left}" if self._at_least else str(left)))
        pairs.append(("elapsed", str(timedelta(seconds=round(time.monotonic() - self._began)))))
        return pairs

    def _known(self, metrics: tuple[Shown, ...]) -> list[tuple[str, str]]:
        kl = self._latest.get("losses/approx_kl")
        if kl is not None and abs(kl) < SMALLEST_KL:
            metrics = tuple(shown for shown in metrics if shown[1] not in OF_MOVING_POLICIES)
        pairs = ((label, self._latest.get(name), written) for label, name, written in metrics)
        return [(label, written(value)) for label, value, written in pairs if value is not None]


def _in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel. Does not import IPython: a kernel has done so."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
