"""Runs that collect while they learn, and the same runs with a queue in one process."""

from pathlib import Path
from typing import Any

from phase_runs import rows
from toy_runs import changed, differences, newest_state, toy_config, toy_pqn_config, train

from anybatch.config import AnyConfig

BUSY: dict[str, Any] = {
    "env_config": {"max_episode_steps": 5},
    "optimizer": {"learning_rate": 1e-2, "anneal": "linear"},
    "update": {"noise_scale_every": 3},
}
"""Episodes that end within rollouts, and numbers that depend on what was counted."""


def ewma_config(**changes: Any) -> AnyConfig:
    config = toy_config(
        num_envs=16,
        proximal={"policy": "ewma"},
        normalize={"rewards": "iteration"},
        total_env_steps=500,
        **BUSY,
    )
    return changed(config, **changes)


def cartpole_config(**changes: Any) -> AnyConfig:
    """The native engine with native networks, wide enough for every kernel: 20 and 16 envs for two actors."""
    config = toy_config(
        env="native:CartPole-v1",
        num_envs=36,
        num_steps=5,
        proximal={"policy": "ewma"},
        total_env_steps=1_200,
        native="on",
        network={"hidden_sizes": [64]},
        optimizer={"learning_rate": 1e-2},
    )
    return changed(config, **changes)


def pqn_config(**changes: Any) -> AnyConfig:
    config = toy_pqn_config(env="toy:Corridor", num_envs=32, num_steps=4, total_env_steps=700, **BUSY)
    return changed(config, **changes)


def without_actors(config: AnyConfig) -> AnyConfig:
    """The same run with a queue in one process."""
    return changed(config.completed(), overlap=False, actors=None)


def measured(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run, but for those of its actors."""
    return [{name: row[name] for name in row if not name.startswith("actors/")} for row in rows(folder)]


def assert_equal_runs(there: Path, here: Path) -> None:
    """Metrics, weights, everything that is saved: the same to the bit."""
    assert measured(there) == measured(here)
    assert not differences(newest_state(there), newest_state(here))


def assert_equals_the_queue(config: AnyConfig, base: Path) -> None:
    queue = train(without_actors(config), base / "queue").folder
    actors = train(config, base / "actors").folder
    assert_equal_runs(queue, actors)
    assert len(rows(queue)) > 3 and {row["staleness/iterations"] for row in rows(queue)} == {config.lag}
    assert all(0 <= row[name] <= 1 for row in rows(actors) for name in ("actors/idle", "actors/learner_idle"))
