"""How the minibatch follows the batch: scaled, kept, or scaled up to a limit."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from phase_runs import phase_config, rows, with_changes
from toy_runs import (
    changed,
    cut_back,
    differences,
    newest_learner,
    newest_state,
    resume,
    toy_config,
    toy_pqn_config,
    train,
)

from anybatch.cli import main
from anybatch.config import RESCALE_RULES, AnyConfig, PPOConfig
from anybatch.dial import BatchControl, Plan, PlanTable, make_plan, plan_table
from anybatch.dial.controllers import Signals
from anybatch.errors import CheckpointError, ConfigError
from anybatch.rules import center_of_mass, minibatches_within

# 64 envs × 64 steps in 8 minibatches of 512, one epoch.
TUNED: dict[str, Any] = {
    "minibatch": "auto",
    "num_envs": 64,
    "num_steps": 64,
    "update": {"epochs": 1, "minibatches_per_epoch": 8},
    "proximal": {"policy": "ewma", "ewma_decay": 8 / 9},
    "objective": {"advantage_decay": 0.8},
    "optimizer": {"learning_rate": 1e-3},
}
BASE = toy_config(**TUNED)


def plan(config: AnyConfig = BASE, **changes: Any) -> Plan:
    return make_plan(changed(config, **changes), encoder="mlp")


def table(config: AnyConfig = BASE, **changes: Any) -> PlanTable:
    config = changed(config, **changes)
    return plan_table(config, make_plan(config, encoder="mlp"))


@pytest.mark.parametrize(
    ("envs", "minibatches", "minibatch", "learning_rate", "center", "advantage_iterations"),
    [
        (16, 8, 128, 5e-4, 32, 36),
        (64, 8, 512, 1e-3, 8, 9),
        (256, 8, 2048, 2e-3, 2, 2.25),  # at the limit
        (1024, 32, 2048, 2e-3, 2, 1),
        (4096, 128, 2048, 2e-3, 2, 1),
        (300, 10, 1920, 1e-3 * math.sqrt(3.75), 8 / 3.75, 9 * 64 / 300),  # nothing has to divide anything
    ],
)
def test_the_numbers_of_a_sweep_through_the_limit(
    envs: int,
    minibatches: int,
    minibatch: float,
    learning_rate: float,
    center: float,
    advantage_iterations: float,
):
    result = plan(num_envs=envs, minibatch=2048)
    run = result.hyperparameters
    assert (result.batch.minibatches_per_epoch, result.batch.minibatch) == (minibatches, minibatch)
    assert run.learning_rate == pytest.approx(learning_rate, rel=1e-12)
    assert center_of_mass(run.proximal_decay) == pytest.approx(center, rel=1e-9)
    size = (1 + run.advantage_decay) / (1 - run.advantage_decay)
    assert size == pytest.approx(advantage_iterations, rel=1e-9)


sizes = st.integers(1, 3000)


@given(envs=sizes, minibatches=st.integers(1, 64), limit=st.integers(512, 10**6), epochs=st.integers(1, 5))
def test_beyond_the_limit_gradient_steps_per_env_step_stay(
    envs: int, minibatches: int, limit: int, epochs: int
):
    update = {"minibatches_per_epoch": minibatches, "epochs": epochs}
    free = plan(num_envs=envs, update=update, minibatch="scaled")
    held = plan(num_envs=envs, update=update, minibatch=limit)
    assert held.batch.minibatch <= limit
    assert held.batch.iteration_batch == free.batch.iteration_batch
    if free.batch.minibatch <= limit:
        assert held.batch == free.batch and held.hyperparameters == free.hyperparameters
        return
    number = held.batch.minibatches_per_epoch
    assert held.batch.iteration_batch / (number - 1) > limit  # no more of them than the limit needs
    # What follows the minibatch is what the rules give at that minibatch, by whatever way it came about.
    counts = {"minibatches_per_epoch": number, "epochs": epochs}
    reached = plan(num_envs=envs, update=counts, minibatch="scaled")
    assert held.hyperparameters == reached.hyperparameters
    assert held.batch.env_steps_per_gradient_step == pytest.approx(held.batch.minibatch / epochs)


@given(limit=st.floats(1, 1e6), iteration_batch=st.floats(1, 1e9), minibatches=st.integers(1, 1000))
def test_the_unrounded_rule_has_one_minibatch_on_both_sides_of_the_limit(
    limit: float, iteration_batch: float, minibatches: int
):
    def minibatch(batch: float) -> float:
        return batch / minibatches_within(limit, iteration_batch=batch, minibatches=minibatches)

    at_the_limit = limit * minibatches
    assert minibatch(at_the_limit) == pytest.approx(limit)
    assert minibatch(at_the_limit * (1 + 1e-12)) == pytest.approx(minibatch(at_the_limit * (1 - 1e-12)))
    assert minibatch(iteration_batch) == pytest.approx(min(iteration_batch / minibatches, limit))
    rounded = minibatches_within(
        limit, iteration_batch=iteration_batch, minibatches=minibatches, rounded=True
    )
    assert rounded.is_integer() and iteration_batch / rounded <= limit * (1 + 1e-8)


def test_golden_numbers_of_minibatches():
    assert minibatches_within(512, iteration_batch=4096, minibatches=8) == 8
    assert minibatches_within(512, iteration_batch=5000, minibatches=8) == 9.765625
    assert minibatches_within(512, iteration_batch=5000, minibatches=8, rounded=True) == 10
    # 1,024 ÷ 49 is no float: 98 of them must not become 99.
    assert minibatches_within(1024 / 49, iteration_batch=2048, minibatches=49) > 98
    assert minibatches_within(1024 / 49, iteration_batch=2048, minibatches=49, rounded=True) == 98


def test_the_minibatch_tuned_at_as_the_limit_keeps_the_inner_loop():
    run = plan(num_envs=1024, minibatch=512, rescale=",".join(RESCALE_RULES))
    tuned = plan().hyperparameters
    assert run.ratios.minibatch == run.ratios.env_steps_per_gradient_step == 1
    assert run.ratios.iteration_batch == 16 and run.batch.minibatches_per_epoch == 128
    assert (run.hyperparameters.learning_rate, run.hyperparameters.beta1) == (tuned.learning_rate, 0.9)
    assert run.hyperparameters.proximal_decay == tuned.proximal_decay
    assert run.hyperparameters.advantage_decay == 0  # of the iteration batch


@pytest.mark.parametrize(
    ("envs", "minibatches", "minibatch", "learning_rate", "center", "advantage_iterations"),
    [
        (64, 8, 512, 1e-3, 8, 9),
        (1024, 128, 512, 1e-3, 8, 1),
        (32, 4, 512, 1e-3, 8, 18),
        (8, 1, 512, 1e-3, 8, 72),  # an iteration is one minibatch
        (2, 1, 128, 5e-4, 32, 288),  # and here a quarter of one: the rules take over for the rest
        (12, 2, 384, 1e-3 * math.sqrt(0.75), 8 / 0.75, 48),  # nothing has to divide anything
    ],
)
def test_the_numbers_of_a_sweep_that_keeps_the_minibatch(
    envs: int,
    minibatches: int,
    minibatch: float,
    learning_rate: float,
    center: float,
    advantage_iterations: float,
):
    result = plan(num_envs=envs, minibatch="keep")
    run = result.hyperparameters
    assert (result.batch.minibatches_per_epoch, result.batch.minibatch) == (minibatches, minibatch)
    assert run.learning_rate == pytest.approx(learning_rate, rel=1e-12)
    assert center_of_mass(run.proximal_decay) == pytest.approx(center, rel=1e-9)
    size = (1 + run.advantage_decay) / (1 - run.advantage_decay)
    assert size == pytest.approx(advantage_iterations, rel=1e-9)


@given(envs=sizes, minibatches=st.integers(1, 64))
def test_auto_is_scaled_below_the_tuned_batch_and_keep_above(envs: int, minibatches: int):
    changes = {"num_envs": envs, "update": {"minibatches_per_epoch": minibatches}}
    auto, other = plan(**changes), plan(**changes, minibatch="scaled" if envs <= 64 else "keep")
    assert (auto.batch, auto.ratios, auto.hyperparameters) == (
        other.batch,
        other.ratios,
        other.hyperparameters,
    )


@given(choice=st.sampled_from(["auto", "scaled", "keep", 512, 9000]), epochs=st.integers(1, 5))
def test_at_the_tuned_batch_every_choice_is_the_same(choice: str | int, epochs: int):
    config = replace(changed(BASE, update={"epochs": epochs}), tuned_at=None).pinned()
    run = make_plan(changed(config, minibatch=choice), encoder="mlp")
    assert run.batch == make_plan(config, encoder="mlp").batch and run.ratios.are_one
    assert run.hyperparameters == make_plan(config, encoder="mlp").hyperparameters
    assert not plan_table(config, run).warnings


@given(envs=sizes, minibatches=st.integers(1, 64))
def test_keep_holds_the_minibatch_and_its_hyperparameters_where_it_divides_the_batch(
    envs: int, minibatches: int
):
    run = plan(num_envs=envs, minibatch="keep", update={"minibatches_per_epoch": minibatches})
    kept = 4096 / minibatches
    assert run.batch.minibatch <= kept * (1 + 1e-9)
    assert run.batch.minibatches_per_epoch == max(1, math.ceil(envs * minibatches / 64))
    if envs * minibatches % 64 == 0:
        at_tuned = plan(minibatch="keep", update={"minibatches_per_epoch": minibatches}).hyperparameters
        assert run.hyperparameters.learning_rate == pytest.approx(at_tuned.learning_rate, rel=1e-12)
        assert run.hyperparameters.proximal_decay == pytest.approx(at_tuned.proximal_decay, rel=1e-12)
    if run.batch.iteration_batch < kept:
        assert run.batch.minibatches_per_epoch == 1


@given(first=st.sampled_from([2, 8, 32, 128]), second=st.sampled_from([2, 8, 64, 512, 1024]))
def test_keeping_twice_is_keeping_once(first: int, second: int):
    """A plan at one batch, taken as tuned there, leads to the same plan at another."""
    there = changed(BASE.pinned(), num_envs=first, minibatch="keep")
    stated = there.stated(make_plan(there, encoder="mlp"))
    on_the_way = replace(changed(there, **stated), tuned_at=None).pinned()
    twice = make_plan(changed(on_the_way, num_envs=second), encoder="mlp")
    once = plan(num_envs=second, minibatch="keep")
    if first >= 8:  # at least one whole minibatch on the way
        assert twice.batch == once.batch
        assert twice.hyperparameters.learning_rate == pytest.approx(once.hyperparameters.learning_rate)
        assert twice.hyperparameters.proximal_decay == pytest.approx(once.hyperparameters.proximal_decay)


def test_a_plan_says_where_keeping_the_minibatch_ends():
    def line(**changes: Any) -> str:
        (found,) = [line for line in table(**changes).lines if line.startswith("minibatch kept")]
        return found

    assert "4 minibatches per epoch instead of 8" in line(num_envs=32, minibatch="keep")
    assert "down to 1/8 of the tuned batch" in line(num_envs=32, minibatch="keep")
    assert "cannot hold one such minibatch" in line(num_envs=2, minibatch="keep")
    assert "128 minibatches per epoch" in line(num_envs=1024) and "--minibatch scaled" in line(num_envs=1024)
    assert not [line for line in table(num_envs=32).lines if "kept" in line]
    one_minibatch = table(num_envs=1, num_steps=4, minibatch="keep")  # fewer samples than minibatches
    assert "cannot hold one such minibatch" in one_minibatch.lines[3]


def test_with_auto_a_controller_changes_minibatches_and_not_their_number():
    schedule = {"kind": "schedule", "schedule": ["0:64", "1000:256"], "compensate": "all"}
    config = changed(BASE, num_envs=128, controller=schedule)
    control = BatchControl(config, encoder="mlp")
    assert control.plan.batch.minibatches_per_epoch == control.minibatches == 16
    control.load_state_dict(control.state_dict(), env_steps=2000)
    assert (control.plan.batch.minibatches_per_epoch, control.plan.batch.minibatch) == (16, 2048)
    assert control.plan.hyperparameters.learning_rate == pytest.approx(2e-3)
    assert control.plan.minibatch_regime == "minibatch"


PPG = phase_config(
    **TUNED, phase={"policy_iterations": 32, "auxiliary_minibatch": 256, "auxiliary_learning_rate": 4e-4}
)


@pytest.mark.parametrize(
    ("envs", "auxiliary", "learning_rate"),
    [(16, 64, 2e-4), (64, 256, 4e-4), (256, 1024, 8e-4), (1024, 1024, 8e-4)],
)
def test_the_auxiliary_minibatch_stops_where_the_minibatch_does(
    envs: int, auxiliary: int, learning_rate: float
):
    phase = make_plan(with_changes(PPG, num_envs=envs, minibatch=2048), encoder="mlp").phase
    assert phase is not None
    assert phase.auxiliary_minibatch == auxiliary
    assert phase.auxiliary_learning_rate == pytest.approx(learning_rate)
    assert phase.policy_iterations == 32 * 64 // envs
    assert phase.auxiliary_minibatches == 32 * 64 * 64 // auxiliary


@pytest.mark.parametrize(
    ("minibatch", "envs", "auxiliary"),
    [("auto", 16, 64), ("auto", 1024, 256), ("keep", 16, 256), ("keep", 1024, 256), ("keep", 4, 128)],
)
def test_the_auxiliary_minibatch_is_kept_where_the_minibatch_is(minibatch: str, envs: int, auxiliary: int):
    phase = make_plan(with_changes(PPG, num_envs=envs, minibatch=minibatch), encoder="mlp").phase
    assert phase is not None and phase.auxiliary_minibatch == auxiliary
    assert phase.auxiliary_learning_rate == pytest.approx(4e-4 * math.sqrt(auxiliary / 256))


def test_the_table_says_which_number_is_in_which_regime():
    def regimes(said: PlanTable) -> dict[str, str]:
        return {row.number: row.regime for row in said.rows}

    free, below, beyond = table(), table(minibatch=2048), table(num_envs=1024, minibatch=2048)
    of_the_minibatch = ("learning rate", "proximal EWMA decay")
    assert "minibatches per epoch" not in regimes(free)
    for said, regime in ((free, "minibatch"), (below, "minibatch"), (beyond, "minibatch limit")):
        assert {regimes(said)[number] for number in of_the_minibatch} == {regime}
        assert regimes(said)["advantage-statistics EWMA decay"] == "iteration batch"
        held = {row.number for row in said.rows if row.rule.endswith("; at the minibatch limit")}
        assert held == (set(of_the_minibatch) if regime == "minibatch limit" else set())
    assert regimes(beyond)["minibatches per epoch"] == "iteration batch"
    assert next(row for row in beyond.rows if row.number == "minibatches per epoch").this_run == "32"
    assert below.lines[3].startswith("minibatch limit  2,048 samples, 4 × tuned: not reached, so 8 ")
    assert beyond.lines[3] == (
        "minibatch limit  2,048 samples, 4 × tuned: reached, so 32 minibatches per epoch instead of 8, "
        "and what follows the minibatch stays the same"
    )
    assert regimes(below)["minibatches per epoch"] == "kept"
    assert set(regimes(table(num_envs=1024, minibatch=2048, rescale="none")).values()) == {
        "iteration batch",  # the minibatches
        "kept",
        "batch",  # the age of the proximal policy
    }
    ppg = {row.number: row.regime for row in table(PPG, num_envs=1024, minibatch=2048).rows}
    assert ppg["auxiliary minibatch"] == ppg["auxiliary learning rate"] == "minibatch limit"
    assert ppg["iterations per phase"] == "iteration batch"


def test_the_command_line_plans_with_a_limit(capsys: pytest.CaptureFixture[str]):
    words = ["--env=toy:Match", "--num-envs=64", "--json"]  # 8 envs × 128 steps ÷ 4 tuned at
    main(["plan", "--preset=cartpole-ppo-ewma", *words, "--minibatch=1k"])
    shown = json.loads(capsys.readouterr().out)
    tuned = shown["tuned_at"]["num_envs"] * shown["tuned_at"]["num_steps"]
    assert shown["minibatch_limit"]["samples"] == 1000 and shown["batch"]["minibatch"] <= 1000
    assert shown["minibatch_limit"]["ratio"] == 1000 / (tuned / shown["tuned_at"]["minibatches_per_epoch"])
    assert {row["regime"] for row in shown["rows"]} == {"minibatch limit", "iteration batch", "batch"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"minibatch": 511}, "minibatch = 511 is below the tuned minibatch of 512 samples;"),
        ({"minibatch": 0}, "minibatch = 0: must be at least 1"),
        (
            {"minibatch": "noise-scale"},
            "minibatch = noise-scale needs update.noise-scale-every above 0",
        ),
        (
            {
                "minibatch": "noise-scale",
                "update": {"noise_scale_every": 1},
                "controller": {"kind": "kl"},
            },
            "minibatch = noise-scale and controller.kind = kl both change the minibatch within a run",
        ),
        (
            {"minibatch": "keep", "update": {"noise_scale_every": 1}, "controller": {"kind": "noise_scale"}},
            "controller.kind = noise_scale changes the minibatch, which minibatch = keep does not allow",
        ),
        (
            {"minibatch": "noise"},
            "minibatch = 'noise': must be a whole number or one of auto, scaled",
        ),
    ],
)
def test_limits_that_cannot_be_are_refused(changes: dict[str, Any], sentence: str):
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        plan(**changes)


def test_a_controller_stays_within_the_limit(tmp_path: Path):
    schedule = {"kind": "schedule", "schedule": ["0:7", "50:14", "120:28"], "compensate": "all"}
    config = toy_config(
        total_env_steps=260, minibatch=20, controller=schedule, optimizer={"learning_rate": 1e-2}
    )
    shown = rows(train(config, tmp_path).folder)
    seen = {row["batch/num_steps"]: (row["batch/minibatch"], row["charts/learning_rate"]) for row in shown}
    # 3 envs, 2 minibatches of 10.5 tuned at; 84 samples need five of at most 20.
    assert seen[7] == (10.5, 1e-2)
    assert seen[14] == (14.0, pytest.approx(1e-2 * math.sqrt(14 / 10.5)))  # three, since 21 is above 20
    assert seen[28] == (16.8, pytest.approx(1e-2 * math.sqrt(16.8 / 10.5)))
    assert {row["batch/minibatch_limit"] for row in shown} == {20}
    lines = plan_table(config, BatchControl(config, encoder="mlp").plan).lines
    assert "iteration batch 21 to 84 samples, minibatch 10 to 17" in lines[4]


def test_the_regime_of_a_number_is_that_of_the_batch_it_belongs_to():
    """Without compensation, the configured one, whatever the length of the first rollout is."""
    schedule = {"kind": "schedule", "schedule": ["0:256", "1000:64"]}
    config = changed(BASE, minibatch=1024, controller=schedule)
    said = plan_table(config, BatchControl(config, encoder="mlp").plan)
    found = {row.number: (row.this_run, row.regime, row.rule) for row in said.rows}
    assert found["minibatches per epoch"][:2] == ("16", "iteration batch")
    assert found["learning rate"] == ("0.001", "minibatch", "× √1 (minibatch); kept while the batch changes")
    config = changed(config, controller={"compensate": "all"})
    said = plan_table(config, BatchControl(config, encoder="mlp").plan)
    assert {row.number: row.regime for row in said.rows}["learning rate"] == "minibatch limit"


def test_without_compensation_a_controller_changes_the_number_of_minibatches_alone(tmp_path: Path):
    schedule = {"kind": "schedule", "schedule": ["0:7", "50:28"]}
    config = toy_config(
        total_env_steps=150, minibatch=20, controller=schedule, optimizer={"learning_rate": 1e-2}
    )
    shown = rows(train(config, tmp_path).folder)
    assert {row["batch/minibatch"] for row in shown} == {10.5, 16.8}
    assert {row["charts/learning_rate"] for row in shown} == {1e-2}


# The limit that a run measures.

MEASURING: dict[str, Any] = {"minibatch": "noise-scale", "update": {"noise_scale_every": 1}}


def signals(trace: float, signal: float, measurements: int = 20) -> Signals:
    return Signals(
        iteration=1,
        env_steps=1,
        samples_per_step=64,
        minibatches=8,
        noise_trace=trace,
        noise_signal=signal,
        noise_measurements=measurements,
    )


def control(envs: int = 1024) -> BatchControl:
    return BatchControl(changed(BASE, num_envs=envs, **MEASURING), encoder="mlp")


def minibatches_after(found: BatchControl, *seen: Signals) -> int:
    """Each of them for as many iterations as a limit needs to go all the way."""
    for shown in seen:
        for _ in range(6):
            found.decide(shown)
    return found.plan.batch.minibatches_per_epoch


def test_a_measured_limit_starts_at_the_minibatch_tuned_at():
    found = control()
    assert found.plan.minibatch_limit is not None and found.plan.minibatch_limit.samples == 512
    assert found.plan.batch.minibatches_per_epoch == 128
    (line,) = [line for line in table(**MEASURING, num_envs=1024).lines if "limit" in line]
    assert "512 samples, 1 × tuned, until the noise scale is measured; then the noise scale" in line


def test_a_measured_limit_is_the_noise_scale_between_the_tuned_and_the_largest_minibatch():
    # 65,536 samples an iteration; its largest minibatch is 8,192.
    assert minibatches_after(control(), signals(2048, 1)) == 32
    assert minibatches_after(control(), signals(1e9, 1)) == 8
    assert minibatches_after(control(), signals(5, -1)) == 8  # noise hides the signal
    assert minibatches_after(control(), signals(100, 1)) == 128  # not below the minibatch tuned at
    assert minibatches_after(control(), signals(math.nan, 1)) == 128


def test_a_measured_limit_waits_for_ten_measurements():
    assert minibatches_after(control(), signals(2048, 1, measurements=9)) == 128
    assert minibatches_after(control(), signals(2048, 1, measurements=10)) == 32


def test_a_measured_limit_at_most_doubles_in_an_iteration_and_falls_at_once():
    found, limits = control(), []
    for shown in (signals(5, -1), signals(5, -1), signals(5, -1), signals(700, 1), signals(900, 1)):
        found.decide(shown)
        assert found.plan.minibatch_limit is not None
        limits.append(found.plan.minibatch_limit.samples)
    assert limits == [1024, 2048, 4096, 700, 700]


def test_a_measured_limit_moves_only_for_a_change_worth_a_new_plan():
    assert minibatches_after(control(), signals(2048, 1), signals(2800, 1), signals(1500, 1)) == 32
    assert minibatches_after(control(), signals(2048, 1), signals(2900, 1)) == 23
    assert minibatches_after(control(), signals(2048, 1), signals(1400, 1)) == 47


def test_the_numbers_follow_a_measured_limit_from_those_tuned_at():
    found = control()
    minibatches_after(found, signals(5000, 1), signals(700, 1), signals(2048, 1))
    assert found.plan.hyperparameters == plan(num_envs=1024, minibatch=2048).hyperparameters
    assert found.plan.batch == plan(num_envs=1024, minibatch=2048).batch


def test_the_limit_survives_a_checkpoint_and_a_damaged_one_is_refused():
    found = control()
    found.decide(signals(2048, 1))
    saved = json.loads(json.dumps(found.state_dict()))
    again = control()
    again.load_state_dict(saved, env_steps=5)
    assert again.plan == found.plan
    for wrong in (math.inf, -1.0, "many"):
        with pytest.raises(CheckpointError, match="its minibatch limit is"):
            control().load_state_dict(saved | {"minibatch_limit": wrong}, env_steps=5)


GROWN: dict[str, Any] = {
    "num_envs": 24,
    "total_env_steps": 5000,
    "minibatch": "noise-scale",
    "optimizer": {"learning_rate": 1e-2},
    "record": {"checkpoint_every_iterations": 1, "keep_checkpoints": 999},
    "tuned_at": {"num_envs": 3, "num_steps": 7, "minibatches_per_epoch": 2, "epochs": 2},
}
MEASURED = {
    "ppo-ewma": toy_config(**GROWN, update={"noise_scale_every": 1}, proximal={"policy": "ewma"}),
    "pqn": toy_pqn_config(**GROWN, update={"noise_scale_every": 1}),
    "ppg-ewma": phase_config(
        **GROWN | {"tuned_at": GROWN["tuned_at"] | {"epochs": 1}}, update={"noise_scale_every": 1}
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_run_that_measures_its_limit_ends_as_if_it_had_not_been_interrupted(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = MEASURED[name]
    whole = train(config, tmp_path / "whole")
    said = capsys.readouterr().out
    shown, ended = rows(whole.folder), newest_state(whole.folder)
    limits = [row["batch/minibatch_limit"] for row in shown]
    assert limits[0] == 10.5 and len(set(limits)) > 1  # it moved
    assert "minibatches per epoch, by the noise scale" in said
    for row in shown:
        minibatch, limit = row["batch/minibatch"], row["batch/minibatch_limit"]
        assert minibatch <= limit
        assert row["charts/learning_rate"] == pytest.approx(1e-2 * math.sqrt(minibatch / 10.5))
    moved = next(number for number, limit in enumerate(limits) if limit != 10.5)
    for iteration in (moved - 1, moved):  # before the first change, and with it
        copy = cut_back(whole.folder, tmp_path / str(iteration), shown[iteration]["env_steps"])
        saved = newest_learner(copy)["control"]["minibatch_limit"]
        assert (saved or 10.5) == limits[iteration + 1]
        resume(copy, config)
        assert rows(copy) == shown and not differences(ended, newest_state(copy)), iteration


def test_the_age_of_the_average_does_not_jump_when_the_limit_moves(tmp_path: Path):
    config = changed(
        MEASURED["ppo-ewma"],
        total_env_steps=6000,
        env_config={"options": {"reset": "same_step"}},
        update={"epochs": 1},  # ten measurements later the age is steady
        tuned_at={"epochs": 1},
    )
    shown = rows(train(config, tmp_path).folder)
    moves = [
        after["proximal/age_env_steps"]
        for before, after in pairwise(shown)
        if before["batch/minibatch"] != after["batch/minibatch"] and before["env_steps"] > 600
    ]
    assert moves and moves == pytest.approx([8 * 10.5] * len(moves), rel=0.01)


def test_a_run_of_before_the_limit_existed_resumes_with_one(tmp_path: Path):
    config: PPOConfig = toy_config(total_env_steps=60, update={"noise_scale_every": 1})
    folder = train(config, tmp_path).folder
    resume(folder, changed(config, total_env_steps=120, num_envs=12, minibatch="noise-scale"))
    assert {row.get("batch/minibatch_limit") for row in rows(folder)} >= {None, 10.5}
