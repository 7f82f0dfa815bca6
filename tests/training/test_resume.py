"""A run is its seed: the same twice, the same when interrupted, another with another seed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_runs import (
    changed,
    differences,
    newest_learner,
    newest_state,
    one_iteration,
    prepare,
    resume,
    start,
    start_from,
    toy_config,
    train,
    without_episodes,
)

from anybatch import envs
from anybatch.algorithms import ppo
from anybatch.config import EnvConfig, PPOConfig
from anybatch.errors import ConfigError, UserError
from anybatch.runs import folder as run_folder
from anybatch.runs import log
from anybatch.runs.record import RunRecord

EVERYTHING_ON: dict[str, Any] = {
    "env_config": {"max_episode_steps": 5},
    "normalize": {"observations": "step", "rewards": "step"},
    "objective": {"advantage_decay": 0.5, "entropy_coefficient": 0.01},
    "optimizer": {"learning_rate": 1e-2, "anneal": "linear", "max_grad_norm": 0.5},
    "update": {"noise_scale_every": 3},
    "record": {"checkpoint_every_iterations": 1},
}
# Shows how fast it went and when, which is not the seed's doing.
WALL_CLOCK = ("wall_seconds", "charts/SPS", "time/")


class Killed(BaseException):
    """Ends a run where it is, like a kill: nothing catches it, nothing is saved."""


def train_until_killed(
    config: PPOConfig, base: Path, iterations: int, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run that dies within the update after so many whole iterations."""
    improve, calls = ppo.update_policy, []

    def improve_or_die(*arguments: Any) -> Any:
        calls.append(1)
        metrics = improve(*arguments)
        if len(calls) > iterations:
            raise Killed
        return metrics

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ppo, "update_policy", improve_or_die)
        train(config, base)
    (folder,) = base.iterdir()
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith(WALL_CLOCK)}
        for row in log.read(folder)
    ]


