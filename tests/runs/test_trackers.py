"""Runs that are tracked by the packages themselves, without a network: each row of metrics arrives."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import wandb_file
from tensorboard import context
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

from anybatch.config.serialization import config_to_dict
from anybatch.runs.record import RunRecord
from anybatch.runs.sinks import flat_settings

TRAIN = (
    "train --env toy:Match --num-envs 4 --num-steps 8 --total-env-steps 100 --network.hidden-sizes 8 "
    "--evaluation.num-envs 2 --record.log-every 1 --name tracked"
)
READ_TRACKIO = """
import json
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage
(run,) = Api().runs("anybatch")
rows = SQLiteStorage.get_logs("anybatch", run.name)
print(json.dumps({"name": run.name, "config": run.config, "rows": rows}))
"""


def python(tmp_path: Path, *words: str) -> str:
    """A process of its own that cannot reach a tracker's server, and keeps everything in `tmp_path`."""
    own = {"HOME": tmp_path, "TRACKIO_DIR": tmp_path / "trackio", "WANDB_CACHE_DIR": tmp_path / "wandb"}
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
        # Native code that was compiled before is used again.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        **{name: str(path) for name, path in own.items()},
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert "Nothing more is sent" not in done.stdout + done.stderr, done.stderr
    return done.stdout


def train_and_resume(tmp_path: Path, flag: str) -> RunRecord:
    python(tmp_path, "-m", "anybatch", *TRAIN.split(), flag)
    python(tmp_path, "-m", "anybatch", "resume", "runs/tracked", "--total-env-steps", "200")
    return RunRecord(tmp_path / "runs" / "tracked")


def known(row: dict[str, Any]) -> dict[str, float]:
    """The metrics of a row that trackers get."""
    return {
        name: value
        for name, value in row.items()
        if value is not None and name not in ("env_steps", "wall_seconds")
    }


def test_trackio_has_the_config_and_every_row_of_a_run_and_its_resume(tmp_path: Path):
    record = train_and_resume(tmp_path, "--record.trackio")
    kept = json.loads(python(tmp_path, "-c", READ_TRACKIO).splitlines()[-1])
    assert kept["name"] == "tracked" and kept["config"]["env"] == "toy:Match"
    assert kept["config"]["optimizer"]["learning_rate"] == record.config.optimizer.learning_rate
    rows = {row["step"]: row for row in kept["rows"]}
    assert len(kept["rows"]) == len(record.rows) > 3
    for row in record.rows:
        there = {name: rows[row["env_steps"]][name] for name in known(row)}
        assert there == pytest.approx(known(row))


def test_wandb_has_the_config_and_every_row_of_a_run_and_its_resume(tmp_path: Path):
    record = train_and_resume(tmp_path, "--record.wandb")
    paths = sorted(record.folder.glob("wandb/offline-run-*/run-tracked.wandb"))
    assert len(paths) == 2  # the training and its resume, which `wandb sync` puts into one page
    rows: dict[int, dict[str, Any]] = {}
    for path in paths:
        kept = list(wandb_file.records(path))
        (run,) = [entry.run for entry in kept if entry.HasField("run")]
        assert run.project == "anybatch" and run.run_id == "tracked"
        assert wandb_file.as_dict(run.config.update)["env"] == "toy:Match"
        assert any(entry.metric.step_metric == "env_steps" for entry in kept if entry.HasField("metric"))
        history = [wandb_file.as_dict(entry.history.item) for entry in kept if entry.HasField("history")]
        rows |= {int(row["env_steps"]): row for row in history}
    assert len(rows) == len(record.rows) > 3
    for row in record.rows:
        there = {name: rows[row["env_steps"]][name] for name in known(row)}
        assert there == pytest.approx(known(row))


def test_tensorboard_compares_runs_by_their_settings(tmp_path: Path):
    for name, rate in (("a", "0.001"), ("b", "0.002")):
        python(tmp_path, "-m", "anybatch", *TRAIN.split()[:-1], name, "--optimizer.learning-rate", rate)
    events = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "runs"))
    events.Reload()
    provider = MultiplexerDataProvider(events, str(tmp_path / "runs"))
    plugin = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    pages: Any = api_pb2
    asked = pages.ListSessionGroupsRequest(start_index=0, slice_size=10, allowed_statuses=[0, 1, 2, 3])
    groups = list_session_groups.Handler(context.RequestContext(), plugin, "", asked).run().session_groups
    shown = {group.name: {name: value for name, value in group.hparams.items()} for group in groups}  # noqa: C416
    rates = {name: settings["optimizer.learning_rate"].number_value for name, settings in shown.items()}
    assert rates == {"a": 0.001, "b": 0.002}
    assert shown["a"]["env"].string_value == "toy:Match"
    assert shown["a"]["record.tensorboard"].bool_value is True
    record = RunRecord(tmp_path / "runs" / "a")
    assert set(shown["a"]) == set(flat_settings(config_to_dict(record.config)))
    last = {value.name.tag: value.value for value in groups[0].metric_values}
    assert last["losses/entropy"] == pytest.approx(record.rows[-1]["losses/entropy"], rel=1e-6)
