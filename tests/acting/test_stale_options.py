"""The options for stale data: a learning rate by effective samples, a proximal policy half the lag old."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from phase_runs import phase_config, rows
from toy_runs import (
    changed,
    collect,
    cut_back,
    differences,
    in_float64,
    newest_state,
    resume,
    start_in_float64,
    toy_config,
    train,
)

from anybatch.algorithms import ppo
from anybatch.algorithms.ppo import Samples, current_logp, effective_share
from anybatch.algorithms.ppo_state import PPOState
from anybatch.backends import TorchBackend
from anybatch.cli import main
from anybatch.config import PPOConfig
from anybatch.dial import make_plan, plan_table
from anybatch.equations import rescale
from anybatch.errors import ConfigError
from anybatch.runs.advice import advise

SCALED = {"staleness": {"scale_learning_rate": True}}
HALF_LAG = {"staleness": {"proximal_age": "half_lag"}}


def stale_samples(**changes: Any) -> tuple[PPOConfig, PPOState, Samples]:
    """Samples of two iterations ago, and a state whose policy has moved since."""
    config = toy_config(staleness={"iterations": 2, "scale_learning_rate": True}, **changes)
    data = in_float64(collect(config, iterations=2))
    state = start_in_float64(config)
    state.learner.iterations = 2
    values = state.backend.flat.values
    values += 0.5 * torch.randn(values.shape, generator=torch.Generator().manual_seed(1), dtype=values.dtype)
    return config, state, ppo.prepare(data, state, config)


def weights_by_hand(state: PPOState, samples: Samples) -> list[float]:
    own = state.network.state_dict()
    hidden = torch.tanh(
        samples.obs @ own["policy.encoder.layers.0.weight"].T + own["policy.encoder.layers.0.bias"]
    )
    logits = hidden @ own["policy.head.weight"].T + own["policy.head.bias"]
    logp = logits.log_softmax(-1)
    return [
        math.exp(float(logp[i, int(samples.action[i])]) - float(samples.behavior_logp[i]))
        for i in samples.valid.flatten().nonzero().squeeze(1).tolist()
    ]


@pytest.mark.parametrize("policy", ["behavior", "iteration_start", "ewma", "periodic"])
@pytest.mark.parametrize("cap", [100.0, 1.05])
def test_the_share_by_hand_is_that_of_the_current_policy_on_valid_samples(policy: str, cap: float):
    config, state, samples = stale_samples(
        proximal={"policy": policy},
        objective={"max_importance": cap},
        env_config={"max_episode_steps": 5},
    )
    assert not samples.valid.all()
    weights = [min(weight, cap) for weight in weights_by_hand(state, samples)]
    assert max(weights) > 1.04 and min(weights) < 0.95
    by_hand = sum(weights) ** 2 / sum(weight**2 for weight in weights) / len(weights)
    assert effective_share(samples, state, config) == pytest.approx(by_hand, rel=1e-9)

    metrics = ppo.update_policy(samples, state, config, 1e-2)
    used = state.steps.optimizer.param_groups[0]["lr"]
    assert used == metrics["charts/learning_rate"] == pytest.approx(1e-2 * math.sqrt(by_hand), rel=1e-9)
    assert metrics["staleness/effective_samples"] == pytest.approx(by_hand, rel=1e-9)
    assert metrics["staleness/learning_rate_factor"] == pytest.approx(math.sqrt(by_hand), rel=1e-9)


def test_a_weight_that_is_not_finite_leaves_the_learning_rate_as_it_is():
    config, state, samples = stale_samples()
    bad = int(samples.valid.flatten().nonzero()[3])
    samples.behavior_logp[bad] = math.nan
    assert effective_share(samples, state, config) == 1.0
    ppo.update_policy(samples, state, config, 1e-2)
    assert state.steps.optimizer.param_groups[0]["lr"] == 1e-2
    samples.valid[:] = False
    assert effective_share(samples, state, config) == 1.0


@pytest.mark.parametrize("policy", ["behavior", "iteration_start", "ewma"])
def test_the_weights_are_computed_where_the_samples_are(policy: str):
    """PPG has moved them to the device that trains on them before it asks."""
    config, state, samples = stale_samples(proximal={"policy": policy})
    elsewhere = {"behavior_logp": samples.behavior_logp.to("meta")}
    if policy == "iteration_start":
        elsewhere["proximal_logp"] = samples.proximal_logp.to("meta")
    assert current_logp(replace(samples, **elsewhere), state, config).device.type == "meta"


def test_the_weights_of_fresh_data_are_not_computed():
    config, state, samples = stale_samples()
    assert effective_share(samples, state, config) < 0.99
    samples.age_iterations = 0  # whatever the policy is, by its age it is the one that acted
    assert effective_share(samples, state, config) == 1.0


def test_fresh_data_are_trained_on_as_without_the_options_to_the_bit(tmp_path: Path):
    config = toy_config(proximal={"policy": "ewma"}, optimizer={"learning_rate": 1e-2})
    options = {"scale_learning_rate": True, "proximal_age": "half_lag"}
    plain, with_options = (
        train(changed(config, staleness=staleness), tmp_path / str(number)).folder
        for number, staleness in enumerate(({}, options))
    )
    assert not differences(newest_state(plain), newest_state(with_options))
    assert {row["staleness/learning_rate_factor"] for row in rows(with_options)} == {1.0}
    assert not any("staleness/learning_rate_factor" in row for row in rows(plain))


def test_the_learning_rate_of_a_run_is_the_annealed_one_times_the_factor(tmp_path: Path):
    config = toy_config(
        total_env_steps=400,
        staleness={"iterations": 3, "scale_learning_rate": True},
        optimizer={"learning_rate": 5e-2, "anneal": "linear"},
    )
    shown = rows(train(config, tmp_path).folder)
    factors = []
    for before, row in pairwise([{"env_steps": 0}, *shown]):
        annealed = 5e-2 * (1 - before["env_steps"] / 400)
        factors.append(row["staleness/learning_rate_factor"])
        assert row["charts/learning_rate"] == pytest.approx(annealed * factors[-1], rel=1e-9)
        assert row["staleness/effective_samples"] == pytest.approx(factors[-1] ** 2, rel=1e-12)
    assert factors[0] == 1  # no gradient step since these data were collected
    assert min(factors) < 0.99


def test_the_value_function_of_its_own_keeps_its_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its targets have no importance weights."""
    config = phase_config(
        staleness={"iterations": 2, "scale_learning_rate": True},
        phase={"value_epochs": 2},
        optimizer={"learning_rate": 5e-2},
        total_env_steps=200,
    )
    begin, seen = TorchBackend.begin_iteration, []

    def watched(self: Any, learning_rate: float, plan: Any, loss: str | None = None) -> None:
        seen.append((loss, learning_rate))
        begin(self, learning_rate, plan, loss)

    monkeypatch.setattr(TorchBackend, "begin_iteration", watched)
    train(config, tmp_path)
    of_policy, of_value = ([rate for loss, rate in seen if loss == one] for one in (None, "value"))
    assert set(of_value) == {5e-2} and len(of_policy) == len(of_value)
    assert min(of_policy) < 0.999 * 5e-2


