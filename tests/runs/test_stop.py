import io
import os
import signal
import subprocess
import sys
import threading

import pytest

from anybatch.runs.display import Output
from anybatch.runs.stop import GracefulStop, Stopped, stopping_at_once


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_for_a_stop_and_says_so_once(number: signal.Signals, logged: list[str]):
    with GracefulStop() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
    assert len(logged) == 1 and "press Ctrl-C" in logged[0] and "send the signal again" in logged[0]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_after_a_first_signal_stops_at_once(first: signal.Signals):
    with pytest.raises(KeyboardInterrupt), GracefulStop():
        os.kill(os.getpid(), first)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_sigterm_after_a_first_signal_ends_the_process_whatever_it_is_doing(first: signal.Signals):
    with GracefulStop():
        os.kill(os.getpid(), first)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


HANGS_IN_NATIVE_CODE = """
import ctypes, signal
from collections import deque
from itertools import repeat
from anybatch.runs.stop import GracefulStop, stopping_at_once

send = ctypes.CDLL(None)["raise"]
with GracefulStop():
    for _ in range(EVALUATIONS):
        with stopping_at_once():
            pass
    deque(map(send, repeat(signal.SIGTERM, 2)), maxlen=0)  # no bytecode runs between the two
"""


@pytest.mark.parametrize("evaluations", [0, 1, 2])
def test_a_second_signal_ends_a_process_that_hangs_in_native_code(evaluations: int):
    """Also after evaluations during training, which stop at once."""
    code = HANGS_IN_NATIVE_CODE.replace("EVALUATIONS", str(evaluations))
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=200)
    assert ended.returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_stops_at_once_raises_at_the_first_signal(number: signal.Signals):
    with pytest.raises(Stopped) as stopped, stopping_at_once():
        os.kill(os.getpid(), number)
    assert stopped.value.signal == number


def test_a_signal_that_is_ignored_stays_ignored():
    """As `nohup` and the background jobs of a shell ask for."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with GracefulStop() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop.requested
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handlers_that_were_there_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ZeroDivisionError), GracefulStop():
        assert signal.getsignal(signal.SIGTERM) not in before
        _ = 1 / 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_stream_that_cannot_be_re_entered_does_not_undo_the_stop():
    class Busy(io.StringIO):
        def write(self, _: str) -> int:
            raise RuntimeError("reentrant call")

    with Output(shown=True, stream=Busy()), GracefulStop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.requested


def test_it_is_inert_outside_the_main_thread():
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def train() -> None:
        with GracefulStop() as stop:
            seen.extend([stop.requested, signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [False, before]
