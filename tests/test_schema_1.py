"""Checkpoints of schema 1, in which a state was one flat dict, continue as if they had been saved now."""

from pathlib import Path
from typing import Any

import pytest
from phase_runs import phase_config, rows
from toy_runs import changed, differences, newest_state, resume, toy_config, toy_pqn_config, train

from anybatch import session
from anybatch.config import AnyConfig
from anybatch.runs import checkpoint
from anybatch.runs.checkpoint import Checkpoints
from anybatch.runs.state_tree import StateTree

BUSY: dict[str, Any] = {
    "total_env_steps": 150,
    "env_config": {"max_episode_steps": 5},
    "optimizer": {"learning_rate": 1e-2},
    "update": {"noise_scale_every": 3},
}
POLICY = BUSY | {"normalize": {"rewards": "iteration"}, "objective": {"advantage_decay": 0.5}}
RUNS: dict[str, AnyConfig] = {
    "ppo": toy_config(**BUSY),
    "stale ppo-ewma": toy_config(
        **POLICY | {"normalize": {"observations": True, "rewards": "step"}},
        proximal={"policy": "ewma"},
        staleness={"iterations": 2},
    ),
    "controlled pqn": toy_pqn_config(
        **BUSY,
        # A shorter run is the beginning of a longer one where neither exploration nor learning rate fall.
        exploration={"start": 0.1, "end": 0.1},
        controller={"kind": "divergence", "min_steps": 4, "max_steps": 14, "every": 1, "warmup": 1},
    ),
    "stale ppg": phase_config(**POLICY, staleness={"iterations": 1}, phase={"value_epochs": 2}),
}


def in_schema_1(tree: StateTree) -> StateTree:
    """A tree of today's as the first version saved it, written out from that version's `state_dict`s."""
    shared, own = tree["shared"], tree["own"]
    learner, source = shared["learner"], own["rank"]["source"]
    train: StateTree = {
        "env_steps": learner["env_steps"],
        "iterations": learner["iterations"],
        "env_steps_per_gradient_step": learner["control"]["env_steps_per_gradient_step"],
        "network": learner["network"],
        "steps": learner["steps"],
        "collector": source["collector"],
        "controller": learner["control"]["controller"],
        "minibatch_generator": own["rank"]["minibatch_generator"],
    }
    if "ewma" in shared:
        rewards = shared["reward_normalizer"]
        train |= {
            "ewma": shared["ewma"],
            "observation_normalizer": shared["observation_normalizer"],
            "reward_normalizer": None
            if rewards is None
            else {"running_return": own["running_return"], **rewards},
            "advantage_normalizer": shared["advantage_normalizer"],
            "queue": {"waiting": [[iteration, taken] for iteration, taken, _ in source["waiting"]]},
        }
    if "phase" in shared:
        train |= shared["phase"] | {"phase_iterations": own["phase_iterations"]}
    return {"train": train, "recent_returns": tree["recent_returns"]}


def save_in_schema_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the newest checkpoint of a run by one of the first version."""
    loaded = Checkpoints(folder, keep=1).load_latest(pytest.fail)
    assert loaded is not None
    monkeypatch.setattr(checkpoint, "SCHEMA", 1)
    Checkpoints(folder, keep=1).save(loaded.env_steps, in_schema_1(loaded.tree), loaded.segments)
    monkeypatch.undo()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_schema_1_ends_as_if_it_were_one_of_today(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = RUNS[name]
    whole = train(config, tmp_path / "whole").folder
    part = train(changed(config, total_env_steps=70), tmp_path / "part").folder
    save_in_schema_1(part, monkeypatch)
    assert newest_state(part).keys() == {"train", "recent_returns"}
    resume(part, config)
    assert not differences(newest_state(whole), newest_state(part))
    assert rows(whole) == rows(part)


def test_a_policy_of_schema_1_is_evaluated_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = RUNS["stale ppo-ewma"]
    outcome = train(config, tmp_path)
    save_in_schema_1(outcome.folder, monkeypatch)
    assert session.evaluate_run(outcome.folder, config) == (outcome.evaluation, outcome.env_steps)
