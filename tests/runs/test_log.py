import json
import math
import resource
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from anybatch.errors import DiskError, UserError
from anybatch.runs import log
from anybatch.runs import metrics as metric_names
from anybatch.runs.log import MetricLog


class RecordingSink:
    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def write(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        self.calls.append((env_steps, dict(metrics)))

    def truncate_after(self, env_steps: int) -> None:
        self.calls.append(("truncate", env_steps))

    def close(self) -> None:
        self.calls.append(("close",))


def test_a_row_is_one_json_line_with_the_metrics_after_the_clock(tmp_path: Path):
    with MetricLog(tmp_path) as metrics:
        metrics.write(1024, {"charts/SPS": np.float32(0.5), "charts/iterations": 3})
        text = (tmp_path / "metrics.jsonl").read_text()  # readable while the log is still open
    assert text.endswith("\n") and text.count("\n") == 1
    row = json.loads(text)
    assert list(row) == ["env_steps", "wall_seconds", "charts/SPS", "charts/iterations"]
    assert (row["env_steps"], row["charts/SPS"], row["charts/iterations"]) == (1024, 0.5, 3)
    assert 'charts/iterations": 3}' in text  # a count stays a whole number


def test_what_is_not_finite_is_null_and_what_is_absent_stays_absent(tmp_path: Path):
    sink = RecordingSink()
    not_numbers = {"losses/entropy": math.nan, "losses/value_loss": -math.inf, "batch/noise_scale": None}
    with MetricLog(tmp_path, [sink]) as metrics:
        metrics.write(7, {**not_numbers, "charts/SPS": 2.0})
    (row,) = log.read(tmp_path)
    assert [row[name] for name in not_numbers] == [None] * 3
    assert "losses/policy_loss" not in row
    assert sink.calls == [(7, {"charts/SPS": 2.0}), ("close",)]


def test_an_unknown_name_raises_and_writes_nothing(tmp_path: Path):
    with (
        MetricLog(tmp_path) as metrics,
        pytest.raises(KeyError, match=r"losses/approx_kk.*did you mean losses/approx_kl"),
    ):
        metrics.write(1, {"losses/approx_kk": 0.1})
    assert log.read(tmp_path) == []


def test_a_damaged_row_is_named_when_read_and_put_aside_by_a_resume(tmp_path: Path):
    write_rows(tmp_path, 1, 2, 3)
    path = tmp_path / log.METRICS_FILE
    first, _, last = path.read_text().splitlines()
    path.write_text(f"{first}\n{{'env_steps\n{last}\n")
    with pytest.raises(UserError, match=r"^line 2 of .*metrics.jsonl is damaged"):
        log.read(tmp_path)
    with MetricLog(tmp_path) as metrics:
        metrics.truncate_after(3)
    assert [row["env_steps"] for row in log.read(tmp_path)] == [1, 3]
    assert (tmp_path / log.SUPERSEDED_FILE).read_text() == "{'env_steps\n"


@pytest.mark.parametrize(
    "line",
    [
        '{"env_steps": "2", "wall_seconds": 1.0}',
        '{"env_steps": 2, "wall_seconds": null}',
        '{"env_steps": 2}',
        '{"env_steps": 2, "wall_seconds": 1.0, "charts/SPS": "fast"}',
        '{"env_steps": 2, "wall_seconds": 1.0, "charts/SPS": [1.0]}',
        '{"env_steps": 2, "wall_seconds": 1.0, "charts/SPS": true}',
        '{"env_steps": 2, "wall_seconds": 1.0, "charts/SPS": NaN}',
        '{"env_steps": 2, "wall_seconds": 1.0, "charts/SPS": 1' + "0" * 400 + "}",
        "[" * 100_000 + "]" * 100_000,
        "[]",
        "2",
    ],
)
@pytest.mark.parametrize("place", [1, 2])
def test_a_row_with_wrong_types_is_a_damaged_row(line: str, place: int, tmp_path: Path):
    write_rows(tmp_path, 1, 3)
    path = tmp_path / log.METRICS_FILE
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{row}\n" for row in (*lines[:place], line, *lines[place:])))
    with pytest.raises(UserError, match=rf"^line {place + 1} of .*metrics.jsonl is damaged"):
        log.read(tmp_path)
    with MetricLog(tmp_path) as metrics:
        metrics.truncate_after(3)
        metrics.write(4, {"charts/SPS": 1.0})
    assert [row["env_steps"] for row in log.read(tmp_path)] == [1, 3, 4]


def test_every_metric_has_a_meaning_of_one_sentence():
    metric_names.check(metric_names.METRICS)
    for name, meaning in metric_names.METRICS.items():
        assert name.count("/") == 1 and meaning.endswith(".") and len(meaning) > 20, name


def write_rows(folder: Path, *rows_at: int) -> None:
    with MetricLog(folder) as metrics:
        for env_steps in rows_at:
            metrics.write(env_steps, {"charts/SPS": float(env_steps)})


def steps_of(lines: list[str]) -> list[int]:
    return [json.loads(line)["env_steps"] for line in lines]


def test_rows_beyond_the_checkpoint_are_moved_aside_and_none_is_lost(tmp_path: Path):
    sink = RecordingSink()
    write_rows(tmp_path, 100, 200, 300, 400)
    with MetricLog(tmp_path, [sink]) as metrics:
        metrics.truncate_after(200)
        metrics.write(250, {"charts/SPS": 1.0})
    assert [row["env_steps"] for row in log.read(tmp_path)] == [100, 200, 250]
    with MetricLog(tmp_path, [sink]) as metrics:
        metrics.truncate_after(100)
    assert [row["env_steps"] for row in log.read(tmp_path)] == [100]
    superseded = (tmp_path / "metrics-superseded.jsonl").read_text().splitlines()
    assert steps_of(superseded) == [300, 400, 200, 250]
    assert sink.calls == [
        ("truncate", 200),
        (250, {"charts/SPS": 1.0}),
        ("close",),
        ("truncate", 100),
        ("close",),
    ]


def test_a_line_cut_by_a_kill_is_dropped(tmp_path: Path):
    write_rows(tmp_path, 100)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 200, "wall_sec')
    assert [row["env_steps"] for row in log.read(tmp_path)] == [100]
    write_rows(tmp_path, 300)
    assert [row["env_steps"] for row in log.read(tmp_path)] == [100, 300]


def test_the_clock_goes_on_after_a_resume(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"env_steps": 100, "wall_seconds": 50.0}\n{"env_steps": 200, "wall_seconds": 90.0}\n'
    )
    with MetricLog(tmp_path) as metrics:
        metrics.truncate_after(100)
        metrics.write(150, {})
    assert 50.0 <= log.read(tmp_path)[-1]["wall_seconds"] < 60.0


def test_nothing_logged_reads_as_nothing(tmp_path: Path):
    assert log.read(tmp_path) == []


def test_a_full_disk_is_a_disk_error_and_leaves_whole_lines(tmp_path: Path):
    write_rows(tmp_path, 1)
    size = (tmp_path / "metrics.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricLog(tmp_path) as metrics:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # room for a part of the next line
        try:
            with pytest.raises(DiskError, match=r"metrics\.jsonl could not be written"):
                metrics.write(2, {"charts/SPS": 2.0})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (tmp_path / "metrics.jsonl").stat().st_size == size
        metrics.write(3, {"charts/SPS": 3.0})
    assert [row["env_steps"] for row in log.read(tmp_path)] == [1, 3]
