import io
import logging
import re
import subprocess
import sys

import pytest

from anybatch.runs import display as progress
from anybatch.runs.display import Output, Progress
from anybatch.runs.metrics import METRICS
from anybatch.text import number_text

ROW = {
    "charts/SPS": 12345.6,
    progress.RECENT_RETURN: 195.333,
    "charts/episodic_length": 201.0,
    "losses/approx_kl": 0.00813,
    "losses/clipfrac": 0.123,
    "batch/iteration": 1024.0,
    "batch/minibatch": 256.0,
    "batch/microbatch": 64.0,
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and how its text looks without colors and cursor moves."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue()).replace("\r", "\n").split("\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


class Clock:
    """The time that the display sees."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(progress, "time", stopped)
    return stopped


def test_a_quiet_run_speaks_to_the_log_only(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", logger="anybatch")
    with progress.QUIET as output, output.display(100, "title") as display:
        display.update(50, ROW)
        logging.getLogger("anybatch.runs").info("one")
    assert capsys.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records] == ["one"]


def test_a_run_that_is_shown_speaks_to_its_stream_and_to_nothing_else(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    stream, logger = io.StringIO(), logging.getLogger("anybatch.runs")
    with Output(shown=True, stream=stream) as output:
        logger.info("one")
        with output.display(100, "title") as display:
            logger.info("two")
            display.update(100, {})
        logger.warning("three")
    assert [line.partition(" ")[0] for line in stream.getvalue().splitlines()] == [
        "one",
        "two",
        "100",
        "three",
    ]
    assert capsys.readouterr() == ("", "") and not caplog.records
    logger.warning("four")
    assert "four" not in stream.getvalue() and [record.message for record in caplog.records] == ["four"]


def test_a_message_is_printed_above_the_panel(terminal: Terminal):
    with Output(shown=True, stream=terminal) as output, output.display(100, "CartPole-v1") as display:
        display.update(50, ROW)
        logging.getLogger("anybatch").info("rate = [bold]x[/bold]")
    lines = [line.rstrip() for line in terminal.lines()]
    assert lines.index("rate = [bold]x[/bold]") < max(n for n, line in enumerate(lines) if "SPS" in line)


def test_only_metrics_that_exist_are_shown():
    assert {name for _, name, _ in (*progress.RESULTS, *progress.BATCHES)} <= set(METRICS)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0123456, "0.01235"),
        (-21.4321, "-21.43"),
        (1234.4, "1,234"),
        (9999.7, "10,000"),
        (-98765.4, "-98,765"),
    ],
)
def test_returns_of_any_size_are_shown_without_an_exponent(value: float, shown: str):
    assert number_text(value, 4) == shown
    stream = io.StringIO()
    with Progress(100, "title", stream) as display:
        display.update(50, {progress.RECENT_RETURN: value})
    assert f"return (last 100) {shown}" in stream.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then_and_the_last(clock: Clock):
    stream = io.StringIO()
    with Progress(1_000_000, "CartPole-v1", stream) as shown:
        for env_steps in range(1000, 31_000, 1000):
            shown.update(env_steps, ROW)
            clock.now += progress.LINE_EVERY_SECONDS / 10
    lines = stream.getvalue().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["11,000", "21,000", "30,000"]
    assert lines[-1].startswith("30,000 of 1,000,000 env steps (3%) · SPS 12,346 · left ")
    assert lines[-1].endswith(
        "elapsed 0:00:30 · return (last 100) 195.3 · length 201 · KL 0.0081 · clipped 12%"
    )


def test_a_short_run_without_a_terminal_prints_its_last_line_once():
    stream = io.StringIO()
    with Progress(100, "CartPole-v1", stream) as shown:
        shown.update(50, {})
        shown.print_message("A sentence.")
        shown.update(100, {})
    assert stream.getvalue() == "A sentence.\n100 of 100 env steps (100%) · left 0:00:00 · elapsed 0:00:00\n"


def test_a_metric_that_is_absent_keeps_its_last_value_on_display():
    stream = io.StringIO()
    with Progress(100, "CartPole-v1", stream) as shown:
        shown.update(50, {progress.RECENT_RETURN: 9.5})
        shown.update(100, {"charts/SPS": 3.0})
    assert "return (last 100) 9.5" in stream.getvalue()


def test_the_last_note_is_gone_at_the_end():
    stream = io.StringIO()
    with Progress(100, "CartPole-v1", stream) as shown:
        shown._next_draw = 0.0
        shown.update(100, {}, "evaluating: 0 of 10 episodes")
        shown.update(100, ROW)
    noted, last = stream.getvalue().splitlines()
    assert "evaluating" in noted and "evaluating" not in last and "return" in last


def test_a_reader_that_left_ends_the_lines_and_not_the_run():
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with Progress(100, "CartPole-v1", Closed()) as shown:
        shown.print_message("A sentence.")
        shown.update(100, {})


def test_a_stream_of_plain_ascii_gets_a_mark_for_what_it_cannot_show():
    raw = io.BytesIO()
    with Progress(100, "CartPole-v1", io.TextIOWrapper(raw, encoding="ascii")) as shown:
        shown.print_message("8 × 128")
        assert raw.getvalue() == b"8 ? 128\n"


def test_the_panel_fits_a_narrow_terminal_and_shows_all_numbers(terminal: Terminal):
    with Progress(500_000_000, "CartPole-v1 · ppo-ewma · seed 1", terminal) as shown:
        shown.update(1_000, ROW)
        shown.update(250_000_000, ROW)
    lines = terminal.lines()
    assert max(map(len, lines)) <= 60
    text = "\n".join(lines)
    for part in (
        "250,000,000 of 500,000,000 env steps",
        "50.0%",
        "SPS 12,346",
        "return (last 100) 195.3",
        "KL 0.0081",
    ):
        assert part in text
    assert "iteration batch 1,024" in text and "minibatch 256" in text and "microbatch 64" in text


def test_sentences_are_printed_as_they_are_beside_the_panel(terminal: Terminal):
    with Progress(100, "CartPole-v1", terminal) as shown:
        shown.update(50, ROW)
        shown.print_message("rate = [bold]x[/bold]")
    assert "rate = [bold]x[/bold]" in [line.rstrip() for line in terminal.lines()]


def test_the_panel_is_drawn_at_most_four_times_a_second(terminal: Terminal, clock: Clock):
    with Progress(1000, "CartPole-v1", terminal) as shown:
        for env_steps in range(100):
            shown.update(env_steps, ROW)
            clock.now += 0.01
        drawn = terminal.getvalue().count("╭")
    assert drawn == 4


def test_slow_packages_are_imported_only_when_they_are_used():
    light = "display, log, sinks, folder, stop, timer, metrics"
    code = (
        f"import sys; from anybatch.config import serialization; from anybatch.runs import {light}; "
        "print(*sys.modules)"
    )
    imported = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "anybatch.runs.sinks" in imported
    assert not {"torch", "rich", "tensorboard", "numpy"} & set(imported)
