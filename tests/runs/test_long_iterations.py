"""Iterations that take long show progress, and do not keep a process from ending."""

import io
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_commands import Command, Commands
from slow_networks import SECONDS_FILE
from toy_runs import differences, newest_state

from anybatch import presets
from anybatch.runs import log, pace
from anybatch.runs.display import Progress
from anybatch.runs.pace import Pace
from anybatch.runs.stop import GracefulStop, Stopped

FACTORY = "--network.factory=slow_networks:Slow"
TRAIN = [
    "train",
    "--preset=cartpole-ppo-ewma",
    "--env=toy:Match",
    FACTORY,
    "--num-envs=4",
    "--num-steps=100",
    "--record.log-every=1",
    "--total-env-steps=4000",
    "--evaluation.num-envs=1",
    "--record.checkpoint-every-iterations=1",
    "--record.no-tensorboard",
]
SLOW, FAST = "0.3", "0.001"


def wait_for(command: Command, happened: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert command.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def seconds_file(tmp_path: Path) -> Path:
    """What makes every pass of the network slow or fast; replaced at once, since it is read meanwhile."""
    file = tmp_path / "seconds"
    file.write_text(FAST)
    return file


def set_speed(file: Path, seconds: str) -> None:
    aside = file.with_suffix(".new")
    aside.write_text(seconds)
    aside.replace(file)


def rows(runs: Path) -> int:
    return sum(len(log.read(folder)) for folder in runs.glob("*"))


def test_sigterm_ends_a_long_iteration_and_a_resume_equals_the_undisturbed_run(
    commands: Commands, tmp_path: Path, seconds_file: Path
):
    def run(*words: str) -> Command:
        return commands.start([*words], **{SECONDS_FILE: str(seconds_file)})

    runs, undisturbed = tmp_path / "runs", tmp_path / "undisturbed"
    with run(*TRAIN, f"--run-dir={runs}", "--name=run") as command:
        wait_for(command, lambda: rows(runs) >= 2, 120)
        set_speed(seconds_file, SLOW)
        time.sleep(1)
        command.send_signal(signal.SIGTERM)
        assert command.wait(10) == 128 + signal.SIGTERM
    assert "Continue with: anybatch resume" in command.said()[1]
    saved = newest_state(runs / "run")["shared"]["learner"]
    assert saved["iterations"] == rows(runs) and saved["env_steps"] < 4000
    set_speed(seconds_file, FAST)
    with run("resume", str(runs / "run"), FACTORY) as command:
        assert command.wait(200) == 0, command.said()
    with run(*TRAIN, f"--run-dir={undisturbed}", "--name=run") as command:
        assert command.wait(200) == 0, command.said()
    assert differences(newest_state(undisturbed / "run"), newest_state(runs / "run")) == []


def test_the_first_iteration_shows_progress_and_ctrl_c_says_how_long_it_takes(
    commands: Commands, tmp_path: Path, seconds_file: Path
):
    runs = tmp_path / "runs"
    set_speed(seconds_file, SLOW)
    with commands.start([*TRAIN, f"--run-dir={runs}"], **{SECONDS_FILE: str(seconds_file)}) as command:
        wait_for(command, lambda: "env steps, collecting " in command.said()[0], 60)
        assert rows(runs) == 0 and "left more than" in command.said()[0]
        command.send_signal(signal.SIGINT)
        wait_for(command, lambda: "Stopping after this iteration, in more than" in command.said()[0], 2)
        assert "since then are lost" in command.said()[0]
        command.send_signal(signal.SIGINT)
        assert command.wait(10) == 128 + signal.SIGINT
    (folder,) = runs.iterdir()
    assert newest_state(folder)["shared"]["learner"]["iterations"] == 0
    assert f"Continue with: anybatch resume {folder}" in command.said()[1]


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(pace, "time", stopped)
    return stopped


def test_the_time_left_follows_the_iteration(clock: Clock):
    notes: list[str] = []
    here = Pace(GracefulStop(), lambda: notes.append(here.note))
    for _ in range(2):
        here.begin_iteration(samples=1000, gradient_steps=8)
        for steps in range(1, 11):
            clock.now += 1
            here.collected(steps, 10)
            if steps == 4:
                # In the first iteration nothing is known about gradient steps, later it is.
                assert here.left() == ((6, True) if not here.last_seconds else (22, False))
                assert here.samples_collected == 400
        here.begin_learning()
        for step in range(1, 9):
            clock.now += 2
            here.stepped()
            assert here.left() == (2 * (8 - step), False)
        assert here.samples_ahead == 1000
        here.end_iteration()
        assert here.last_seconds == 26 and here.left().seconds == here.samples_ahead == 0
    assert notes[:2] == ["collecting 1/10", "collecting 2/10"] and notes[-1] == "step 8/8"


def test_short_iterations_show_nothing_inside(clock: Clock):
    notes: list[str] = []
    here = Pace(GracefulStop(), lambda: notes.append(here.note))
    for _ in range(100):
        here.begin_iteration(samples=1000, gradient_steps=8)
        for steps in range(1, 11):
            clock.now += 0.04
            here.collected(steps, 10)
        here.end_iteration()
    assert not notes


@pytest.mark.parametrize(("steps_left", "ends_at_once"), [(3, False), (30, True)])
def test_sigterm_lets_an_iteration_end_that_is_nearly_done(
    steps_left: int, ends_at_once: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("anybatch.runs.stop.time", clock)
    stop = GracefulStop()
    here = Pace(stop, lambda: None)
    here.begin_iteration(samples=1000, gradient_steps=10 + steps_left)
    here.begin_learning()
    clock.now += 10
    here.stepped(10)
    stop.take_over(signal.SIGTERM)
    clock.now += 1
    if ends_at_once:
        with pytest.raises(Stopped) as stopped:
            here.stepped()
        assert stopped.value.signal == signal.SIGTERM
    else:
        here.stepped()
        clock.now += pace.ENDING_SECONDS
        with pytest.raises(Stopped):  # it took longer than it was expected to
            here.check()


def test_ctrl_c_and_ranks_let_the_iteration_end_however_long_it_takes(clock: Clock):
    for number, alone in ((signal.SIGINT, True), (signal.SIGTERM, False)):
        stop = GracefulStop()
        here = Pace(stop, lambda: None, can_be_interrupted=alone)
        here.begin_iteration(samples=1000, gradient_steps=1000)
        here.begin_learning()
        stop.take_over(number)
        clock.now += 100
        here.stepped()


def test_what_is_ahead_counts_towards_the_time_left_only():
    stream = io.StringIO()
    with Progress(1000, "CartPole-v1", stream) as shown:
        shown.begin(500, seconds=3600)
        shown._first, shown._next_draw = (time.monotonic() - 10, 500), 0.0
        shown.update(500, {}, "collecting 1/4", ahead=50, at_least=True)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("500 of 1,000 env steps, collecting 1/4 (50%) · left more than 0:01:30")
    assert "elapsed 1:00:00" in line


def test_the_speed_is_that_of_the_last_iterations_together():
    stream = io.StringIO()
    with Progress(1000, "CartPole-v1", stream) as shown:
        for speed in (1000, 3000):
            shown.update(100, {"charts/SPS": speed})
    assert "SPS 1,500" in stream.getvalue()


def test_a_policy_that_no_longer_moves_has_no_kl_on_display():
    stream = io.StringIO()
    with Progress(100, "CartPole-v1", stream) as shown:
        shown.update(100, {"losses/approx_kl": 1.2e-9, "losses/clipfrac": 0.0, "charts/SPS": 5.0})
    assert "KL" not in stream.getvalue() and "clipped" not in stream.getvalue()


def test_the_small_network_is_suggested_for_procgen_unless_it_is_used():
    large, small = (presets.load(name).config for name in ("procgen-ppg", "procgen-small-ppg"))
    assert presets.for_few_cores(large) == "procgen-small-ppg-ewma"
    assert presets.for_few_cores(small) is None
    assert presets.for_few_cores(presets.load("atari-ppo").config) is None


def test_nothing_is_shown_before_there_is_something_to_tell(monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []
    one = Pace(GracefulStop(), lambda: shown.append(one.note))
    now = time.monotonic()
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    one.begin_iteration(samples=40, gradient_steps=3)
    now += 10
    one.check()
    assert shown == []
    now += 10
    one.collected(1, 4)
    assert shown == ["collecting 1/4"]
    now += pace.EVERY_SECONDS / 2
    one.collected(2, 4)
    assert len(shown) == 1, "it is shown a few times per second"
    now += pace.EVERY_SECONDS
    one.collected(3, 4)
    assert shown[1:] == ["collecting 3/4"]
