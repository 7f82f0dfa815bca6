"""Builders of small configs, states and runs for the tests."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from anybatch import evaluating, presets, training
from anybatch.acting.rollout import Rollout
from anybatch.algorithms import algorithm_of, ppo, pqn
from anybatch.algorithms.ppo import PolicyRecord, Samples, policy_loss
from anybatch.algorithms.ppo_state import PPOState
from anybatch.algorithms.pqn import PQNState
from anybatch.algorithms.state import make_env
from anybatch.config import AnyConfig, PPOConfig, PQNConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.evaluating import PlayedRun
from anybatch.networks.weight_average import EwmaNetwork, PeriodicCopy
from anybatch.runs.display import QUIET, Output
from anybatch.runs.record import RESULT_FILE, RunRecord
from anybatch.storage.checkpoint import Checkpoints, Snapshot
from anybatch.storage.state_tree import StateTree
from anybatch.training import Outcome
from anybatch.user_objects import UserObjects

SMALL: dict[str, Any] = {
    "minibatch": "scaled",  # a larger batch has larger minibatches, so that the rules show
    "env": "toy:Match",
    "num_envs": 3,
    "num_steps": 7,
    "total_env_steps": 100,
    "update": {"epochs": 2, "minibatches_per_epoch": 2, "noise_scale_every": 0},
    "network": {"hidden_sizes": [11]},
    "evaluation": {"num_envs": 2},
    "record": {"tensorboard": False, "log_every": 1},
}
Config = TypeVar("Config", bound=AnyConfig)


def small(kind: type[Config], changes: dict[str, Any]) -> Config:
    """`SMALL` with changes, as nested dicts. It was tuned at its own batch unless `tuned_at` is changed."""
    settings = presets.overlaid(config_to_dict(kind()), SMALL)
    settings = presets.overlaid(settings, changes)
    if "tuned_at" not in changes:
        settings["tuned_at"] = presets.own_batch(settings)
    return config_from_dict(kind, settings)


def toy_config(**changes: Any) -> PPOConfig:
    return small(PPOConfig, changes)


def toy_pqn_config(**changes: Any) -> PQNConfig:
    return small(PQNConfig, changes)


def changed(config: Config, **changes: Any) -> Config:
    """`config` with changes, as nested dicts; what it was tuned at stays."""
    return config_from_dict(type(config), presets.overlaid(config_to_dict(config), changes))


def start(config: PPOConfig) -> PPOState:
    return ppo.start(config, make_env(config, env_steps=0))


def start_in_float64(config: PPOConfig) -> PPOState:
    """A state whose network, optimizer and proximal policy compute in float64."""
    return start(changed(config, precision="float64"))


def start_pqn(config: PQNConfig) -> PQNState:
    return pqn.start(config, make_env(config, env_steps=0))


def start_pqn_in_float64(config: PQNConfig) -> PQNState:
    """A state whose network and optimizer compute in float64."""
    return start_pqn(changed(config, precision="float64"))


def collect(config: PPOConfig, iterations: int = 1) -> Rollout:
    """The last of the first rollouts of a run, by the policy it starts with."""
    state = start(config)
    for _ in range(iterations - 1):
        state.source.collector.collect(state.network, config.num_steps)
    return state.source.collector.collect(state.network, config.num_steps)


def in_float64(data: Any) -> Any:
    """A rollout or samples with every float32 tensor in float64."""
    fields = {
        name: value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value
        for name, value in vars(data).items()
    }
    return type(data)(**fields)


def prepare(data: Rollout, state: PPOState, config: PPOConfig) -> Samples:
    """A rollout that has not waited, ready to be optimized on."""
    return ppo.prepare(replace(data, origin=state.learner.origin), state, config)


def sample_losses(
    samples: Samples, indices: torch.Tensor, state: PPOState, config: PPOConfig
) -> tuple[torch.Tensor, PolicyRecord]:
    """The loss of each sample as torch computes it, and what is kept of it for the metrics."""
    batch = samples.rows(indices, state.device)
    return policy_loss(state.network, batch, config.objective, state.backend.average)


def one_iteration(config: PPOConfig, state: PPOState) -> dict[str, float | None]:
    """Collect, prepare and improve, as the loop does."""
    data = state.source.collector.collect(state.network, config.num_steps)
    samples = prepare(data, state, config)
    return ppo.update_policy(samples, state, config, state.plan.hyperparameters.learning_rate)


def learned(config: PPOConfig) -> float:
    """Mean reward per decision of the greedy policy at the end."""
    state = start(config)
    while state.env_steps < config.total_env_steps:
        one_iteration(config, state)
        state.learner.env_steps += config.num_envs * config.num_steps
    with torch.no_grad():
        state.network.policy.head.weight.mul_(1e3)
        state.network.policy.head.bias.mul_(1e3)
    data = state.source.collector.collect(state.network, 200)
    return float(data.reward[data.valid].mean())


def moved_policy_and_samples(config: PPOConfig) -> tuple[PPOState, Samples]:
    """A float64 state some steps away from the policy that acted: ratios, clips and KLs are at work."""
    state = start_in_float64(config)
    data = in_float64(collect(config, iterations=2))
    samples = prepare(data, state, config)
    noise = torch.Generator().manual_seed(5)
    for _ in range(2):
        values = state.backend.flat.values
        values += 0.15 * torch.randn(values.shape, generator=noise, dtype=values.dtype)
        if isinstance(state.backend.average, EwmaNetwork):
            state.backend.average.update(0.5)
        if isinstance(state.backend.average, PeriodicCopy):
            state.backend.average.update(5)
    return state, samples


def train(config: AnyConfig, base: Path) -> Outcome:
    with Output(shown=True) as output:
        return training.train(config, preset="test", base=base, output=output)


def train_own(config: AnyConfig, own: UserObjects, base: Path) -> StateTree:
    """What a run with the program's own objects shares between ranks at its end."""
    outcome = training.train(config, preset="test", base=base, output=QUIET, custom=own)
    return newest_state(outcome.folder)["shared"]


