import sys
from pathlib import Path
from types import ModuleType

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from anybatch.config import RecordConfig
from anybatch.runs.sinks import open_sinks

WANDB_ONLY = RecordConfig(tensorboard=False, wandb=True)
TRACKIO_ONLY = RecordConfig(tensorboard=False, trackio=True)


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    reader = EventAccumulator(str(folder))
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(name)]


def stand_in(name: str, monkeypatch: pytest.MonkeyPatch, **functions: object) -> None:
    """A package that fails, in the place of the real one, which test_trackers.py runs."""
    module = ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)


def test_tensorboard_reads_what_was_written_while_the_run_goes_on(tmp_path: Path):
    (sink,) = open_sinks(RecordConfig(), tmp_path, {})
    sink.write(128, {"charts/SPS": 5.0, "losses/entropy": 0.25})
    sink.write(256, {"charts/SPS": 7.0})
    assert scalars(tmp_path, "charts/SPS") == [(128, 5.0), (256, 7.0)]
    assert scalars(tmp_path, "losses/entropy") == [(128, 0.25)]
    sink.close()


def test_tensorboard_forgets_the_rows_that_a_resume_superseded(tmp_path: Path):
    (sink,) = open_sinks(RecordConfig(), tmp_path, {})
    for env_steps in (100, 200, 300):
        sink.write(env_steps, {"charts/SPS": 1.0})
    sink.close()
    (sink,) = open_sinks(RecordConfig(), tmp_path, {})
    sink.truncate_after(200)
    sink.write(250, {"charts/SPS": 2.0})
    sink.close()
    assert scalars(tmp_path, "charts/SPS") == [(100, 1.0), (200, 1.0), (250, 2.0)]


def test_no_sink_is_opened_that_was_not_asked_for(tmp_path: Path):
    assert open_sinks(RecordConfig(tensorboard=False), tmp_path, {}) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("record", "extra"), [(WANDB_ONLY, "wandb"), (TRACKIO_ONLY, "trackio")])
def test_a_missing_package_is_one_sentence_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: RecordConfig, extra: str, logged: list[str]
):
    monkeypatch.setitem(sys.modules, extra, None)  # as if it were not installed
    (sink,) = open_sinks(record, tmp_path, {})
    sink.write(1, {"charts/SPS": 1.0})
    sink.close()
    assert len(logged) == 1 and f"anybatch[{extra}]" in logged[0]


def test_a_tracker_that_fails_is_dropped_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
):
    attempts: list[int] = []

    def refuse(_metrics: dict[str, float], step: int) -> None:
        attempts.append(step)
        raise ConnectionError("the server is away")

    stand_in("trackio", monkeypatch, init=lambda **_: None, log=refuse, finish=lambda: attempts.append(-1))
    (sink,) = open_sinks(TRACKIO_ONLY, tmp_path, {})
    for env_steps in (1, 2, 3):
        sink.write(env_steps, {"charts/SPS": 1.0})
    sink.close()
    assert attempts == [1]
    assert len(logged) == 1 and "Trackio (ConnectionError: the server is away)" in logged[0]


def test_a_tracker_that_cannot_start_is_dropped_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
):
    def refuse(**_: object) -> None:
        raise RuntimeError("not logged in")

    stand_in("wandb", monkeypatch, init=refuse)
    (sink,) = open_sinks(WANDB_ONLY, tmp_path, {})
    sink.write(1, {"charts/SPS": 1.0})
    assert len(logged) == 1 and "not logged in" in logged[0]
