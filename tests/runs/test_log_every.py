"""A row of the log stands for several iterations: nothing of them is lost, and no run differs by it."""

from pathlib import Path
from typing import Any

import pytest

from anybatch import Iteration, training
from anybatch.config import PPOConfig, RecordConfig
from anybatch.errors import ConfigError
from anybatch.runs import log
from anybatch.runs.display import QUIET
from anybatch.runs.run import ENV_STEPS_PER_ROW, Run
from tests.support.toy_runs import changed, newest_state, resume, toy_config, toy_pqn_config, train

EVERY_THIRD = toy_config(
    env="toy:Match",
    proximal={"policy": "ewma"},
    update={"noise_scale_every": 1},
    record={"log_every": 3, "checkpoint_every_iterations": 2, "keep_checkpoints": 99},
    total_env_steps=210,
)
TIMES = ("wall_seconds", "charts/SPS", "time/")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith(TIMES)} for row in log.read(folder)
    ]


@pytest.mark.parametrize("config", [EVERY_THIRD, toy_pqn_config(total_env_steps=210)], ids=["ppo", "pqn"])
def test_every_third_row_is_a_row_of_the_run_that_logs_all(config: Any, tmp_path: Path):
    some = train(changed(config, record={"log_every": 3}), tmp_path / "some").folder
    every = train(changed(config, record={"log_every": 1}), tmp_path / "all").folder
    last = len(rows(every))
    assert [row["charts/iterations"] for row in rows(some)] == sorted({*range(3, last + 1, 3), last})
    by_iteration = {row["charts/iterations"]: row for row in rows(every)}
    for row in rows(some):
        same = by_iteration[row["charts/iterations"]]
        assert row["losses/skipped_steps"] == same["losses/skipped_steps"]
        losses = {name: value for name, value in same.items() if name.startswith(("losses/", "importance/"))}
        assert losses and losses.items() <= row.items()


def test_every_episode_is_in_a_row(tmp_path: Path):
    some = rows(train(EVERY_THIRD, tmp_path / "some").folder)
    every = rows(train(changed(EVERY_THIRD, record={"log_every": 1}), tmp_path / "all").folder)

    def total(found: list[dict[str, Any]], name: str) -> float:
        return sum(row["charts/episodes"] * row[name] for row in found if "charts/episodes" in row)

    for name in ("charts/episodes", "charts/episodic_return", "charts/episodic_length"):
        assert total([row | {name: row.get(name, 0)} for row in some], name) != 0
    count = sum(row.get("charts/episodes", 0) for row in every)
    assert sum(row.get("charts/episodes", 0) for row in some) == count > 0
    for name in ("charts/episodic_return", "charts/episodic_length"):
        assert total(some, name) == pytest.approx(total(every, name))


def test_the_run_itself_is_the_same_to_the_bit(tmp_path: Path):
    some = newest_state(train(EVERY_THIRD, tmp_path / "some").folder)
    every = newest_state(train(changed(EVERY_THIRD, record={"log_every": 1}), tmp_path / "all").folder)
    assert str(some["shared"]) == str(every["shared"])


def test_a_run_that_is_resumed_between_two_rows_writes_the_same_rows(tmp_path: Path):
    whole = train(EVERY_THIRD, tmp_path / "whole").folder
    stopped = train(EVERY_THIRD, tmp_path / "stopped").folder
    kept = sorted((stopped / "checkpoints").iterdir())
    for later in kept[2:]:  # after 0 and 2 iterations, of which none is in a row yet
        for file in later.iterdir():
            file.unlink()
        later.rmdir()
    resume(stopped, EVERY_THIRD)
    assert rows(stopped) == rows(whole)


def test_without_a_number_short_iterations_share_a_row(tmp_path: Path):
    config: PPOConfig = changed(EVERY_THIRD, record={"log_every": None}, total_env_steps=10_000)
    run = Run(tmp_path, RecordConfig(tensorboard=False))
    run.total_env_steps = 10**9
    logged = [
        number
        for number in range(1, 301)
        if run.begin_iteration(number, iteration_batch=21, env_steps=(number - 1) * 21)
    ]
    every = -(-ENV_STEPS_PER_ROW // 21)
    assert logged == list(range(every, 301, every))
    assert run.begin_iteration(1, iteration_batch=ENV_STEPS_PER_ROW, env_steps=0)
    run.total_env_steps = 100 * 42
    assert [run.begin_iteration(number, iteration_batch=21, env_steps=0) for number in (1, 2, 3)] == [
        False,
        True,
        False,
    ]
    run.log.close()
    assert config.record.log_every is None


def test_a_run_that_is_stopped_between_two_rows_and_resumed_writes_the_same_rows(tmp_path: Path):
    whole = train(EVERY_THIRD, tmp_path / "whole").folder

    def stop(seen: Iteration) -> None:
        if seen.env_steps > 25:  # the second
            seen.stop()

    training.train(EVERY_THIRD, preset="test", base=tmp_path, output=QUIET, name="stopped", on_iteration=stop)
    stopped = tmp_path / "stopped"
    assert not rows(stopped)
    resume(stopped, EVERY_THIRD)
    assert rows(stopped) == rows(whole)


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_below_one_is_refused(number: int):
    with pytest.raises(ConfigError, match=rf"^record.log-every = {number}: must be at least 1$"):
        RecordConfig(log_every=number)
