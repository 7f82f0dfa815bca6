"""PQN: what reaches its loss, how it explores, that a run is its seed, and problems that it must solve."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from phase_runs import phase_config, rows
from toy_runs import (
    changed,
    cut_back,
    differences,
    evaluate,
    in_float64,
    newest_learner,
    newest_state,
    resume,
    start_pqn,
    start_pqn_in_float64,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch.acting.rollout import Rollout
from anybatch.algorithms import pqn
from anybatch.algorithms.pqn import PQNState, for_inference
from anybatch.algorithms.schedules import Schedules
from anybatch.cli import main
from anybatch.config import PQNConfig
from anybatch.errors import ConfigError, TrainingError
from anybatch.runs import log
from anybatch.runs import metrics as metric_names

RATE = 1e-2
EPISODES_OF_3 = {"max_episode_steps": 3}
BUSY: dict[str, Any] = {
    "env_config": {"max_episode_steps": 5},
    "objective": {"reward_scale": 0.5},
    "exploration": {"fraction": 0.7, "end": 0.1},
    "optimizer": {"learning_rate": RATE, "anneal": "linear", "max_grad_norm": 0.5},
    "update": {"noise_scale_every": 3},
    "record": {"checkpoint_every_iterations": 1, "keep_checkpoints": 99},
}


def collect(config: PQNConfig, epsilon: float = 0.5) -> Rollout:
    state = start_pqn(config)
    state.network.epsilon = epsilon
    return state.source.collector.collect(state.network, config.num_steps)


def improved(config: PQNConfig, data: Rollout, microbatch: int | None = None) -> tuple[PQNState, dict]:
    """A float64 state after one iteration on `data`, and its metrics."""
    state = start_pqn_in_float64(config)
    state.backend.microbatch = microbatch or state.backend.microbatch
    metrics = pqn.update_values(pqn.prepare(in_float64(data), config), state, config, RATE)
    return state, metrics


def test_episodes_of_three_steps_have_every_fourth_row_left_out():
    data = collect(toy_pqn_config(env="toy:Constant", num_steps=9, env_config=EPISODES_OF_3))
    for env in range(3):
        assert data.valid[:, env].tolist() == [True, True, True, False] * 2 + [True]
        assert data.truncated[:, env].tolist() == [False, False, True, False] * 2 + [False]


def test_what_stands_in_reset_steps_reaches_no_loss():
    config = toy_pqn_config(num_steps=23, env_config=EPISODES_OF_3, update={"noise_scale_every": 1})
    data = collect(config)
    assert 10 < int((~data.valid).sum()) < 40
    clean, clean_metrics = improved(config, data)
    poisoned = replace(data, **{name: tensor.clone() for name, tensor in data.tensors().items()})
    gone = ~data.valid
    poisoned.obs[:-1][gone] = torch.nan
    for numbers in (poisoned.reward, poisoned.next_value, poisoned.value, poisoned.behavior_logp):
        numbers[gone] = 1e9
    poisoned.action[gone] = 4
    found, metrics = improved(config, poisoned)
    assert torch.equal(found.backend.flat.values, clean.backend.flat.values)
    assert metrics == clean_metrics
    poisoned.reward[data.valid] += 1
    assert not torch.equal(improved(config, poisoned)[0].backend.flat.values, clean.backend.flat.values)


def test_values_are_fitted_for_the_action_that_was_taken():
    config = toy_pqn_config(num_steps=5, update={"epochs": 1, "minibatches_per_epoch": 1})
    data = collect(config)
    state = start_pqn_in_float64(config)
    samples = pqn.prepare(in_float64(data), config)
    valid = data.valid.flatten()
    with torch.no_grad():
        table = state.network.policy_params(samples.obs[valid])
    value = table[range(len(table)), samples.action[valid]]
    metrics = pqn.update_values(samples, state, config, RATE)
    error = (value - samples.target[valid]) ** 2
    assert metrics["losses/td_loss"] == pytest.approx(float(error.mean()), rel=1e-12)
    assert metrics["losses/q_values"] == pytest.approx(float(value.mean()), rel=1e-12)


@pytest.mark.parametrize("game", ["Match", "Corridor", "Constant"])
def test_both_ways_to_reset_give_the_same_targets_for_the_same_transitions(game: str):
    per_env: list[list[list[tuple[float, ...]]]] = []
    for reset in ("next_step", "same_step"):
        config = toy_pqn_config(
            env=f"toy:{game}",
            num_steps=41,
            env_config={"max_episode_steps": 7, "options": {"reset": reset}},
        )
        data = collect(config, epsilon=0.0)  # what is drawn for a reset step must not change the next action
        target = pqn.prepare(in_float64(data), config).target.view(data.valid.shape)
        columns = (data.action, data.reward, data.next_value, data.terminated, data.truncated, target)
        per_env.append([finished_rows(data, columns, env) for env in range(3)])
    for next_step, same_step in zip(*per_env, strict=True):
        assert len(next_step) > 10
        for one, other in zip(next_step, same_step, strict=False):
            assert one == pytest.approx(other, rel=1e-5, abs=1e-6)


def finished_rows(data: Rollout, columns: tuple[torch.Tensor, ...], env: int) -> list[tuple[float, ...]]:
    """The valid rows of an env up to its last episode end: later targets depend on the rollout's length."""
    last_end = int(data.episode_end[:, env].nonzero()[-1])
    rows = [t for t in range(last_end + 1) if data.valid[t, env]]
    return [tuple(float(column[t, env]) for column in columns) for t in rows]


