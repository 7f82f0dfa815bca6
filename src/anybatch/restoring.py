"""Continuing a fresh state from a checkpoint, and refusing one that does not belong to the run."""

from dataclasses import fields
from operator import attrgetter

from anybatch.algorithms import AnyState, algorithm_of
from anybatch.config import AnyConfig
from anybatch.errors import CheckpointError, ConfigError
from anybatch.runs.record import RunRecord
from anybatch.runs.run import Unlogged
from anybatch.storage import state_fit
from anybatch.storage.checkpoint import Loaded, Snapshot
from anybatch.storage.resharding import of_shard
from anybatch.storage.state_tree import StateTree


def validate_same_run(recorded: AnyConfig, config: AnyConfig) -> None:
    """Refuse to continue a checkpoint with another environment or network, naming the first difference.

    All other settings may change from one resume to the next.
    """
    network = [f"network.{field.name}" for field in fields(config.network) if field.name != "log_std"]
    for path in ("env", "dtype", *network, "optimizer.name", *config.fixed_on_resume):
        there, here = (attrgetter(path)(settings) for settings in (recorded, config))
        if there != here:
            if path == "dtype":
                path, there, here = "precision", recorded.precision, config.precision
            raise ConfigError(f"this run has {path} = {there}, not {here}: a resume cannot change that")


def validate_unfinished(record: RunRecord, config: AnyConfig, env_steps: int) -> None:
    """Refuse a run that is complete, including its evaluation, whose record must not change; or a new end
    that lies behind it."""
    if config.total_env_steps < min(env_steps, record.config.total_env_steps):
        raise ConfigError(
            f"total-env-steps = {config.total_env_steps:,}: this run has already done {env_steps:,}, and the "
            "number counts from its start"
        )
    result = record.result
    if env_steps < config.total_env_steps or result is None:
        return
    if result.get("env_steps") == env_steps and result.get("evaluation") is not None:
        raise ConfigError(
            f"this run has done its {env_steps:,} env steps; continue it with a larger --total-env-steps"
        )


def was_native(loaded: Loaded) -> bool:
    """Whether a checkpoint's run has been trained with native code, by what it says before it is checked."""
    shared: object = loaded.tree.get("shared")
    return isinstance(shared, dict) and bool(shared.get("native"))


def restore(config: AnyConfig, state: AnyState, loaded: Loaded) -> None:
    """Continue a fresh state from the part of a checkpoint that belongs to this rank."""
    tree = loaded.tree
    with state_fit.refusing_misfits(loaded.path):
        if "local" not in tree:
            raise CheckpointError("it holds a policy to evaluate, without the state that a resume needs")
        state.drop_episodes_of_another_engine(tree["local"])
        validate_state_fit(tree, state)
        saved = Snapshot(
            shared=tree["shared"], local=tree["local"], num_envs=tree["num_envs"], segments=loaded.segments
        )
        algorithm_of(config).restore(state, of_shard(saved, state.shard), config)
        if state.env_steps != loaded.env_steps:
            raise CheckpointError(f"its state is of {state.env_steps:,} env steps")


def validate_state_fit(tree: StateTree, fresh: AnyState) -> None:
    """Refuse a checkpoint whose parts are not those of a fresh state of this run."""
    like = fresh.snapshot()
    assert like is not None
    state_fit.validate_fit(tree.get("shared"), like.shared, "shared", may_lack=True)
    # Arrays of envs may have another number of envs, and may contain infinities.
    state_fit.validate_fit(
        tree.get("local"), like.local, "local", may_lack=True, any_length=True, finite=False
    )
    returns = tree["recent_returns"]
    state_fit.validate_fit(returns, [0.0] * len(returns), "recent_returns")
    unlogged = tree.get("unlogged", {})  # of an earlier version, every iteration was logged
    state_fit.validate_fit(unlogged, Unlogged().state_dict(), "unlogged", may_lack=True)
    for name in ("ranks", "num_envs"):
        state_fit.validate_fit(tree.get(name), 1, name)
