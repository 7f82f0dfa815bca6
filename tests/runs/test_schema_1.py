"""Run folders of schema 1, whose states were one flat dict, go on as if nothing had changed.

Those in `schema_1/` are of commit 69034ba: what it saved and, in `continued.jsonl`, the rows that it wrote
from there to the end of the run. PPO was saved with data that wait, PPG within an auxiliary phase, PQN while
its controller was changing the batch.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from phase_runs import rows
from toy_runs import evaluate, newest_state, resume

from anybatch.algorithms.state import Learner
from anybatch.runs.record import RunRecord

KEPT = Path(__file__).parent / "schema_1"
# Shows how fast it went and when, which is not the seed's doing.
WALL_CLOCK = ("wall_seconds", "charts/SPS", "time/")


def kept(name: str, base: Path) -> Path:
    """A copy of a kept folder."""
    return shutil.copytree(KEPT / name, base / name)


def continued(folder: Path) -> list[dict[str, Any]]:
    written = [json.loads(line) for line in (folder / "continued.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in row.items() if not name.startswith(WALL_CLOCK)} for row in written
    ]


def mean_return(shown: list[dict[str, Any]]) -> float:
    """The mean over all episodes of a run, of which the last 100 count."""
    episodes = [
        (row["charts/episodes"], row["charts/episodic_return"]) for row in shown if "charts/episodes" in row
    ]
    number = sum(count for count, _ in episodes)
    assert number <= 100
    return sum(count * mean for count, mean in episodes) / number


@pytest.mark.parametrize("name", ["ppg", "pqn"])
def test_a_run_continues_as_the_version_that_saved_it_would_have(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = kept(name, tmp_path)
    assert newest_state(folder).keys() >= {"train"}  # of schema 1
    before, expected = rows(folder), continued(folder)
    outcome = resume(folder, RunRecord(folder).config)
    assert "cannot be restored" not in capsys.readouterr().out
    shown = rows(folder)
    assert shown[: len(before)] == before
    after = shown[len(before) :]
    assert len(after) == len(expected) >= 3
    for row, old in zip(after, expected, strict=True):
        for metric, value in old.items():
            # Rounding differs from machine to machine; what was not finite is null.
            about = value if value is None else pytest.approx(value, rel=1e-3, abs=1e-5)
            assert row[metric] == about, (row["env_steps"], metric)
    assert outcome.training_return == pytest.approx(mean_return(before + expected), rel=1e-3, abs=1e-5)


# What that version counted when it was collected, and this one when it is trained on.
COUNTED = ("env_steps", "charts/episodes", "charts/episodic_return", "charts/episodic_length")
RATE = "charts/learning_rate"


def test_data_that_waited_and_had_been_counted_are_trained_on_and_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = kept("ppo", tmp_path)
    assert newest_state(folder).keys() >= {"train"}  # of schema 1
    before, expected = rows(folder), continued(folder)
    config = RunRecord(folder).config
    waiting = config.staleness.iterations
    annealed: list[float] = []
    own_rate = Learner.learning_rate.fget
    assert waiting == 2 and len(expected) == 3 and own_rate is not None

    def recorded_rate(learner: Learner) -> float:
        """That of the version before, which annealed by what was collected, for as long as it is known."""
        done = learner.iterations - before[-1]["charts/iterations"]
        if done == len(annealed):
            annealed.append(own_rate(learner))
        return expected[done][RATE] if done < len(expected) else annealed[done]

    monkeypatch.setattr(Learner, "learning_rate", property(recorded_rate))
    outcome = resume(folder, config)
    assert "cannot be restored" not in capsys.readouterr().out
    shown = rows(folder)
    assert shown[: len(before)] == before
    after = shown[len(before) :]
    assert len(after) == len(expected) + waiting
    for row, old in zip(after[: len(expected)], expected, strict=True):
        for metric, value in old.items():
            about = value if value is None else pytest.approx(value, rel=1e-3, abs=1e-5)
            assert metric in COUNTED or row[metric] == about, (row["charts/iterations"], metric)
    for row in after[:waiting]:
        assert row["env_steps"] == before[-1]["env_steps"] and row.get("charts/episodes") is None
    for row, old in zip(after[waiting:], expected, strict=True):
        assert [row[name] for name in COUNTED] == pytest.approx([old[name] for name in COUNTED], rel=1e-3)
    # Its own rate follows what has been counted.
    steps = [row["env_steps"] for row in [before[-1], *after[:-1]]]
    full, total = config.optimizer.learning_rate, config.total_env_steps
    assert annealed == pytest.approx([full * (1 - done / total) for done in steps], rel=1e-9)
    assert outcome.training_return == pytest.approx(mean_return(before + expected), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(("name", "env_steps"), [("ppo", 130), ("ppg", 101), ("pqn", 90)])
def test_a_run_can_be_evaluated(name: str, env_steps: int, tmp_path: Path):
    folder = kept(name, tmp_path)
    result, trained_for = evaluate(folder, RunRecord(folder).config)
    assert trained_for == env_steps and len(result.episodes) == 2