def test_exploration_falls_with_env_steps_to_its_floor_at_a_tenth_of_the_run():
    config = PQNConfig(total_env_steps=20_000_000)
    schedules = Schedules.of(config)
    shares = {steps: schedules.epsilon(config, steps) for steps in (0, 1_000_000, 2_000_000, 20_000_000)}
    assert shares == pytest.approx({0: 1.0, 1_000_000: 0.5005, 2_000_000: 0.001, 20_000_000: 0.001})
    assert schedules.epsilon(config, 1_999_999) > 0.001


def test_the_gradient_is_clipped_before_the_optimizer_sees_it():
    config = toy_pqn_config(
        num_steps=23,
        update={"epochs": 1, "minibatches_per_epoch": 1},
        optimizer={"name": "sgd", "max_grad_norm": 0.25},
    )
    state = start_pqn_in_float64(config)
    before = state.backend.flat.values.clone()
    metrics = pqn.update_values(pqn.prepare(in_float64(collect(config)), config), state, config, 0.125)
    assert metrics["losses/grad_norm"] > 1 and metrics["losses/grad_clip_fraction"] == 1.0
    moved = torch.linalg.vector_norm(state.backend.flat.values - before)
    assert float(moved) == pytest.approx(0.125 * 0.25, rel=1e-5)


def test_radam_and_a_gradient_norm_of_ten_are_the_defaults():
    optimizer = PQNConfig().optimizer
    assert (optimizer.name, optimizer.max_grad_norm, optimizer.anneal) == ("radam", 10.0, "none")


