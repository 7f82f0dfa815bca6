"""Upgrade of checkpoints of schema 1, whose states were one flat dict."""

from typing import Any

from anybatch.runs.state_tree import StateTree

_POLICY_PARTS = ("ewma", "observation_normalizer", "advantage_normalizer")
_PHASE_PARTS = ("phases", "auxiliary_steps", "value_steps", "progress", "auxiliary_metrics")


def upgraded(tree: StateTree) -> StateTree:
    """The tree of a schema 1 checkpoint in schema 2."""
    train: dict[str, Any] = tree["train"]
    learner = {name: train[name] for name in ("env_steps", "iterations", "network", "steps")}
    learner["control"] = {name: train[name] for name in ("controller", "env_steps_per_gradient_step")}
    shared: dict[str, Any] = {"learner": learner}
    waiting = train["queue"]["waiting"] if "queue" in train else []
    origins = [[iteration, gradient_steps, iteration] for iteration, gradient_steps in waiting]
    own: dict[str, Any] = {
        "rank": {
            "source": {"collector": train["collector"], "waiting": origins},
            "minibatch_generator": train["minibatch_generator"],
        }
    }
    if "advantage_normalizer" in train:
        rewards = train["reward_normalizer"]
        shared |= {name: train[name] for name in _POLICY_PARTS}
        shared["reward_normalizer"] = rewards and {
            name: rewards[name] for name in ("count", "total", "total_squares")
        }
        own["running_return"] = rewards and rewards["running_return"]
    if "phases" in train:
        shared["phase"] = {name: train[name] for name in _PHASE_PARTS}
        own["phase_iterations"] = train["phase_iterations"]
    return {"shared": shared, "own": own, "recent_returns": tree["recent_returns"]}
