"""Native code in several threads: the same numbers, bit for bit, in less time."""

import ctypes
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from phase_runs import phase_config, train_and_stop
from toy_runs import (
    changed,
    differences,
    newest_state,
    one_iteration,
    prepare,
    resume,
    start,
    start_pqn,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch import machine, native
from anybatch.algorithms import ppg, ppo, pqn
from anybatch.backends import threads as module
from anybatch.backends.threads import LONGEST_INTERVAL, Threads, native_threads
from anybatch.config import PPOConfig

WIDE = {"hidden_sizes": [192, 160]}
"""Layers for which a second thread is worth its while."""
NUMBERS = [2, 3, 5]


@pytest.fixture
def all_threads(monkeypatch: pytest.MonkeyPatch):
    """Every call uses as many threads as it may, however long it takes."""
    monkeypatch.setattr(Threads, "_next", lambda self: self._most)


def ppo_problem(env: str, **changes: Any) -> PPOConfig:
    config = toy_config(
        env=env,
        num_envs=37,
        num_steps=19,
        env_config={"max_episode_steps": 7},
        network=WIDE,
        proximal={"policy": "ewma"},
        objective={"clip": None, "kl_penalty": 1.0, "kl": "exact", "entropy_coefficient": 0.02},
        optimizer={"max_grad_norm": 0.2},
        update={"epochs": 2, "minibatches_per_epoch": 3, "noise_scale_every": 4},
        native="on",
        precision="float32",
    )
    return changed(config, **changes)


def assert_same_policy(config: PPOConfig) -> None:
    left = []
    for threads in (1, *NUMBERS):
        state = start(changed(config, threads=threads))
        metrics = [one_iteration(config, state) for _ in range(2)]
        assert state.backend.average is not None
        left.append(
            {
                "parameters": state.backend.flat.values,
                "moments": list(state.steps.state_dict()["optimizer"].values()),
                "norms": torch.tensor(state.steps.counts.norms),
                "proximal": state.backend.average.values,
                "metrics": metrics,
                "rollout": state.source.collector.collect(state.network, 5).tensors(),
            }
        )
    for other in left[1:]:
        torch.testing.assert_close(other, left[0], rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("all_threads")
@pytest.mark.parametrize("heads", ["shared", "detached", "dual"])
@pytest.mark.parametrize("env", ["toy:Target", "CartPole-v1", "Pendulum-v1", "minatar:SpaceInvaders"])
def test_threads_do_not_change_a_policy(env: str, heads: str):
    assert_same_policy(ppo_problem(env, network={"heads": heads}))


@pytest.mark.usefixtures("all_threads")
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("minibatches", [1, 2, 9, 40])
def test_nor_do_minibatches_of_any_size(minibatches: int, precision: str):
    update = {"minibatches_per_epoch": minibatches}
    assert_same_policy(ppo_problem("minatar:Breakout", update=update, precision=precision))


@pytest.mark.usefixtures("all_threads")
@pytest.mark.parametrize("sizes", [[7], [640, 5, 48], [1300]])
def test_nor_do_layers_of_any_width(sizes: list[int]):
    assert_same_policy(ppo_problem("toy:Target", network={"hidden_sizes": sizes}))


@pytest.mark.usefixtures("all_threads")
@pytest.mark.parametrize("env", ["CartPole-v1", "minatar:Asterix", "minatar:Seaquest"])
def test_threads_do_not_change_action_values(env: str):
    config = toy_pqn_config(
        env=env,
        num_envs=50,
        num_steps=11,
        env_config={"max_episode_steps": 7},
        network=WIDE,
        update={"epochs": 2, "minibatches_per_epoch": 3, "noise_scale_every": 4},
        native="on",
        precision="float32",
    )
    left = []
    for threads in (1, *NUMBERS):
        state = start_pqn(changed(config, threads=threads))
        state.network.epsilon = 0.3
        for _ in range(3):
            data = state.source.collector.collect(state.network, config.num_steps)
            metrics = pqn.update_values(pqn.prepare(data, config), state, config, 1e-2)
        left.append(
            {"parameters": state.backend.flat.values, "rollout": data.tensors(), "metrics": dict(metrics)}
        )
    for other in left[1:]:
        torch.testing.assert_close(other, left[0], rtol=0, atol=0, equal_nan=True)


def test_the_tests_above_use_several_threads():
    library = native.library("float32")
    narrow, wide = (ctypes.c_int64(3 * weights) for weights in (7 * 4, 192 * 160))
    samples = ctypes.c_int64(100)
    assert library.useful_members(5, samples, narrow) == 1
    assert library.useful_members(5, samples, wide) > 1
    assert library.useful_members(1, samples, wide) == 1
    assert library.useful_members(5, ctypes.c_int64(31), ctypes.c_int64(10**9)) == 1, "of one block"


@pytest.mark.usefixtures("all_threads")
def test_steps_before_a_non_finite_one_are_kept_by_all_threads():
    left = []
    for threads in (1, 2):
        config = ppo_problem("toy:Target", threads=threads, update={"noise_scale_every": 0})
        state = start(config)
        samples = prepare(state.source.collector.collect(state.network, config.num_steps), state, config)
        samples.value_target[3] = float("nan")
        ppo.update_policy(samples, state, config, 1e-2)
        assert (state.steps.counts.taken, state.steps.counts.skipped) == (4, 2)
        left.append(state.backend.flat.values)
    torch.testing.assert_close(left[0], left[1], rtol=0, atol=0)


def test_a_run_may_use_its_cores_unless_actors_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "available_cores", lambda: 8)
    assert native_threads(toy_config()) == 8
    assert native_threads(toy_config(threads=3)) == 3
    assert native_threads(toy_config(overlap=True)) == 1


class Clock:
    """A clock that calls move: a call with several threads takes `several` times as long as with one."""

    def __init__(self, several: float):
        self.now, self.several = 0.0, several

    def __call__(self) -> float:
        return self.now

    def call(self, threads: int) -> int:
        self.now += 1.0 if threads == 1 else self.several
        return threads


@pytest.mark.parametrize(("several", "usual"), [(0.6, 4), (3.0, 1)])
def test_the_faster_number_of_threads_is_used(several: float, usual: int, monkeypatch: pytest.MonkeyPatch):
    clock, choice = Clock(several), Threads(4)
    monkeypatch.setattr(module, "perf_counter", clock)
    used = [choice.run(1, clock.call) for _ in range(1000)]
    assert sorted(used[:2]) == [1, 4] and 980 < used.count(usual) < 1000


def test_a_machine_that_becomes_busy_or_idle_changes_it(monkeypatch: pytest.MonkeyPatch):
    clock, choice = Clock(0.6), Threads(4)
    monkeypatch.setattr(module, "perf_counter", clock)
    for _ in range(100):
        choice.run(1, clock.call)
    clock.several = 3.0
    assert [choice.run(1, clock.call) for _ in range(50)].count(4) <= 6
    clock.several = 0.6
    used = [choice.run(1, clock.call) for _ in range(LONGEST_INTERVAL + 20)]
    assert used[-10:].count(4) >= 9


def test_a_single_slow_call_does_not_change_it(monkeypatch: pytest.MonkeyPatch):
    clock, choice = Clock(0.6), Threads(4)
    monkeypatch.setattr(module, "perf_counter", clock)
    for _ in range(1000):
        choice.run(1, clock.call)
    clock.several = 50.0
    while choice.run(1, clock.call) == 1:
        pass
    clock.several = 0.6
    assert [choice.run(1, clock.call) for _ in range(20)].count(4) >= 19


@pytest.mark.parametrize(("compiled", "recorded"), [("on", 3), ("off", 1)])
def test_a_run_records_the_threads_that_it_may_use(compiled: str, recorded: int, tmp_path: Path):
    config = toy_config(native=compiled, threads=3 if compiled == "on" else 1)
    facts = json.loads((train(config, tmp_path).folder / "facts.json").read_text())
    assert facts["threads"] == recorded


def torchs_threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """The numbers of torch's threads in each part of PPG, from now on."""
    used: dict[str, set[int]] = {"policy_iteration": set(), "auxiliary_step": set()}

    def noted(part: Callable[..., Any], name: str, *args: Any) -> Any:
        used[name].add(torch.get_num_threads())
        return part(*args)

    for name in used:
        monkeypatch.setattr(ppg, name, partial(noted, getattr(ppg, name), name))
    return used


@pytest.mark.parametrize(("threads", "expected"), [(0, 1), (1, 1), (3, 3)])
def test_the_auxiliary_phase_beside_native_code_has_the_threads_asked_for(
    threads: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    used = torchs_threads(monkeypatch)
    train(phase_config(native="on", threads=threads, total_env_steps=150), tmp_path)
    assert used == {"policy_iteration": {1}, "auxiliary_step": {expected}}
    assert torch.get_num_threads() == 1


def test_a_run_with_threads_in_its_auxiliary_phase_can_be_repeated_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = phase_config(
        native="on",
        threads=2,
        num_envs=32,
        num_steps=32,
        network=WIDE,
        phase={"auxiliary_minibatch": 1536},
        total_env_steps=8 * 1024,
    )
    whole, again = (newest_state(train(config, tmp_path / name).folder) for name in ("whole", "again"))
    assert not differences(whole, again)
    stopped = train_and_stop(config, tmp_path / "stopped", "auxiliary_step", 3, monkeypatch)
    assert torch.get_num_threads() == 1
    resume(stopped, config)
    assert not differences(whole, newest_state(stopped))