# 64 envs × 64 steps ÷ 8, three epochs: 24 gradient steps an iteration.
TUNED = toy_config(
    num_envs=64,
    num_steps=64,
    update={"epochs": 3, "minibatches_per_epoch": 8},
    proximal={"policy": "ewma", "ewma_decay": 8 / 9},
)


@pytest.mark.parametrize(("delay", "center"), [(0, 8), (1, 12), (8, 96), (64, 768)])
def test_the_center_of_mass_is_half_of_the_lag(delay: int, center: float):
    config = changed(TUNED, staleness={"iterations": delay, "proximal_age": "half_lag"})
    run = make_plan(config, encoder="mlp").hyperparameters
    assert run.proximal_decay == pytest.approx(center / (1 + center), rel=1e-12)
    assert run.proximal_copy_every == 0
    copied = make_plan(changed(config, proximal={"policy": "periodic"}), encoder="mlp").hyperparameters
    assert copied.proximal_copy_every == (2 * center + 1)


def test_the_lag_is_that_of_this_run_at_any_batch():
    config = changed(TUNED, staleness={"iterations": 8, "proximal_age": "half_lag"})
    for changes in ({"num_envs": 4}, {"num_envs": 1024}, {"rescale": "none"}):
        plan = make_plan(changed(config, **changes), encoder="mlp")
        assert plan.hyperparameters.proximal_decay == 192 / 194
    split = make_plan(changed(config, num_envs=1024, minibatch=512), encoder="mlp")
    assert split.batch.gradient_steps_per_iteration == 16 * 24
    assert split.hyperparameters.proximal_decay == pytest.approx(3072 / 3074)


def test_the_plan_says_what_the_options_choose_or_would_choose():
    def said(**changes: Any) -> tuple[str, list[str]]:
        config = changed(TUNED, **changes)
        found = plan_table(config, make_plan(config, encoder="mlp"))
        (line,) = [line for line in found.lines if line.startswith("stale data")]
        return line, [f"{row.this_run}: {row.rule} [{row.regime}]" for row in found.rows]

    off, rows_off = said(staleness={"iterations": 8})
    assert off == (
        "stale data       8 iterations × 24 = lag of 192 gradient steps: --staleness.proximal-age half_lag "
        "would give a proximal EWMA decay of 0.989691 (center of mass 96); --staleness.scale-learning-rate "
        "would multiply the learning rate by √(effective samples ÷ samples) of each iteration"
    )
    assert "[lag]" not in "".join(rows_off) and "effective samples" not in "".join(rows_off)
    on, rows_on = said(staleness={"iterations": 8, "scale_learning_rate": True, "proximal_age": "half_lag"})
    assert "half of it gives a proximal EWMA decay" in on and "; the learning rate is multiplied by √" in on
    assert rows_on[0].endswith("; × √(effective samples ÷ samples) at each iteration [minibatch]")
    assert rows_on[1] == "0.989691: half of the lag of 192 gradient steps, not as tuned [lag]"
    plain, _ = said(staleness={"iterations": 1}, proximal={"policy": "behavior"})
    assert "1 iteration × 24" in plain and "half_lag with --proximal.policy ewma would give" in plain
    copied, _ = said(staleness={"iterations": 8}, proximal={"policy": "periodic"})
    assert "half_lag would give a proximal copy every 193;" in copied
    fresh = plan_table(TUNED, make_plan(TUNED, encoder="mlp"))
    assert not [line for line in fresh.lines if line.startswith("stale data")]