@pytest.mark.parametrize("policy", ["behavior", "iteration_start", "ewma", "periodic"])
@pytest.mark.parametrize("env", ["toy:Match", "toy:Target"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    policy: str, env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = toy_config(env=env, proximal={"policy": policy}, total_env_steps=200, **EVERYTHING_ON)
    whole = train(config, tmp_path / "whole")
    killed = train_until_killed(config, tmp_path / "killed", 5, monkeypatch)
    assert newest_learner(killed)["iterations"] == 5
    resumed = resume(killed, config)

    assert newest_learner(whole.folder)["iterations"] >= 10
    assert not differences(newest_state(whole.folder), newest_state(killed))
    assert rows(whole.folder) == rows(killed)
    assert resumed.evaluation == whole.evaluation
    assert resumed.training_return == whole.training_return


def test_a_run_can_be_interrupted_at_every_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = toy_config(proximal={"policy": "ewma"}, total_env_steps=100, **EVERYTHING_ON)
    whole = train(config, tmp_path / "whole")
    killed = train_until_killed(config, tmp_path / "killed", 0, monkeypatch)
    for _ in range(3):
        env_steps = newest_learner(killed)["env_steps"]
        resume(killed, changed(config, total_env_steps=env_steps + 1, optimizer={"anneal": "none"}))
    # Without annealing a shorter run is the beginning of a longer one.
    unannealed = train(changed(config, optimizer={"anneal": "none"}), tmp_path / "unannealed")
    resume(killed, changed(config, optimizer={"anneal": "none"}))
    assert not differences(newest_state(unannealed.folder), newest_state(killed))
    assert differences(newest_state(whole.folder), newest_state(killed))


@pytest.mark.parametrize("env", ["toy:Match", "envpool:CartPole-v1"])
def test_two_runs_of_one_seed_are_equal_to_the_bit(env: str, tmp_path: Path):
    config = toy_config(env=env, proximal={"policy": "ewma"}, total_env_steps=200)
    first, second = (train(config, tmp_path / name) for name in ("first", "second"))
    assert not differences(newest_state(first.folder), newest_state(second.folder))
    assert rows(first.folder) == rows(second.folder)
    other = train(changed(config, seed=2), tmp_path / "other")
    found = differences(newest_state(first.folder), newest_state(other.folder))
    assert "/shared/learner/network/policy.head.weight" in found


@pytest.mark.parametrize("env", ["toy:Constant", "envpool:CartPole-v1", "gym:CartPole-v1"])
def test_neighboring_seeds_share_no_initial_observation(env: str):
    seen: list[tuple[float, ...]] = []
    for seed in (1, 2, 3):
        collector = start(toy_config(env=env, num_envs=16, seed=seed)).source.collector
        seen += [tuple(obs) for obs in collector.obs.tolist()]
        collector.env.close()
    assert len(set(seen)) == 48


def test_the_first_envs_stay_when_there_are_more_of_them():
    few, many = (start(toy_config(env="toy:Constant", num_envs=envs)).source.collector for envs in (3, 7))
    assert np.array_equal(few.obs, many.obs[:3])


@pytest.mark.parametrize(("before", "after"), [("envpool", "native"), ("native", "envpool")])
def test_a_run_that_resumes_on_another_engine_starts_fresh_episodes(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(env="CartPole-v1", env_config={"engine": before}, total_env_steps=63)
    outcome = train(config, tmp_path)
    capsys.readouterr()
    resume(outcome.folder, changed(config, env_config={"engine": after}, total_env_steps=126))
    assert "fresh ones are started" in capsys.readouterr().out
    assert rows(outcome.folder)[-1]["env_steps"] >= 126


STEADY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "total_env_steps": 2_500,
    "update": {"epochs": 1, "minibatches_per_epoch": 4},
    "proximal": {"policy": "ewma", "ewma_decay": 32 / 33},  # 32 gradient steps of 8 env steps
    "optimizer": {"learning_rate": 1e-3},
}


@pytest.mark.parametrize("envs", [16, 1])
def test_a_resume_at_another_batch_keeps_the_age_of_the_average_and_rescales(
    envs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(**STEADY)
    outcome = train(config, tmp_path)
    steady = rows(outcome.folder)[-1]
    assert steady["proximal/age_env_steps"] == pytest.approx(32 * 8, rel=0.01)

    resume(outcome.folder, changed(config, num_envs=envs, total_env_steps=5_000 if envs > 4 else 3_000))
    assert "fresh ones are started" in capsys.readouterr().out
    after = [row for row in rows(outcome.folder) if row["env_steps"] > steady["env_steps"]]
    assert after[0]["charts/iterations"] == steady["charts/iterations"] + 1
    assert after[0]["batch/iteration"] == envs * 8
    assert after[0]["charts/learning_rate"] == pytest.approx(1e-3 * (envs / 4) ** 0.5)
    for row in after:
        assert row["proximal/age_env_steps"] == pytest.approx(32 * 8, rel=0.05)
    if envs == 16:  # long enough to be steady again: as old in env steps, younger in gradient steps
        assert after[-1]["proximal/age_gradient_steps"] == pytest.approx(8, rel=0.05)


def test_without_its_rule_the_average_is_not_touched_by_another_batch():
    config = toy_config(**STEADY, rescale="none")
    saved = start(config)
    for _ in range(3):
        one_iteration(config, saved)
    fewer = start_from(changed(config, num_envs=1), saved.snapshot())
    assert fewer.plan.hyperparameters.proximal_decay == 32 / 33
    assert fewer.backend.average.age_gradient_steps == saved.backend.average.age_gradient_steps


def test_a_run_that_had_several_ranks_keeps_recording_their_number(tmp_path: Path):
    """Also if the newest checkpoint is of one process: ranks 2, 1 and, resumed once more, 1."""
    config = toy_config()
    folder = train(config, tmp_path).folder
    first, *others = log.read(folder)
    lines = [first | {"charts/ranks": 2}, *others]
    (folder / log.METRICS_FILE).write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    resume(folder, changed(config, total_env_steps=2 * config.total_env_steps))
    assert {row["charts/ranks"] for row in log.read(folder)[len(lines) :]} == {1}


def test_a_schedule_that_a_resume_brings_holds_from_its_first_iteration(tmp_path: Path):
    def scheduled(points: tuple[str, ...], total: int) -> PPOConfig:
        controller = {"kind": "schedule", "schedule": points}
        return changed(config, controller=controller, total_env_steps=total)

    config = toy_config(num_envs=2, num_steps=5)
    folder = train(scheduled(("0:5", "1000:20"), 60), tmp_path).folder
    done = rows(folder)[-1]["env_steps"]
    resume(folder, scheduled(("0:5", "50:11"), 100))
    later = [row["batch/num_steps"] for row in rows(folder) if row["env_steps"] > done]
    assert later and set(later) == {11}


def test_a_finished_run_is_left_as_it_is_and_an_evaluation_that_is_missing_is_made(tmp_path: Path):
    config = toy_config()
    folder = train(config, tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.glob("*.json*")}
    with pytest.raises(ConfigError, match=r"has done its .* continue it with a larger --total-env-steps"):
        resume(folder, changed(config, num_envs=2))
    assert {path.name: path.read_bytes() for path in folder.glob("*.json*")} == before

    longer = changed(config, total_env_steps=2 * config.total_env_steps)
    resume(folder, longer)
    (folder / "result.json").write_bytes(before["result.json"])  # as if killed while it was evaluated
    assert resume(folder, longer).evaluation is not None


def test_a_run_says_from_where_a_resume_would_continue(tmp_path: Path):
    config = toy_config(record={"checkpoint_every_iterations": 2})
    outcome = train(config, tmp_path)
    saved = newest_learner(outcome.folder)["env_steps"]
    assert outcome.saved_env_steps == saved >= 100
    assert f"(saved at {saved:,} env steps)" in outcome.how_to_continue()


def test_a_resume_reads_nothing_while_another_process_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = toy_config()
    folder = train(config, tmp_path).folder
    monkeypatch.setattr(RunRecord, "load_checkpoint", lambda *_: pytest.fail("read before the lock"))
    with run_folder.lock(folder), pytest.raises(UserError, match="another process is training"):
        resume(folder, config)


def test_a_resume_at_another_batch_and_back_has_the_numbers_of_the_start(tmp_path: Path):
    config = toy_config(**STEADY)
    folder = train(config, tmp_path).folder
    for num_envs, total in ((16, 2_800), (3, 2_900), (4, 3_000)):
        resume(folder, changed(config, num_envs=num_envs, total_env_steps=total))
    rates = {row["charts/learning_rate"] for row in rows(folder) if row["batch/iteration"] == 32}
    assert rates == {1e-3}


def test_a_resume_on_an_engine_that_cannot_restore_starts_fresh_episodes_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(
        env="envpool:CartPole-v1",
        normalize={"observations": "step", "rewards": "iteration"},
        proximal={"policy": "ewma"},
    )
    folder = train(config, tmp_path).folder
    before = newest_state(folder)["shared"]
    resumed = resume(folder, changed(config, total_env_steps=200))
    after = newest_state(folder)["shared"]
    assert "fresh ones are started" in capsys.readouterr().out
    assert resumed.env_steps >= 200
    assert after["learner"]["iterations"] > before["learner"]["iterations"]
    assert after["observation_normalizer"]["count"] > before["observation_normalizer"]["count"]
    taken = [shared["learner"]["steps"]["optimizer"]["step"] for shared in (before, after)]
    assert taken[1] > taken[0]


def test_fresh_episodes_after_a_resume_are_others_than_those_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made: list[list[int]] = []
    make = envs.make

    def remember(env: str, settings: EnvConfig, *, seeds: list[int], first_env: int = 0) -> Any:
        made.append(seeds)
        return make(env, settings, seeds=seeds, first_env=first_env)

    monkeypatch.setattr(envs, "make", remember)
    config = toy_config(env="envpool:CartPole-v1")
    folder = train(config, tmp_path).folder
    for total in (200, 300):
        resume(folder, changed(config, total_env_steps=total))
    training = [seeds for seeds in made if len(seeds) == config.num_envs]
    assert len(training) == 3 and len({seed for seeds in training for seed in seeds}) == 9
    evaluation = [seeds for seeds in made if len(seeds) == config.evaluation.num_envs]
    assert evaluation == [evaluation[0]] * 3  # results of one run are compared on the same episodes


def test_fresh_episodes_start_with_no_return_under_way():
    config = toy_config(num_steps=7, normalize={"rewards": "step"})
    saved = start(config)
    data = saved.source.collector.collect(saved.network, 7)
    prepare(data, saved, config)
    assert saved.reward_normalizer.running_return.any()
    restored = start_from(config, saved.snapshot())
    assert np.array_equal(restored.reward_normalizer.running_return, saved.reward_normalizer.running_return)
    fresh = start_from(config, without_episodes(saved.snapshot()))
    assert not fresh.reward_normalizer.running_return.any()


def test_a_proximal_average_can_be_turned_on_by_a_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = toy_config()
    folder = train(config, tmp_path).folder
    resume(folder, changed(config, total_env_steps=200, proximal={"policy": "ewma"}))
    assert "starts from the current weights" in capsys.readouterr().out
    assert "proximal/age_env_steps" in rows(folder)[-1]


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("env = toy:Match, not toy:Corridor", {"env": "toy:Corridor"}),
        ("precision = float32, not float64", {"precision": "float64"}),
        (r"network.hidden_sizes = \(11,\), not \(12,\)", {"network": {"hidden_sizes": [12]}}),
        ("optimizer.name = adam, not sgd", {"optimizer": {"name": "sgd"}}),
        ("normalize.observations = none, not step", {"normalize": {"observations": "step"}}),
        ("normalize.rewards = none, not iteration", {"normalize": {"rewards": "iteration"}}),
    ],
)
def test_a_resume_cannot_change_what_a_checkpoint_depends_on(
    setting: str, changes: dict[str, Any], tmp_path: Path
):
    config = toy_config(total_env_steps=20)
    folder = train(config, tmp_path).folder
    with pytest.raises(ConfigError, match=f"^this run has {setting}: a resume cannot change that$"):
        resume(folder, changed(config, total_env_steps=40, **changes))