def test_microbatches_equal_one_batch():
    config = toy_pqn_config(
        num_steps=31,
        env_config=EPISODES_OF_3,
        update={"epochs": 4, "minibatches_per_epoch": 2},
        optimizer={"max_grad_norm": 0.5},
    )
    data = collect(config)
    minibatch = -(-data.num_valid // 2)
    assert minibatch % 3 and minibatch % 5  # those parts are uneven
    whole, whole_metrics = improved(config, data, minibatch)
    for number in (2, 3, 5, minibatch):
        parts, metrics = improved(config, data, -(-minibatch // number))
        torch.testing.assert_close(
            parts.backend.flat.values, whole.backend.flat.values, rtol=1e-12, atol=1e-12
        )
        assert parts.steps.counts.norms == pytest.approx(whole.steps.counts.norms, rel=1e-12)
        assert metrics == pytest.approx(whole_metrics, rel=1e-12)
    assert (whole.backend.flat.values - start_pqn_in_float64(config).backend.flat.values).abs().max() > 1e-3


def test_a_step_that_is_no_number_ends_the_run_naming_what_was_bad():
    config = toy_pqn_config(num_steps=23, update={"epochs": 9, "minibatches_per_epoch": 1})
    samples = pqn.prepare(in_float64(collect(config)), config)
    samples.target[3 * 17 + 2] = torch.nan  # env 2 at step 17 of three envs
    state = start_pqn_in_float64(config)
    before = state.backend.flat.values.clone()
    with pytest.raises(TrainingError, match=r"the first is the target of environment 2 at step 17 of the"):
        pqn.update_values(samples, state, config, RATE)
    assert torch.equal(state.backend.flat.values, before)


def test_an_iteration_of_reset_steps_only_changes_nothing(tmp_path: Path):
    config = toy_pqn_config(
        env="toy:Constant",
        num_envs=1,
        num_steps=1,
        total_env_steps=4,
        env_config={"max_episode_steps": 1},
        update={"minibatches_per_epoch": 1, "epochs": 1},
    )
    shown = rows(train(config, tmp_path).folder)
    assert [row["batch/valid_fraction"] for row in shown] == [1.0, 0.0] * 3 + [1.0]
    assert [row["charts/gradient_steps"] for row in shown] == [1, 1, 2, 2, 3, 3, 4]
    assert all("losses/td_loss" not in row for row in shown[1::2])


@pytest.mark.parametrize("env", ["toy:Match", "envpool:CartPole-v1"])
def test_two_runs_of_one_seed_are_equal_to_the_bit(env: str, tmp_path: Path):
    config = toy_pqn_config(env=env, total_env_steps=200)
    first, second = (train(config, tmp_path / name) for name in ("first", "second"))
    assert not differences(newest_state(first.folder), newest_state(second.folder))
    assert rows(first.folder) == rows(second.folder)
    assert first.evaluation == second.evaluation
    other = train(changed(config, seed=2), tmp_path / "other")
    found = differences(newest_state(first.folder), newest_state(other.folder))
    assert "/shared/learner/network/head.weight" in found


@pytest.mark.parametrize("reset", ["next_step", "same_step"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(reset: str, tmp_path: Path):
    config = changed(toy_pqn_config(total_env_steps=150, **BUSY), env_config={"options": {"reset": reset}})
    whole = train(config, tmp_path / "whole")
    shown = rows(whole.folder)
    assert len(shown) >= 7
    for row in (shown[0], shown[4], shown[-1]):  # the last: nothing is left to do but to evaluate
        copy = cut_back(whole.folder, tmp_path / str(row["env_steps"]), row["env_steps"])
        resumed = resume(copy, config)
        assert not differences(newest_state(whole.folder), newest_state(copy))
        assert rows(copy) == shown
        assert resumed.evaluation == whole.evaluation
        assert resumed.training_return == whole.training_return


def test_an_evaluation_explores_as_little_as_the_end_of_the_run(tmp_path: Path):
    config = toy_pqn_config(
        exploration={"start": 1.0, "end": 0.25, "fraction": 1.0},
        evaluation={"num_envs": 7, "episodes_per_env": 3, "greedy": False},
    )
    outcome = train(config, tmp_path)
    assert rows(outcome.folder)[-1]["charts/epsilon"] > 0.25
    assert evaluate(outcome.folder, config).evaluation == outcome.evaluation
    spec = start_pqn(config).source.collector.env.spec
    network, normalizer = for_inference(config, spec, newest_state(outcome.folder)["shared"])
    assert network.epsilon == 0.25 and normalizer is None


def test_rewards_are_scaled_for_learning_and_not_in_the_score(tmp_path: Path):
    config = toy_pqn_config(total_env_steps=20)
    plain, scaled = (
        rows(train(changed(config, objective={"reward_scale": scale}), tmp_path / str(scale)).folder)[0]
        for scale in (1.0, 0.1)
    )
    assert plain["charts/episodic_return"] == scaled["charts/episodic_return"] > 0
    assert plain["losses/td_loss"] != scaled["losses/td_loss"]


def test_continuous_actions_are_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--preset=cartpole-pqn", "--env=toy:Target", f"--run-dir={tmp_path}"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "PQN needs one Discrete action, but toy:Target has actions Box of 2 numbers" in said
    assert len(said.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_a_limit_on_the_kl_is_refused():
    with pytest.raises(
        ConfigError, match=r"^update.target-kl = 0.01 needs a policy with probabilities, which PQN"
    ):
        toy_pqn_config(update={"target_kl": 0.01})


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (
            toy_pqn_config,
            "kl",
            r"^controller.kind = kl needs a signal that PQN does not have; it takes fixed,",
        ),
        (
            toy_config,
            "divergence",
            r"^controller.kind = divergence needs a signal that PPO does not have; it",
        ),
        (
            phase_config,
            "kl",
            r"^controller.kind = kl changes the batch within a run, but all iterations of a",
        ),
        (phase_config, "noise_scale", r"^controller.kind = noise_scale changes the batch within a run, but"),
        (phase_config, "schedule", r"^controller.kind = schedule changes the batch within a run, but all"),
        (phase_config, "divergence", r"^controller.kind = divergence changes the batch within a run, but"),
    ],
)
def test_controllers_without_their_signal_are_refused(make: Any, kind: str, said: str):
    schedule = ["0:4"] if kind == "schedule" else []
    with pytest.raises(ConfigError, match=said):
        make(controller={"kind": kind, "schedule": schedule}, update={"noise_scale_every": 1})


def test_a_run_with_a_controller_produces_every_metric_of_pqn(tmp_path: Path):
    config = toy_pqn_config(
        total_env_steps=200,
        update={"noise_scale_every": 1},
        controller={"kind": "divergence", "min_steps": 4, "max_steps": 8, "every": 2, "warmup": 1},
        evaluation={"every_env_steps": 100},
    )
    produced: set[str] = set()
    for row in log.read(train(config, tmp_path).folder):
        produced |= {name for name, value in row.items() if value is not None}
    produced -= {"env_steps", "wall_seconds"}
    not_of_pqn = (
        *("actors/", "advantage/", "proximal/", "importance/", "staleness/", "auxiliary/", "time/auxiliary"),
        *("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/approx_kl"),
        *("losses/clipfrac", "losses/explained_variance", "batch/policy_kl", "batch/noise_scale_value"),
        *("charts/normalized_return", "charts/recent_return", "batch/minibatch_limit"),
        *("batch/rank_imbalance", "charts/ranks", "time/collectives"),  # of several ranks
    )
    missing = metric_names.METRICS.keys() - produced
    assert produced <= metric_names.METRICS.keys()
    seldom = ("noise/", "batch/noise_scale", "time/callback")  # after some measurements, or with a callback
    assert not [name for name in missing if not name.startswith((*not_of_pqn, *seldom))]
    assert not [name for name in produced if name.startswith(not_of_pqn)]


def test_the_action_that_is_shown_is_learned_with_its_value(tmp_path: Path):
    discount = 0.5
    config = toy_pqn_config(
        num_envs=8,
        num_steps=16,
        total_env_steps=16_000,
        env_config={"max_episode_steps": 1_000},  # ends are by chance, not by the limit
        update={"epochs": 2, "minibatches_per_epoch": 4},
        objective={"discount": discount},
        exploration={"fraction": 0.5, "end": 0.05},
        optimizer={"learning_rate": 3e-3, "anneal": "linear"},
        network={"hidden_sizes": [32]},
        evaluation={"num_envs": 30, "greedy": True},
    )
    outcome = train(config, tmp_path)
    assert outcome.evaluation is not None
    assert outcome.evaluation.mean_return / outcome.evaluation.mean_length == 1.0  # chance is 0.2
    state = start_pqn(config)
    state.network.load_state_dict(newest_learner(outcome.folder)["network"])
    with torch.no_grad():
        value = state.network.policy_params(torch.eye(5)).max(1).values
    # Behavior takes a random action at times, which the trace sees and the best policy does not.
    best = 1 / (1 - 7 / 8 * discount)
    torch.testing.assert_close(value, torch.full((5,), best), rtol=0, atol=0.1)


def test_the_way_out_of_a_corridor_is_learned_with_its_values():
    discount = 0.8
    config = toy_pqn_config(
        env="toy:Corridor",
        num_envs=8,
        num_steps=16,
        total_env_steps=12_000,
        update={"epochs": 2, "minibatches_per_epoch": 4},
        objective={"discount": discount, "q_lambda": 0.65},
        exploration={"fraction": 0.5, "end": 0.02},
        optimizer={"learning_rate": 3e-3, "anneal": "linear"},
        network={"hidden_sizes": [32]},
    )
    state = start_pqn(config)
    while state.env_steps < config.total_env_steps:
        state.network.epsilon = state.learner.schedules.epsilon(config, state.env_steps)
        data = state.source.collector.collect(state.network, config.num_steps)
        rate = 3e-3 * (1 - state.env_steps / config.total_env_steps)
        pqn.update_values(pqn.prepare(data, config), state, config, rate)
        state.learner.env_steps += data.num_valid
    with torch.no_grad():
        value, action = state.network.policy_params(torch.eye(5)).max(1)
    assert action.tolist() == [1] * 5
    expected = torch.tensor([discount ** (4 - cell) for cell in range(5)])
    torch.testing.assert_close(value, expected, rtol=0, atol=0.05)


def test_next_values_of_stale_data_are_the_current_networks_but_at_the_ends_of_episodes():
    config = toy_pqn_config(env="toy:Constant", env_config={"max_episode_steps": 3})
    state = start_pqn_in_float64(config)
    data = in_float64(collect(config))
    assert pqn.valued_now(data, state) is data  # fresh
    state.learner.iterations += 2
    state.backend.flat.values += 0.3
    with torch.no_grad():
        now = state.network.policy_params(data.obs[1:].flatten(0, 1)).amax(1).view_as(data.next_value)
    again = pqn.valued_now(data, state).next_value
    assert data.episode_end.any() and not data.episode_end.all()
    assert torch.equal(again[data.episode_end], data.next_value[data.episode_end])
    torch.testing.assert_close(again[~data.episode_end], now[~data.episode_end])
    assert not torch.isclose(again, data.next_value)[~data.episode_end].any()