def resume(folder: Path, config: AnyConfig) -> Outcome:
    with Output(shown=True) as output:
        return training.resume(RunRecord(folder), config, output=output)


def evaluate(folder: Path, config: AnyConfig) -> PlayedRun:
    with Output(shown=True, stream=sys.stderr) as output:
        return evaluating.evaluate_run(RunRecord(folder), config, output=output)


def cut_back(folder: Path, copy: Path, env_steps: int) -> Path:
    """A copy of a run as if it had been killed after its checkpoint at `env_steps`, which it must have."""
    shutil.copytree(folder, copy)
    newest = f"step_{env_steps:012d}"
    assert (copy / "checkpoints" / newest).is_dir()
    for checkpoint in (copy / "checkpoints").iterdir():
        if checkpoint.name > newest:
            shutil.rmtree(checkpoint)
    (copy / RESULT_FILE).unlink()
    return copy


def start_from(config: AnyConfig, saved: Snapshot) -> Any:
    """A state of `config` that continues from `saved`."""
    algorithm = algorithm_of(config)
    was_native = saved.shared["native"]
    state = algorithm.start(config, make_env(config, env_steps=0), was_native=was_native)
    algorithm.restore(state, saved, config)
    return state


def without_episodes(saved: Snapshot) -> Snapshot:
    """`saved` as if the episodes in progress could not be restored: they are of another number of envs."""
    rank = saved.local["rank"]
    collector = rank["source"]["collector"]
    other = {**collector, "num_envs": collector["num_envs"] + 1}
    return replace(
        saved, local=saved.local | {"rank": rank | {"source": rank["source"] | {"collector": other}}}
    )


def newest_state(folder: Path) -> StateTree:
    """The newest checkpoint of a run, which must be whole."""
    checkpoints = Checkpoints(folder, keep=1)
    loaded = checkpoints.load_latest()
    assert loaded is not None and loaded.path == checkpoints.newest_first()[0]
    return loaded.tree


def newest_learner(folder: Path) -> StateTree:
    """The learner in the newest checkpoint of a run: network, gradient steps and counters."""
    return newest_state(folder)["shared"]["learner"]


def differences(there: object, here: object, path: str = "") -> list[str]:
    """Where two state trees are not the same to the bit."""
    if isinstance(there, dict) and isinstance(here, dict):
        keys = sorted(there.keys() | here.keys(), key=str)
        return [
            found for key in keys for found in differences(there.get(key), here.get(key), f"{path}/{key}")
        ]
    if isinstance(there, torch.Tensor) and isinstance(here, torch.Tensor):
        same = there.dtype == here.dtype and torch.equal(there, here)
    elif hasattr(there, "tobytes") and hasattr(here, "tobytes"):
        same = there.tobytes() == here.tobytes()
    else:
        same = type(there) is type(here) and there == here
    return [] if same else [path]