def test_the_json_of_a_plan_has_the_lag(capsys: pytest.CaptureFixture[str]):
    main(["plan", "--preset=cartpole-ppo-ewma", "--env=toy:Match", "--staleness.iterations=4", "--json"])
    shown = json.loads(capsys.readouterr().out)
    steps = shown["batch"]["minibatches_per_epoch"] * shown["batch"]["epochs"]
    assert shown["stale"] == {
        "iterations": 4,
        "gradient_steps": 4 * steps,
        "half_lag": 2 * steps,
        "ewma_decay": 4 * steps / (4 * steps + 2),
        "copy_every": 4 * steps + 1,
    }


@pytest.mark.parametrize(("compensate", "epochs"), [("none", 2), ("all", 6)])
def test_half_of_the_lag_follows_a_controller_only_if_numbers_do(compensate: str, epochs: int):
    """Of two epochs in the config and six that a controller chose."""
    config = toy_config(
        proximal={"policy": "ewma"},
        staleness={"iterations": 4, "proximal_age": "half_lag"},
        controller={"kind": "schedule", "schedule": ["0:7", "50:21"], "compensate": compensate},
    )
    numbers = make_plan(config, encoder="mlp", num_steps=21, epochs=6).hyperparameters
    assert rescale.center_of_mass(numbers.proximal_decay) == pytest.approx(4 * 2 * epochs / 2)


@pytest.mark.parametrize("policy", ["ewma", "periodic"])
def test_the_age_of_a_run_becomes_half_of_its_lag(policy: str, tmp_path: Path):
    config = toy_config(
        total_env_steps=3000,
        proximal={"policy": policy},
        staleness={"iterations": 4, "proximal_age": "half_lag"},  # of 4 gradient steps
        env_config={"options": {"reset": "same_step"}},
    )
    shown = rows(train(config, tmp_path).folder)[-68:]  # four periods of 17 gradient steps
    assert {row["staleness/gradient_steps"] for row in shown} == {16}
    ages = [row["proximal/age_gradient_steps"] for row in shown]
    assert sum(ages) / len(ages) == pytest.approx(8, rel=1e-3)


def test_an_age_that_follows_the_lag_is_not_kept_in_env_steps_when_the_batch_changes():
    config, state, _ = stale_samples(proximal={"policy": "ewma"})
    for changes, factor in (({}, 2.0), (HALF_LAG, 1.0)):
        state.backend.average.load_state_dict(state.backend.average.state_dict() | {"total_weight": 5.0})
        state.batch_changed(changed(config, **changes), 2 * state.batch.env_steps_per_gradient_step)
        assert state.backend.average.total_weight == 1 + 4 * factor


@pytest.mark.parametrize("policy", ["ewma", "periodic"])
def test_a_run_with_both_options_ends_as_if_it_had_not_been_interrupted(policy: str, tmp_path: Path):
    config = toy_config(
        total_env_steps=200,
        proximal={"policy": policy},
        staleness={"iterations": 2, "scale_learning_rate": True, "proximal_age": "half_lag"},
        optimizer={"learning_rate": 3e-2},
        record={"checkpoint_every_iterations": 1, "keep_checkpoints": 999},
    )
    whole = train(config, tmp_path / "whole")
    shown, ended = rows(whole.folder), newest_state(whole.folder)
    for iteration in (1, 4):
        copy = cut_back(whole.folder, tmp_path / str(iteration), shown[iteration - 1]["env_steps"])
        resume(copy, config)
        assert rows(copy) == shown and not differences(ended, newest_state(copy)), iteration


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            HALF_LAG,
            r"staleness\.proximal-age = half_lag needs proximal\.policy = ewma or periodic, not beh",
        ),
        (
            SCALED | {"proximal": {"policy": "iteration_start", "importance": "recent"}},
            r"staleness\.scale-learning-rate uses importance weights, which proximal\.importance = recent",
        ),
    ],
)
def test_options_that_would_do_nothing_are_refused(changes: dict[str, Any], sentence: str):
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        toy_config(**changes)


def test_no_advice_on_an_age_that_the_lag_decides():
    old = [{"proximal/age_env_steps": 4096 * 20}] * 5
    config = changed(TUNED, objective={"clip": None}, staleness={"iterations": 40})
    assert [found.flag for found in advise(old, config)] == ["--proximal.ewma-decay"]
    assert not advise(old, changed(config, **HALF_LAG))
