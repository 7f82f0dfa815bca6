"""The batch inside a run: what a controller is shown, what follows from its decision, and that it repeats."""

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from phase_runs import rows
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal, kl_divergence
from toy_runs import (
    changed,
    cut_back,
    differences,
    newest_learner,
    newest_state,
    resume,
    start,
    start_from,
    start_pqn,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch import planning
from anybatch.acting.normalizers import AdvantageNormalizer
from anybatch.acting.rollout import Rollout
from anybatch.algorithms.batch_control import control_batch, policy_change, probe
from anybatch.algorithms.ppo_state import PPOState
from anybatch.algorithms.pqn import PQNState
from anybatch.config import AnyConfig, PPOConfig, PQNConfig
from anybatch.dial import controllers, plan_table
from anybatch.dial.controllers import Signals
from anybatch.networks.weight_average import EwmaNetwork
from anybatch.storage.checkpoint import Checkpoints, Snapshot

Make = Callable[..., AnyConfig]
ENVS, STEPS, RATE = 3, 7, 1e-2
POINTS = ((0, 7), (50, 14), (110, 4))
SCHEDULE: dict[str, Any] = {
    "kind": "schedule",
    "schedule": [f"{env_steps}:{num_steps}" for env_steps, num_steps in POINTS],
}
KEEP_ALL = {"record": {"checkpoint_every_iterations": 1, "keep_checkpoints": 999}}
BUSY: dict[str, Any] = {
    "env_config": {"max_episode_steps": 5},
    "optimizer": {"learning_rate": RATE, "anneal": "linear", "max_grad_norm": 0.5},
    "update": {"noise_scale_every": 3},
    **KEEP_ALL,
}
EWMA: dict[str, Any] = {
    "proximal": {"policy": "ewma"},
    "objective": {"advantage_decay": 0.5, "entropy_coefficient": 0.01},
    "normalize": {"observations": "step", "rewards": "step"},
}


def scheduled_length(env_steps: int, points: tuple[tuple[int, int], ...] = POINTS) -> int:
    """By hand: that of the last pair reached."""
    length = 0
    for since, num_steps in points:
        if env_steps >= since:
            length = num_steps
    return length


def lengths(folder: Path) -> list[int]:
    return [row["batch/num_steps"] for row in rows(folder)]


@pytest.mark.parametrize("make", [toy_pqn_config, toy_config], ids=["pqn", "ppo"])
def test_a_schedule_changes_the_batch_within_a_run(make: Make, tmp_path: Path):
    config = make(total_env_steps=150, controller=SCHEDULE | {"epochs": "at_least"})
    shown = rows(train(config, tmp_path).folder)
    env_steps, gradient_steps = 0, 0
    for row in shown:
        length = scheduled_length(env_steps)
        epochs = {7: 2, 14: 4, 4: 2}[length]
        assert row["batch/num_steps"] == length
        assert row["batch/iteration"] == ENVS * length
        assert row["batch/minibatch"] == ENVS * length / 2
        assert row["losses/epochs_done"] == epochs
        assert row["charts/gradient_steps"] - gradient_steps == 2 * epochs
        collected = row["batch/valid_fraction"] * ENVS * length
        assert row["env_steps"] - env_steps == pytest.approx(collected, rel=1e-6)
        env_steps, gradient_steps = row["env_steps"], row["charts/gradient_steps"]
    assert {row["batch/num_steps"] for row in shown} == {7, 14, 4}


STALE = {"staleness": {"iterations": 2}}
RESUMED = {
    "pqn": (toy_pqn_config, {}),
    "pqn compensated": (toy_pqn_config, {"controller": {"compensate": "all"}}),
    "ppo-ewma": (toy_config, EWMA),
    "ppo-ewma compensated": (toy_config, EWMA | {"controller": {"compensate": "all"}}),
    "stale ppo-ewma": (toy_config, EWMA | STALE),
    "stale periodic compensated": (
        toy_config,
        EWMA
        | STALE
        | {"proximal": {"policy": "periodic", "copy_every": 7}, "controller": {"compensate": "all"}},
    ),
    "stale ppo-ewma compensated": (toy_config, EWMA | STALE | {"controller": {"compensate": "all"}}),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_repeats_itself_also_when_interrupted_around_a_change(name: str, tmp_path: Path):
    make, changes = RESUMED[name]
    config = changed(make(total_env_steps=150, **BUSY), controller=SCHEDULE)
    config = changed(config, **changes)
    whole, again = (train(config, tmp_path / which) for which in ("whole", "again"))
    shown, ended = rows(whole.folder), newest_state(whole.folder)
    assert not differences(ended, newest_state(again.folder)) and shown == rows(again.folder)

    longer = [row["batch/num_steps"] for row in shown].index(14)
    # A row's checkpoint is of after the controller: that of the last short rollout has the change in it.
    around = {"before": shown[longer - 2], "at": shown[longer - 1], "after": shown[longer]}
    for moment, row in around.items():
        copy = cut_back(whole.folder, tmp_path / moment, row["env_steps"])
        saved = newest_learner(copy)["control"]["controller"]["length"]
        assert saved == (7 if moment == "before" else 14)
        resumed = resume(copy, config)
        assert not differences(ended, newest_state(copy)), moment
        assert rows(copy) == shown and resumed.evaluation == whole.evaluation


ADAPTING: dict[str, Any] = {
    "min_steps": 4,
    "max_steps": 21,
    "start_steps": 6,
    "every": 1,
    "window": 4,
    "warmup": 2,
    "smoothing": 0.3,
    "epochs": "proportional",
}
ADAPTED = {
    "divergence": (toy_pqn_config, {"kind": "divergence", "low": 0.001, "high": 0.3}),
    "kl": (toy_config, {"kind": "kl", "low": 0.001, "high": 0.3}),
    "noise_scale": (toy_config, {"kind": "noise_scale"}),
}


@pytest.mark.parametrize("kind", ADAPTED)
def test_a_run_whose_controller_measures_ends_as_if_it_had_not_been_interrupted(kind: str, tmp_path: Path):
    """What it remembers decides: its measurements, a length between two steps, that it has changed."""
    make, controller = ADAPTED[kind]
    config = changed(make(total_env_steps=400, **BUSY), controller=ADAPTING | controller)
    whole = train(config, tmp_path / "whole")
    shown, ended = rows(whole.folder), newest_state(whole.folder)
    assert len({row["batch/num_steps"] for row in shown}) > 3
    assert {row["losses/epochs_done"] for row in shown} > {2}  # 2 epochs at 7 steps
    for iteration in (2, 5, 8):
        copy = cut_back(whole.folder, tmp_path / str(iteration), shown[iteration - 1]["env_steps"])
        saved = newest_learner(copy)["control"]["controller"]
        assert iteration == 2 or (saved["has_changed"] and saved["length"] % 1)
        assert len(saved["measurements"]) == (0 if kind == "noise_scale" else min(iteration, 4))
        resume(copy, config)
        assert rows(copy) == shown and not differences(ended, newest_state(copy)), iteration


MANY = ((0, 4), (40, 14), (90, 28), (180, 7), (230, 1), (245, 14), (290, 7))
MANY_CHANGES = {"kind": "schedule", "schedule": [f"{since}:{length}" for since, length in MANY]}


@pytest.mark.parametrize("make", [toy_pqn_config, toy_config], ids=["pqn", "ppo"])
def test_a_compensated_learning_rate_follows_the_root_of_the_batch_tuned_at(make: Make, tmp_path: Path):
    config = make(
        num_steps=STEPS,
        total_env_steps=320,
        optimizer={"learning_rate": RATE},
        controller=MANY_CHANGES | {"compensate": "all"},
    )
    shown = rows(train(config, tmp_path).folder)
    assert {row["batch/num_steps"] for row in shown} == {4, 14, 28, 7, 1}
    for row in shown:
        ratio = row["batch/num_steps"] / STEPS
        assert row["charts/learning_rate"] == pytest.approx(RATE * math.sqrt(ratio), rel=1e-14)
    # However it came there, at the batch tuned at it is the number tuned, to the bit.
    assert {row["charts/learning_rate"] for row in shown if row["batch/num_steps"] == STEPS} == {RATE}


@pytest.mark.parametrize("make", [toy_pqn_config, toy_config], ids=["pqn", "ppo"])
def test_without_compensation_the_learning_rate_is_that_of_the_configured_batch(make: Make, tmp_path: Path):
    config = make(
        num_steps=STEPS,
        total_env_steps=120,
        optimizer={"learning_rate": RATE},
        controller=MANY_CHANGES,
        tuned_at={"num_envs": 12, "num_steps": STEPS, "minibatches_per_epoch": 2, "epochs": 2},
    )
    shown = rows(train(config, tmp_path).folder)
    assert {row["batch/num_steps"] for row in shown} >= {4, 14, 28}
    assert {row["charts/learning_rate"] for row in shown} == {RATE / 2}  # √(3 of 12 envs)


@pytest.mark.parametrize("compensate", ["all", "none"])
def test_proximal_and_advantage_decay_follow_only_if_compensated(
    compensate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = toy_config(
        num_steps=STEPS,
        total_env_steps=320,
        proximal={"policy": "ewma", "ewma_decay": 8 / 9},  # center of mass 8
        objective={"advantage_decay": 0.8},  # effective sample size 9
        update={"epochs": 1, "minibatches_per_epoch": 2},
        controller=MANY_CHANGES | {"compensate": compensate},
    )
    proximal: list[tuple[float, float]] = []
    moments: list[float] = []
    update_average, update_moments = EwmaNetwork.update, AdvantageNormalizer.update
    has_followed = EwmaNetwork.has_followed

    def average(self: EwmaNetwork, decay: float, env_steps: float) -> None:
        proximal.append((env_steps, decay))
        update_average(self, decay, env_steps)

    def followed(self: EwmaNetwork, decay: float, env_steps: float, steps: int) -> None:
        proximal.extend([(env_steps, decay)] * steps)
        has_followed(self, decay, env_steps, steps)

    def normalizer(self: AdvantageNormalizer, *arguments: Tensor, decay: float) -> None:
        moments.append(decay)
        update_moments(self, *arguments, decay=decay)

    monkeypatch.setattr(EwmaNetwork, "update", average)
    monkeypatch.setattr(EwmaNetwork, "has_followed", followed)  # of steps that native code takes together
    monkeypatch.setattr(AdvantageNormalizer, "update", normalizer)
    shown = rows(train(config, tmp_path).folder)
    assert len(moments) == len(shown)
    for row, decay in zip(shown, moments, strict=True):
        ratio = row["batch/num_steps"] / STEPS if compensate == "all" else 1.0
        size = max(9 / ratio, 1.0)
        assert decay == pytest.approx(1 - 2 / (size + 1), rel=1e-12, abs=1e-12)
    steps = [ENVS * row["batch/num_steps"] / 2 for row in shown for _ in range(2)]
    assert [env_steps for env_steps, _ in proximal] == steps
    for env_steps, decay in proximal:
        center = 8 / (env_steps / (ENVS * STEPS / 2)) if compensate == "all" else 8.0
        assert decay == pytest.approx(center / (1 + center), rel=1e-12)


STEADY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "total_env_steps": 2_600,
    "update": {"epochs": 1, "minibatches_per_epoch": 4},
    "proximal": {"policy": "ewma", "ewma_decay": 8 / 9},  # 8 gradient steps of 8 env steps
    "env_config": {"options": {"reset": "same_step"}},
}


@pytest.mark.parametrize("compensate", ["all", "none"])
def test_the_age_of_a_compensated_average_does_not_jump_at_a_change(compensate: str, tmp_path: Path):
    config = toy_config(
        **STEADY,
        controller={
            "kind": "schedule",
            "schedule": ["0:8", "1200:32", "2000:2", "2200:8"],
            "compensate": compensate,
        },
    )
    shown = rows(train(config, tmp_path).folder)
    ages = [row["proximal/age_env_steps"] for row in shown if row["env_steps"] > 1150]
    assert {row["batch/num_steps"] for row in shown} == {8, 32, 2}
    if compensate == "all":
        assert all(age == pytest.approx(8 * 8, rel=1e-6) for age in ages)
        assert shown[-1]["proximal/age_gradient_steps"] == pytest.approx(8, rel=0.05)
    else:
        assert max(ages) > 2 * 8 * 8  # 8 gradient steps of more env steps


ADAPTIVE: dict[str, Any] = {"min_steps": 4, "max_steps": 21, "window": 3, "warmup": 2, "smoothing": 0.4}


def replayed(config: AnyConfig, shown: list[dict[str, Any]], **signals: Callable[[Any], Any]) -> list[int]:
    """The lengths that the controller decides on, shown the rows of a run one by one."""
    state = controllers.start(config.complete_controller)
    decided = [controllers.in_force(config.complete_controller, state).num_steps]
    for row in shown:
        seen = {name: read(row) for name, read in signals.items()}
        state = controllers.decide(
            config.complete_controller,
            state,
            Signals(
                iteration=row["charts/iterations"],
                env_steps=row["env_steps"],
                samples_per_step=config.num_envs,
                minibatches=config.update.minibatches_per_epoch,
                **seen,
            ),
        )
        decided.append(controllers.in_force(config.complete_controller, state).num_steps)
    return [length for length in decided if length is not None]


@pytest.mark.parametrize(
    ("make", "kind", "metric"),
    [
        (toy_pqn_config, "divergence", "batch/behavioral_divergence"),
        (toy_config, "kl", "batch/policy_kl"),
    ],
)
def test_the_divergence_is_measured_now_and_then_and_moves_the_batch(
    make: Make, kind: str, metric: str, tmp_path: Path
):
    controller = ADAPTIVE | {"kind": kind, "every": 2, "low": 0.001, "high": 0.3}
    config = make(total_env_steps=600, optimizer={"learning_rate": RATE}, controller=controller)
    shown = rows(train(config, tmp_path).folder)
    measured = [row["charts/iterations"] for row in shown if metric in row]
    assert measured == [number for number in range(1, len(shown) + 1) if number % 2 == 0]
    decided = replayed(config, shown, divergence=lambda row: row.get(metric))
    assert [row["batch/num_steps"] for row in shown] == decided[:-1]
    assert len(set(decided)) > 3
    other = "batch/policy_kl" if kind == "divergence" else "batch/behavioral_divergence"
    assert not any(other in row for row in shown)


def state_after(folder: Path, iteration: int, config: AnyConfig) -> PPOState | PQNState:
    """A run as its checkpoint after `iteration` has it; 0: before the first."""
    env_steps = [0, *(row["env_steps"] for row in rows(folder))][iteration]
    paths = {int(path.name[5:]): path for path in (folder / "checkpoints").iterdir()}
    loaded = Checkpoints(folder, keep=1)._load(paths[env_steps], with_segments=True)
    tree = loaded.tree
    saved = Snapshot(
        shared=tree["shared"], local=tree["local"], num_envs=tree["num_envs"], segments=loaded.segments
    )
    return start_from(config, saved)


def before_and_after(
    folder: Path, iteration: int, config: AnyConfig
) -> tuple[dict[str, Tensor], dict[str, Tensor], Rollout]:
    """Weights on both sides of an iteration, in float64, and the rollout that it trained on.

    Iterations are counted without those in which delayed data were on their way.
    """
    before, after = (state_after(folder, number, config) for number in (iteration - 1, iteration))
    weights = [
        {name: weight.double().clone() for name, weight in state.network.state_dict().items()}
        for state in (before, after)
    ]
    if isinstance(config, PQNConfig):
        before.network.epsilon = before.learner.schedules.epsilon(config, before.env_steps)
    data = before.source.next(before.network, before.batch.num_steps, before.learner.origin)
    assert before.env_steps + data.num_valid == after.env_steps
    return weights[0], weights[1], data


def plain_action_values(weights: dict[str, Tensor], obs: Tensor) -> Tensor:
    x = obs @ weights["trunk.layers.0.linear.weight"].T + weights["trunk.layers.0.linear.bias"]
    x = F.layer_norm(x, (11,), weights["trunk.layers.0.norm.weight"], weights["trunk.layers.0.norm.bias"])
    return x.relu() @ weights["head.weight"].T + weights["head.bias"]


def plain_params(weights: dict[str, Tensor], obs: Tensor) -> Tensor:
    x = obs @ weights["policy.encoder.layers.0.weight"].T + weights["policy.encoder.layers.0.bias"]
    return x.tanh() @ weights["policy.head.weight"].T + weights["policy.head.bias"]


MEASURED_OFTEN: dict[str, Any] = {"min_steps": 9, "max_steps": 9, "every": 2, "states": 10_000}


def test_behavioral_divergence_is_the_share_of_states_with_another_best_action(tmp_path: Path):
    config = toy_pqn_config(
        total_env_steps=300,
        env_config={"max_episode_steps": 4},
        optimizer={"learning_rate": 0.1},
        controller=MEASURED_OFTEN | {"kind": "divergence"},
        **KEEP_ALL,
    )
    folder = train(config, tmp_path).folder
    shares = {}
    for iteration, row in enumerate(rows(folder), start=1):
        if "batch/behavioral_divergence" not in row:
            continue
        before, after, data = before_and_after(folder, iteration, config)
        states = data.obs[:-1][data.valid].double()
        best = [plain_action_values(weights, states).argmax(1).tolist() for weights in (before, after)]
        moved = [one != other for one, other in zip(*best, strict=True)]
        shares[iteration] = sum(moved) / len(moved)
        assert row["batch/behavioral_divergence"] == pytest.approx(shares[iteration], abs=1e-6)
        assert len(moved) == data.num_valid < 27
    assert len(shares) >= 4 and max(shares.values()) > 0


@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
@pytest.mark.parametrize("staleness", [0, 2])
def test_policy_kl_is_that_of_the_current_policy_from_the_one_before_the_updates(
    env: str, staleness: int, tmp_path: Path
):
    config = toy_config(
        env=env,
        total_env_steps=170,
        env_config={"max_episode_steps": 4},
        optimizer={"learning_rate": 3e-2},
        staleness={"iterations": staleness},
        controller=MEASURED_OFTEN | {"kind": "kl"},
        **KEEP_ALL,
    )
    folder = train(config, tmp_path).folder
    found: list[float] = []
    for iteration, row in enumerate(rows(folder), start=1):
        if "batch/policy_kl" not in row:
            continue
        before, after, data = before_and_after(folder, iteration, config)
        states = data.obs[:-1][data.valid].double()
        behavior, current = (plain_policy(weights, states) for weights in (before, after))
        found.append(float(kl_divergence(current, behavior).mean()))
        assert row["batch/policy_kl"] == pytest.approx(found[-1], rel=2e-4, abs=1e-6)
        # The other way round is another number, though close to it where the policy moved little.
        assert found[-1] == 0 or float(kl_divergence(behavior, current).mean()) != pytest.approx(
            found[-1], rel=5e-4, abs=2e-6
        )
    assert len(found) >= 3 and max(found) > 1e-3


def plain_policy(weights: dict[str, Tensor], obs: Tensor) -> Any:
    params = plain_params(weights, obs)
    if "policy.log_std" in weights:
        return Independent(Normal(params, weights["policy.log_std"].exp()), 1)
    return Categorical(logits=params)


@pytest.mark.parametrize("states", [1, 5, 13, 1000])
def test_a_divergence_is_measured_on_so_many_valid_states_at_most(states: int):
    config = toy_pqn_config(
        env="toy:Constant",
        num_steps=11,
        env_config={"max_episode_steps": 3},
        controller={"kind": "divergence", "states": states, "min_steps": 11, "max_steps": 11, "every": 1},
    )
    state = start_pqn(config)
    data = state.source.collector.collect(state.network, 11)
    seen: list[Tensor] = []
    over = state.backend.outputs

    def run_and_keep(network: Any, obs: Tensor) -> Tensor:
        seen.append(obs)
        return over(network, obs)

    state.backend.outputs = run_and_keep  # type: ignore[method-assign]
    assert policy_change(config, state, probe(config, state, data)) == 0.0  # nothing has moved
    state.learner.iterations += 1
    stale = probe(config, state, data)  # asks the policy again
    assert torch.equal(stale.policy_params, over(state.network.policy_params, stale.obs))
    valid = {tuple(obs) for obs in data.obs[:-1][data.valid].tolist()}
    assert len(valid) == data.num_valid < data.valid.numel()
    draws = [[tuple(obs) for obs in some.tolist()] for some in seen]
    for draw in draws:
        assert len(set(draw)) == len(draw) == min(states, len(valid))
        assert set(draw) <= valid
    assert draws[0] != draws[1]  # another iteration, other states


@pytest.mark.parametrize("smoothing", [1.0, 0.5])
@pytest.mark.parametrize("make", [toy_pqn_config, toy_config], ids=["pqn", "ppo"])
def test_the_batch_goes_to_the_measured_noise_scale(make: Make, smoothing: float, tmp_path: Path):
    config = make(
        total_env_steps=1_000,
        objective={"discount": 0.0},  # little noise: the lengths are within the range
        optimizer={"learning_rate": 1e-2},
        controller={
            "kind": "noise_scale",
            "noise_sets": "minibatch",
            "min_steps": 2,
            "max_steps": 60,
            "start_steps": 9,
            "every": 1,
            "smoothing": smoothing,
        },
    )
    shown = rows(train(config, tmp_path).folder)
    length = 9.0
    for row in shown:
        assert row["batch/num_steps"] == math.floor(length + 0.5)
        trace, signal = row["noise/batch_trace"], row["noise/batch_signal"]
        target = 2.0 if signal <= 0 else min(max(trace / signal * 2 / ENVS, 2.0), 60.0)  # two minibatches
        length = (1 - smoothing) * length + smoothing * target
    assert len({row["batch/num_steps"] for row in shown}) > 3
    assert any(row["noise/batch_signal"] > 0 for row in shown)


def test_the_batch_goes_to_the_noise_scale_in_samples():
    config = toy_config(
        controller={
            "kind": "noise_scale",
            "noise_sets": "minibatch",
            "min_steps": 1,
            "max_steps": 99,
            "every": 1,
            "smoothing": 1.0,
        },
    )
    state = start(config)
    state.learner.noise.of_batch = (120.0, 1.0)  # a noise scale of 120 samples
    control_batch(config, state, None)
    assert state.batch.minibatch == 120
    assert state.batch.num_steps == 2 * 120 / ENVS  # two minibatches


def test_a_minibatch_limit_does_not_lengthen_the_rollouts_that_a_noise_scale_asks_for():
    """Beyond the limit there are more minibatches, which must not ask for still longer rollouts."""
    controller = {"kind": "noise_scale", "min_steps": 1, "max_steps": 99, "start_steps": 60, "smoothing": 1.0}
    controller |= {"every": 1, "noise_sets": "minibatch"}
    config = toy_config(controller=controller, minibatch=30)
    state = start(config)
    assert state.batch.minibatches_per_epoch == 60 * ENVS / 30
    state.learner.noise.of_batch = (120.0, 1.0)  # a noise scale of 120 samples
    control_batch(config, state, None)
    assert state.batch.num_steps == 2 * 120 / ENVS  # two minibatches, as below the limit


@pytest.mark.parametrize(
    ("make", "kind"), [(toy_pqn_config, "divergence"), (toy_config, "kl"), (toy_pqn_config, "noise_scale")]
)
def test_measuring_changes_nothing_of_the_training(make: Make, kind: str, tmp_path: Path):
    controller = {"kind": kind, "min_steps": STEPS, "max_steps": STEPS, "warmup": 1, "states": 5}
    config = make(total_env_steps=150, update={"noise_scale_every": 1}, controller=controller | {"every": 1})
    often = train(config, tmp_path / "often").folder
    never = train(changed(config, controller={"every": 10**9}), tmp_path / "never").folder
    fixed = train(changed(config, controller={"kind": "fixed"}), tmp_path / "fixed").folder
    for other in (never, fixed):
        found = differences(newest_state(often), newest_state(other))
        controller = "/shared/learner/control/controller"
        assert [path for path in found if not path.startswith(controller)] == []
    if kind != "noise_scale":
        assert len(newest_learner(often)["control"]["controller"]["measurements"]) > 3
        assert not newest_learner(never)["control"]["controller"]["measurements"]


def test_every_change_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = toy_pqn_config(
        total_env_steps=150,
        optimizer={"learning_rate": RATE},
        controller=SCHEDULE | {"compensate": "all"},
    )
    shown = rows(train(config, tmp_path).folder)
    changes = [
        (one["env_steps"], one["batch/num_steps"], other)
        for one, other in pairwise(shown)
        if one["batch/num_steps"] != other["batch/num_steps"]
    ]
    assert len(changes) == 2
    said = [line for line in capsys.readouterr().out.splitlines() if "rollouts of" in line]
    assert said == [
        f"{env_steps:,} env steps: rollouts of {before} → {after['batch/num_steps']} steps, "
        f"iteration batch {after['batch/iteration']}, minibatch {after['batch/minibatch']:.0f}, 2 epochs, "
        f"learning rate {after['charts/learning_rate']:.4g}"
        for env_steps, before, after in changes
    ]


def test_a_batch_that_stays_is_not_spoken_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    controller = {"kind": "divergence", "min_steps": 7, "max_steps": 7, "every": 1, "warmup": 1}
    train(toy_pqn_config(controller=controller), tmp_path)
    assert "rollouts of" not in capsys.readouterr().out


def test_the_recorded_plan_has_the_range_of_the_controller(tmp_path: Path):
    folder = train(toy_pqn_config(total_env_steps=20, controller=SCHEDULE), tmp_path).folder
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["step_range"] == [4, 14] and plan["batch"]["num_steps"] == 7


def test_proportional_epochs_wait_for_the_first_change(tmp_path: Path):
    config = toy_config(
        num_steps=8,
        total_env_steps=150,
        update={"epochs": 4},
        controller={"kind": "schedule", "schedule": ["0:4", "50:16"], "epochs": "proportional"},
    )
    assert isinstance(config, PPOConfig)
    done = {
        (row["batch/num_steps"], row["losses/epochs_done"]) for row in rows(train(config, tmp_path).folder)
    }
    assert done == {(4, 4), (16, 8)}


@pytest.mark.parametrize(
    ("controller", "length"),
    [
        (SCHEDULE, 14),
        ({"kind": "divergence", "min_steps": 2, "max_steps": 40, "start_steps": 9}, 9),
        ({"kind": "divergence", "min_steps": 3, "max_steps": 40}, 3),
    ],
    ids=["schedule", "start_steps", "min_steps"],
)
def test_a_controller_that_comes_with_a_resume_holds_from_its_first_iteration(
    controller: dict[str, Any], length: int, tmp_path: Path
):
    config = toy_pqn_config(total_env_steps=60)
    folder = train(config, tmp_path).folder
    done = len(rows(folder))
    resume(folder, changed(config, total_env_steps=110, controller=controller))
    after = lengths(folder)[done:]
    assert after and set(after) == {length}


def test_a_controller_can_be_left_at_a_resume(tmp_path: Path):
    config = toy_pqn_config(total_env_steps=60, controller=SCHEDULE)
    folder = train(config, tmp_path).folder
    resume(folder, changed(config, total_env_steps=100, controller={"kind": "fixed", "schedule": []}))
    assert lengths(folder)[-1] == STEPS


@pytest.mark.parametrize(("compensate", "kept"), [("none", True), ("all", False)])
def test_the_plan_says_whether_its_numbers_follow_a_batch_that_changes(compensate: str, kept: bool):
    controller = {"kind": "schedule", "schedule": ("0:7", "50:14"), "compensate": compensate}
    config = toy_config(
        controller=controller, proximal={"policy": "ewma"}, objective={"advantage_normalization": "iteration"}
    )
    rows = plan_table(config, planning.plan(config)).rows
    rules = [row.rule for row in rows if row.regime != "batch"]  # without the proximal policy's age
    assert len(rules) == 3
    assert all(rule.endswith("; kept while the batch changes") == kept for rule in rules)
    fixed = toy_config()
    assert not any("changes" in row.rule for row in plan_table(fixed, planning.plan(fixed)).rows)
