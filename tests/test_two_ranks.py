"""Two ranks with half of the data each take the steps that one takes with all of it."""

import multiprocessing
from dataclasses import replace
from multiprocessing.queues import Queue
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import torch.distributed as dist
from phase_runs import phase_config
from toy_runs import (
    changed,
    collect,
    in_float64,
    prepare,
    start,
    start_in_float64,
    start_pqn,
    start_pqn_in_float64,
    toy_config,
    toy_pqn_config,
)

from anybatch.acting.rollout import Rollout
from anybatch.algorithms.control import behavioral_divergence
from anybatch.algorithms.ppg import loop as ppg
from anybatch.algorithms.ppg import state as ppg_state
from anybatch.algorithms.ppo import loop as ppo
from anybatch.algorithms.ppo.stale import effective_share
from anybatch.algorithms.ppo.state import PPOState
from anybatch.algorithms.pqn import loop as pqn
from anybatch.algorithms.pqn.state import PQNState
from anybatch.algorithms.state import make_env
from anybatch.config import AnyConfig, PPOConfig
from anybatch.runs.run import Run

Answers = dict[str, Any]
Findings = tuple[Answers, list[float], Answers]
LEARNING_RATE = 1e-2
# One minibatch an epoch: which samples share a minibatch is each rank's own draw.
CONFIG = toy_config(
    num_envs=4,
    num_steps=7,
    update={"epochs": 3, "minibatches_per_epoch": 1, "noise_scale_every": 2},
    proximal={"policy": "ewma"},
    normalize={"rewards": "iteration"},
    optimizer={"max_grad_norm": 0.1},
)
PER_MINIBATCH = changed(CONFIG, objective={"advantage_normalization": "minibatch"})
STOPPED_EARLY = changed(CONFIG, update={"epochs": 12, "noise_scale_every": 0, "target_kl": 0.0275})
PQN_CONFIG = toy_pqn_config(
    num_envs=4,
    num_steps=7,
    update={"epochs": 3, "minibatches_per_epoch": 1, "noise_scale_every": 2},
    optimizer={"max_grad_norm": 0.1},
    controller={"kind": "divergence", "min_steps": 7, "max_steps": 7},
)
# Pixels stay bytes in the data of a phase, whatever the network computes in.
PHASE_CONFIG = phase_config(
    env="toy:Pixels",
    num_envs=4,
    num_steps=7,
    network={"encoder": "impala", "impala_channels": [2], "impala_features": 7},
    update={"epochs": 2, "minibatches_per_epoch": 1},
    phase={"policy_iterations": 1, "value_epochs": 1, "auxiliary_epochs": 3, "auxiliary_minibatch": 28},
)


def columns(data: Rollout, envs: slice) -> Rollout:
    """The rollout of some of the envs."""
    return replace(data, **{name: tensor[:, envs].contiguous() for name, tensor in data.tensors().items()})


