"""Runs held near a periodic copy of their weights: what they reduce to, their dial, their resumes."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from phase_runs import phase_config, rows
from toy_runs import (
    changed,
    cut_back,
    differences,
    newest_state,
    one_iteration,
    resume,
    start,
    start_from,
    toy_config,
    train,
)

from anybatch.cli import main
from anybatch.config import PPOConfig
from anybatch.dial import PlanTable, make_plan, plan_table
from anybatch.errors import ConfigError
from anybatch.rules import center_of_mass, mean_copy_age
from anybatch.runs.advice import advise

KEEP_ALL = {"record": {"checkpoint_every_iterations": 1, "keep_checkpoints": 999}}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return newest_state(folder)["shared"]["learner"]["network"]


@pytest.mark.parametrize(
    "objective", [{"clip": 0.01}, {"kl_penalty": 0.5}, {"kl_penalty": 0.5, "kl": "exact"}]
)
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_copy_at_the_start_of_each_iteration_is_decoupled_ppo(
    epochs: int, objective: dict[str, Any], tmp_path: Path
):
    def run(policy: str, copy_every: int, name: str) -> Path:
        config = toy_config(
            precision="float64",
            total_env_steps=200,
            update={"epochs": epochs, "minibatches_per_epoch": 3},
            proximal={"policy": policy, "copy_every": copy_every},
            objective=objective,
            optimizer={"learning_rate": 3e-2},
        )
        return train(config, tmp_path / name).folder

    per_iteration = 3 * epochs
    recent = run("iteration_start", per_iteration, "recent")
    copied = run("periodic", per_iteration, "copied")
    torch.testing.assert_close(weights(copied), weights(recent), rtol=1e-9, atol=1e-10)
    other = run("periodic", per_iteration + 1, "other")
    assert not torch.allclose(
        weights(other)["policy.head.weight"], weights(recent)["policy.head.weight"], atol=1e-6
    )
    ages = {row["proximal/age_gradient_steps"] for row in rows(copied)}
    assert ages == {(per_iteration - 1) / 2}


def test_a_copy_after_every_gradient_step_never_holds_the_update_back(tmp_path: Path):
    config = toy_config(
        proximal={"policy": "periodic", "copy_every": 1},
        optimizer={"learning_rate": 3e-2},
        precision="float64",
    )
    for row in rows(train(config, tmp_path).folder):
        assert row["losses/clipfrac"] == 0 and row["proximal/kl"] == pytest.approx(0, abs=1e-20)
        assert row["proximal/age_env_steps"] == row["proximal/age_gradient_steps"] == 0


def test_stale_data_are_held_near_the_copy_and_not_near_the_policy_that_acted(tmp_path: Path):
    config = toy_config(
        total_env_steps=200,
        proximal={"policy": "periodic", "copy_every": 4},  # one iteration of 2 epochs of 2
        staleness={"iterations": 3},
        optimizer={"learning_rate": 1e-2},
    )
    learning = rows(train(config, tmp_path).folder)
    assert learning[0]["charts/iterations"] == 4  # three filled the queue, and taught nothing
    assert {row["proximal/age_gradient_steps"] for row in learning} == {1.5}
    assert learning[-1]["staleness/gradient_steps"] == 12


PROCGEN = toy_config(
    num_envs=256,
    num_steps=256,
    update={"epochs": 1, "minibatches_per_epoch": 8},
    proximal={"policy": "periodic", "copy_every": 17},
)


def planned(**changes: Any) -> tuple[int, PlanTable]:
    config = changed(PROCGEN, **changes)
    plan = make_plan(config, encoder="mlp")
    return plan.hyperparameters.proximal_copy_every, plan_table(config, plan)


@pytest.mark.parametrize(("envs", "copy_every"), [(16, 257), (64, 65), (256, 17), (1024, 5), (4096, 2)])
def test_the_dial_keeps_the_age_in_env_steps(envs: int, copy_every: int):
    found, said = planned(num_envs=envs)
    assert found == copy_every
    assert mean_copy_age(found) * envs == 8 * 256
    average = make_plan(changed(PROCGEN, num_envs=envs, proximal={"policy": "ewma"}), encoder="mlp")
    assert center_of_mass(average.hyperparameters.proximal_decay) == pytest.approx(mean_copy_age(found))
    row = next(row for row in said.rows if row.number == "proximal copy every, gradient steps")
    assert row.meaning is not None
    assert (row.tuned_at, row.meaning.tuned_at) == ("17", "8")
    assert (row.this_run, row.meaning.this_run) == (f"{copy_every}", f"{(copy_every - 1) / 2:.4g}")
    by_ratio = f"÷ {envs // 256}" if envs >= 256 else f"× {256 // envs}"
    assert row.rule == f"{by_ratio} (env steps per gradient step)"


def test_the_copy_has_a_rule_of_its_own():
    kept, said = planned(num_envs=64, rescale="learning-rate,proximal-ewma")
    assert kept == 17
    assert "kept (--rescale without proximal-copy)" in [row.rule for row in said.rows]
    assert planned(num_envs=64, rescale="proximal-copy")[0] == 65
    assert planned(num_envs=1024, minibatch=8192)[0] == 17
    average = make_plan(changed(PROCGEN, proximal={"policy": "ewma"}), encoder="mlp")
    assert average.hyperparameters.proximal_copy_every == 0


def test_a_copy_too_young_to_hold_anything_back_is_said():
    assert "proximal copy" not in " ".join(planned(num_envs=8 * 256)[1].warnings)  # every 3: 1 step old
    said = " ".join(planned(num_envs=16 * 256)[1].warnings)
    assert "proximal copy is 0.5 gradient steps old on average" in said


def test_a_copy_cannot_be_taken_more_often_than_the_weights_change(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    with pytest.raises(ConfigError, match=r"^proximal\.copy-every = 0: must be at least 1"):
        toy_config(proximal={"policy": "periodic", "copy_every": 0})
    with pytest.raises(SystemExit) as ending:
        main(["train", "--env=toy:Match", f"--run-dir={tmp_path}", "--proximal.copy-every=-3"])
    assert ending.value.code == 2
    assert "proximal.copy-every = -3: must be at least 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


STEADY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "total_env_steps": 4_000,
    "update": {"epochs": 1, "minibatches_per_epoch": 4},
    "proximal": {"policy": "periodic", "copy_every": 17},  # 8 gradient steps of 8 env steps
    "env_config": {"options": {"reset": "same_step"}},
}


@pytest.mark.parametrize("compensate", ["all", "none"])
def test_the_age_of_a_compensated_copy_stays_in_env_steps(compensate: str, tmp_path: Path):
    config = toy_config(
        **STEADY,
        controller={
            "kind": "schedule",
            "schedule": ["0:8", "1000:32", "2000:2", "3000:8"],
            "compensate": compensate,
        },
    )
    shown = rows(train(config, tmp_path).folder)

    def mean_age(since: int, until: int) -> float:
        """Over gradient steps, of which each iteration has four."""
        ages = [row["proximal/age_env_steps"] for row in shown if since < row["env_steps"] <= until]
        return sum(ages) / len(ages)

    stretches = [mean_age(*ends) for ends in pairwise((0, 1000, 2000, 3000, 4000))]
    if compensate == "all":
        assert stretches == pytest.approx([64] * 4, rel=0.15)
    else:
        assert stretches[1] > 2 * 64 > 64 > 2 * stretches[2]


def test_at_a_change_of_the_batch_the_clock_counts_the_coming_gradient_steps():
    config = toy_config(**STEADY)
    saved = start(config)
    for _ in range(3):
        one_iteration(config, saved)
    saved.learner.iterations, saved.learner.env_steps = 3, 96
    assert saved.backend.average.clock == 12
    fewer = start_from(changed(config, num_envs=1), saved.snapshot())
    assert fewer.backend.average.clock == 48 and fewer.plan.hyperparameters.proximal_copy_every == 65
    kept = start_from(changed(config, num_envs=1, rescale="learning-rate"), saved.snapshot())
    assert kept.backend.average.clock == 12 and kept.plan.hyperparameters.proximal_copy_every == 17


def test_a_run_can_change_between_a_copy_and_an_average(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    periodic = toy_config(proximal={"policy": "periodic", "copy_every": 5}, total_env_steps=60)
    folder = train(periodic, tmp_path).folder
    resume(folder, changed(periodic, proximal={"policy": "ewma"}, total_env_steps=120))
    assert "has no proximal EWMA: it starts from the current weights" in capsys.readouterr().out
    resume(folder, changed(periodic, total_env_steps=180))
    said = capsys.readouterr().out
    assert "has no proximal copy of the weights: it starts from the current weights" in said


PHASES = phase_config(
    proximal={"policy": "periodic", "copy_every": 5}, total_env_steps=260, **KEEP_ALL
)  # 2 gradient steps an iteration, 3 iterations a phase


def test_a_phase_begins_with_a_copy(tmp_path: Path):
    shown = rows(train(PHASES, tmp_path).folder)
    # Ages in a phase: 0, 1 | 2, 3 | 4, then a copy: 0. The next phase copies again, after 6 gradient steps.
    by_iteration = [0.5, 2.5, 2.0]
    ages = [row["proximal/age_gradient_steps"] for row in shown]
    assert ages == [by_iteration[number % 3] for number in range(len(shown))]


def test_a_phasic_run_with_copies_ends_as_if_it_had_not_been_interrupted(tmp_path: Path):
    whole = train(PHASES, tmp_path / "whole")
    shown, ended = rows(whole.folder), newest_state(whole.folder)
    for iteration in range(2, 7):
        copy = cut_back(whole.folder, tmp_path / str(iteration), shown[iteration - 1]["env_steps"])
        resume(copy, PHASES)
        assert rows(copy) == shown and not differences(ended, newest_state(copy)), iteration


def test_advice_on_the_age_names_the_flag_of_the_copy():
    config: PPOConfig = changed(PROCGEN, objective={"clip": None})
    (found,) = advise([{"proximal/age_env_steps": 65_536 / 8}] * 5, config)
    assert found.flag == "--proximal.copy-every"