def spread_over_ranks(state: PPOState | PQNState, config: AnyConfig) -> None:
    """The plan of as many ranks as it takes to have all four envs."""
    batch = replace(state.batch, ranks=4 // config.num_envs)
    state.learner.control.plan = replace(state.plan, batch=batch)


def ppo_update(data: Rollout, num_envs: int, config: PPOConfig = CONFIG) -> list[float]:
    config = replace(config, num_envs=num_envs)
    state = start_in_float64(config)
    spread_over_ranks(state, config)
    ppo.improve_policy(prepare(in_float64(data), state, config), state, config, LEARNING_RATE)
    return state.steps.flat.values.tolist()


def pqn_update(data: Rollout, num_envs: int) -> list[float]:
    config = replace(PQN_CONFIG, num_envs=num_envs)
    state = start_pqn_in_float64(config)
    spread_over_ranks(state, config)
    pqn.improve_values(pqn.prepare(in_float64(data), config), state, config, LEARNING_RATE)
    return state.steps.flat.values.tolist()


def ppg_phase(data: Rollout, num_envs: int) -> list[float]:
    """A policy iteration, value epochs of their own, and the auxiliary phase."""
    config = replace(PHASE_CONFIG, num_envs=num_envs, dtype="float64")
    state = ppg_state.start(config, make_env(config, env_steps=0), say=print)
    samples = prepare(in_float64(data), state.policy, config)
    ppg.policy_iteration(samples, state, config, LEARNING_RATE)
    state.data.add(0, obs=samples.obs, value_target=samples.value_target, valid=samples.valid)
    with TemporaryDirectory() as folder, Run.silent(Path(folder)) as run:
        ppg.auxiliary_phase(config, state, run)
    assert state.phases == 1
    return state.steps.flat.values.tolist()


def divergence(data: Rollout, num_envs: int) -> list[float]:
    """Of a network that has nothing to do with the one that acted."""
    config = replace(PQN_CONFIG, num_envs=num_envs, seed=2)
    state = start_pqn(config)
    spread_over_ranks(state, config)
    return [behavioral_divergence(config, state, data)]


def steps_until_the_policy_moved(data: Rollout, num_envs: int) -> list[float]:
    """With a limit that the samples of the two ranks meet at different times."""
    config = replace(STOPPED_EARLY, num_envs=num_envs)
    state = start_in_float64(config)
    spread_over_ranks(state, config)
    ppo.improve_policy(prepare(in_float64(data), state, config), state, config, LEARNING_RATE)
    return [state.steps.counts.taken]


def noise(data: Rollout, num_envs: int) -> list[float]:
    """Averages of the noise scale's parts."""
    config = replace(CONFIG, num_envs=num_envs)
    state = start_in_float64(config)
    spread_over_ranks(state, config)
    ppo.improve_policy(prepare(in_float64(data), state, config), state, config, LEARNING_RATE)
    policy = state.steps.noise["policy"]
    return [policy.trace, policy.signal, policy.weight]


def effective(data: Rollout, num_envs: int) -> list[float]:
    """Effective share of data that are two iterations old, of a policy that has moved since."""
    config = replace(CONFIG, num_envs=num_envs)
    state = start_in_float64(config)
    state.learner.iterations = 2
    state.steps.flat.values.mul_(5)
    return [effective_share(ppo.prepare(in_float64(data), state, config), state, config)]


def counted(data: Rollout, num_envs: int) -> list[float]:
    """Env steps after two iterations."""
    state = start(replace(CONFIG, num_envs=num_envs))
    for _ in range(2):
        state.learner.count(data)
    return [state.env_steps, state.iterations]


def of_its_own(num_envs: int) -> dict[str, Any]:
    """What ranks must not have in common: their environments and their random streams."""
    state = start(replace(CONFIG, num_envs=num_envs))
    generators = {
        "actions": state.source.collector.generator,
        "minibatches": state.rank.minibatch_generator,
    }
    drawn = {name: torch.rand(5, generator=generator).tolist() for name, generator in generators.items()}
    return drawn | {"first observations": state.source.collector.obs.tolist()}


def rollouts() -> tuple[Rollout, Rollout, Rollout]:
    return collect(CONFIG), collect(PHASE_CONFIG), pqn_rollout()


def pqn_rollout() -> Rollout:
    state = start_pqn(PQN_CONFIG)
    state.network.epsilon = 0.5
    return state.source.collector.collect(state.network, PQN_CONFIG.num_steps)


def idle_from(data: Rollout, env: int) -> Rollout:
    """As if the envs from there on had made reset steps only."""
    valid = data.valid.clone()
    valid[:, env:] = False
    return replace(data, valid=valid)


def answers_of(
    ppo_data: Rollout, ppg_data: Rollout, pqn_data: Rollout, envs: slice
) -> dict[str, list[float]]:
    num_envs = envs.stop - envs.start
    return {
        "ppo": ppo_update(columns(ppo_data, envs), num_envs),
        "ppo, moments of a minibatch": ppo_update(columns(ppo_data, envs), num_envs, PER_MINIBATCH),
        "ppo, stopped by the limit": steps_until_the_policy_moved(columns(ppo_data, envs), num_envs),
        "effective samples": effective(columns(ppo_data, envs), num_envs),
        "effective samples, one rank idle": effective(columns(idle_from(ppo_data, 2), envs), num_envs),
        "env steps": counted(columns(ppo_data, envs), num_envs),
        "env steps, one rank idle": counted(columns(idle_from(ppo_data, 2), envs), num_envs),
        "ppg": ppg_phase(columns(ppg_data, envs), num_envs),
        "pqn": pqn_update(columns(pqn_data, envs), num_envs),
        "divergence": divergence(columns(pqn_data, envs), num_envs),
        "divergence, one rank idle": divergence(columns(idle_from(pqn_data, 2), envs), num_envs),
    }


def one_rank(
    rank: int, meeting_point: Path, answers: "Queue[tuple[int, tuple[Answers, list[float], Answers]]]"
) -> None:
    torch.set_num_threads(1)
    data = rollouts()  # before there are ranks: both have the same
    dist.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=2)
    envs = slice(2 * rank, 2 * rank + 2)
    answers.put((rank, (answers_of(*data, envs), noise(columns(data[0], envs), 2), of_its_own(num_envs=2))))
    dist.destroy_process_group()


@pytest.mark.timeout(120)
def test_two_ranks_with_half_of_the_data_equal_one_with_all_of_it(tmp_path: Path) -> None:
    together = answers_of(*rollouts(), slice(0, 4))
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(target=one_rank, args=(rank, tmp_path / "meet", answers), daemon=True)
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    found = dict(answers.get(timeout=100) for _ in ranks)
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    (found_by_0, noise_by_0, own_of_0), (found_by_1, noise_by_1, own_of_1) = found[0], found[1]
    assert found_by_0 == found_by_1
    # Their microbatches are others than one process has: of the noise they only agree with each other.
    assert noise_by_0 == noise_by_1 and noise_by_0[2] > 0
    for name, own in own_of_0.items():
        assert own != own_of_1[name], f"both ranks have the same {name}"
    for name, numbers in together.items():
        assert found_by_0[name] == pytest.approx(numbers, rel=0, abs=1e-6 if "div" in name else 1e-9), name
    for name, state in (("ppo", start_in_float64(CONFIG)), ("pqn", start_pqn_in_float64(PQN_CONFIG))):
        moved = torch.tensor(together[name], dtype=torch.float64) - state.steps.flat.values
        assert moved.abs().max() > 1e-3
    assert 1 < together["ppo, stopped by the limit"][0] < 12
    assert together["ppo, moments of a minibatch"] != together["ppo"]
    shares = together["effective samples"] + together["effective samples, one rank idle"]
    assert all(0 < share < 0.999 for share in shares) and shares[0] != shares[1]
    whole, half = together["divergence"][0], together["divergence, one rank idle"][0]
    assert 0 < whole < 1 and 0 < half < 1 and whole != half
