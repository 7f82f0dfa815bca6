"""The library as a program uses it."""

import logging
import math
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from custom_networks import TwoLayers, no_features, too_few_outputs, whole_network
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from toy_runs import newest_state

import anybatch
from anybatch.cli import main
from anybatch.config import EnvConfig
from anybatch.envs.toy import ToyEnv
from anybatch.runs import log

SMALL: dict[str, Any] = {
    "env": "toy:Match",
    "num_envs": 4,
    "num_steps": 8,
    "total_env_steps": 200,
    "evaluation": {"num_envs": 2},
    "record": {"tensorboard": False},
    "network": {"hidden_sizes": [8]},
}


def train(tmp_path: Path, preset: str = "cartpole-ppo-ewma", **changes: Any) -> anybatch.TrainedRun:
    return anybatch.train(preset, run_dir=tmp_path, **SMALL | changes)


def make_cartpole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def test_every_public_name_can_be_imported():
    assert all(hasattr(anybatch, name) for name in anybatch.__all__)
    assert dir(anybatch) == sorted(anybatch.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = anybatch.nothing  # type: ignore[attr-defined]


def test_a_run_shows_what_it_measured(tmp_path: Path):
    run = train(tmp_path)
    assert run.finished and run.folder.parent == tmp_path and run.env_steps >= 200
    rows = log.read(run.folder)
    known = [row for row in rows if row.get("charts/episodic_return") is not None]
    curve = run.returns()
    assert curve.env_steps.tolist() == [row["env_steps"] for row in known]
    assert curve.values.tolist() == [row["charts/episodic_return"] for row in known]
    assert run.metric("losses/entropy").values.shape == (len(rows),)
    assert run.metric("losses/td_loss").values.shape == (0,)  # PQN's
    with pytest.raises(
        anybatch.UserError, match=r"there is no metric losses/entrop; did you mean losses/entropy\?"
    ):
        run.metric("losses/entrop")
    assert run.result["evaluation"]["episodes"] == 2
    assert isinstance(run.advice(), list)
    assert repr(run) == f"TrainedRun({str(run.folder)!r})"
    assert anybatch.TrainedRun(tmp_path).folder == run.folder


def test_changes_of_the_batch_take_the_numbers_along(tmp_path: Path):
    run = train(tmp_path, "cartpole-ppo", total_env_steps=20, num_envs=2, num_steps=128)
    numbers = run.plan.numbers
    assert numbers.hyperparameters.learning_rate == pytest.approx(
        run.config.optimizer.learning_rate * np.sqrt(2 / numbers.tuned_at.num_envs)
    )
    optimizer = anybatch.OptimizerConfig(learning_rate=3e-4)
    own = anybatch.PPOConfig(env="toy:Match", num_envs=2, optimizer=optimizer)
    rates = {n: anybatch.plan(own, num_envs=n).numbers.hyperparameters.learning_rate for n in (1, 2, 8)}
    # Above the tuned batch the minibatch is kept, and so is what follows it.
    assert rates == {1: pytest.approx(3e-4 / math.sqrt(2)), 2: 3e-4, 8: 3e-4}


def test_a_plan_prints_as_a_table_and_becomes_json():
    plan = anybatch.plan("procgen-ppg-ewma", num_envs=16)
    assert "learning rate" in str(plan) and "× √(1/16) (minibatch)" in str(plan) and repr(plan) == str(plan)
    assert not [line for line in str(plan).splitlines() if line != line.rstrip()]
    numbers = plan.to_json()
    assert numbers["hyperparameters"]["learning_rate"] == 0.000125  # type: ignore[index]
    assert len(numbers["rows"]) == 7  # type: ignore[arg-type]


def test_unknown_settings_are_refused_by_name(tmp_path: Path):
    with pytest.raises(anybatch.ConfigError, match=r"unknown num_env; did you mean num_envs\?"):
        train(tmp_path, num_env=3)
    with pytest.raises(anybatch.ConfigError, match="unknown lr; the settings are name, learning_rate"):
        anybatch.plan("cartpole-ppo", optimizer={"lr": 1e-3})
    with pytest.raises(anybatch.ConfigError, match=r"unknown learning_rat; did you mean learning_rate\?"):
        train(tmp_path, optimizer={"learning_rat": 1.0})
    with pytest.raises(anybatch.ConfigError, match=r"; did you mean optimizer\.learning_rate\?"):
        train(tmp_path, learning_rate=1.0)
    with pytest.raises(anybatch.ConfigError, match=r"write optimizer=\{'learning_rate': …\} instead"):
        train(tmp_path, **{"optimizer.learning_rate": 1.0})


def test_arguments_of_wrong_type_are_refused_before_anything_is_written(tmp_path: Path):
    run = train(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for call, said in {
        lambda: anybatch.train(run_dir=None, **SMALL): "run_dir = None: must be a path",
        lambda: anybatch.load(3): "folder = 3: must be a path",
        lambda: train(tmp_path, on_iteration=3): "on_iteration = 3: must be a function",
        lambda: run.evaluate(2, checkpoint=None): "checkpoint = None: must be newest, best or a number",
        lambda: anybatch.tune(search={"clip": (0.1,)}): r"clip = \(0\.1,\): must be the two ends of a range",
        lambda: anybatch.tune(search={"clip": 0.1}): "clip = 0.1: must be the two ends of a range",
        lambda: anybatch.tune(seeds=3): "seeds = 3: must be a list, each entry a whole number",
        lambda: anybatch.tune(trials=True): "trials = True: must be a whole number",
        lambda: anybatch.tune(num_envs="x"): "num_envs = 'x': must be a whole number",
        lambda: anybatch.tune(budget=3): "'3' must be a duration such as 20m",
    }.items():
        with pytest.raises(anybatch.UserError, match=said):
            call()  # type: ignore[arg-type]
    assert sorted(tmp_path.rglob("*")) == before


def test_numbers_may_be_of_numpy_and_a_checkpoint_may_be_a_number(tmp_path: Path):
    run = train(tmp_path, num_envs=np.int64(2), optimizer={"learning_rate": np.float32(0.5)}, name="mine")
    assert (run.folder.name, run.config.num_envs, run.config.optimizer.learning_rate) == ("mine", 2, 0.5)
    assert len(run.evaluate(np.int64(3), checkpoint=run.env_steps).episodes) == 3
    with pytest.raises(anybatch.ConfigError, match="num_envs = True: must be a whole number"):
        train(tmp_path, num_envs=True)


def test_a_resume_cannot_end_before_it_begins(tmp_path: Path):
    stopped = train(tmp_path, total_env_steps=5_000, on_iteration=lambda one: one.stop())
    with pytest.raises(anybatch.ConfigError, match="total-env-steps = 10: this run has already done 29"):
        anybatch.resume(stopped.folder, total_env_steps=10)
    assert stopped.config.total_env_steps == 5_000
    assert anybatch.resume(stopped.folder, total_env_steps=40).finished


def test_a_count_can_be_written_as_1e6(tmp_path: Path):
    assert anybatch.plan("cartpole-ppo", total_env_steps=1e6).config.total_env_steps == 1_000_000
    file = tmp_path / "mine.toml"
    file.write_text('extends = "cartpole-ppo"\ntotal_env_steps = 1e6\n')
    assert anybatch.plan(file).config.total_env_steps == 1_000_000
    with pytest.raises(anybatch.ConfigError, match=r"total_env_steps = 1000\.5: must be a whole number"):
        anybatch.plan("cartpole-ppo", total_env_steps=1000.5)


def test_a_resume_continues_at_another_batch(tmp_path: Path):
    run = train(tmp_path)
    resumed = anybatch.resume(run.folder, num_envs=6, total_env_steps=400)
    assert resumed.folder == run.folder and resumed.env_steps >= 400 and resumed.config.num_envs == 6
    with pytest.raises(anybatch.ConfigError, match="continue it with a larger --total-env-steps"):
        anybatch.resume(run.folder)


def test_envs_per_rank_are_those_of_the_run_and_of_its_plan(tmp_path: Path):
    assert anybatch.plan("cartpole-ppo", envs_per_rank=6).numbers.batch.num_envs == 6
    settings = {name: value for name, value in SMALL.items() if name != "num_envs"}
    run = anybatch.train("cartpole-ppo-ewma", run_dir=tmp_path, envs_per_rank=6, **settings)
    assert run.config.num_envs == 6
    with pytest.raises(anybatch.ConfigError, match="num-envs has no effect on a run with envs-per-rank = 6"):
        anybatch.resume(run.folder, num_envs=3, total_env_steps=400)


def test_training_is_quiet_unless_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, logger="anybatch"):
        run = train(tmp_path, env="envpool:CartPole-v1")
        run.evaluate(1)
        anybatch.resume(run.folder, total_env_steps=400)
    assert capfd.readouterr() == ("", "")
    assert "cannot be restored" in caplog.text  # EnvPool starts fresh episodes
    train(tmp_path, progress=True)
    assert "env steps (100%)" in capfd.readouterr().out


def test_another_thread_can_train_and_no_signal_handler_stays(tmp_path: Path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    runs: list[anybatch.TrainedRun] = []
    thread = threading.Thread(target=lambda: runs.append(train(tmp_path)))
    thread.start()
    thread.join()
    assert runs[0].finished
    train(tmp_path)
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert after == before


def test_an_agent_acts_on_one_observation_and_on_a_batch(tmp_path: Path):
    run = train(tmp_path, env="gym:CartPole-v1")
    agent = anybatch.load(run.folder)
    assert repr(agent) == f"Agent('CartPole-v1', env_steps={agent.env_steps})"
    one = agent.act(np.zeros(4))
    assert one in (0, 1) and isinstance(one, int)
    batch = agent.act(np.zeros((5, 4), dtype=np.float32))
    assert batch.shape == (5,) and (batch == one).all()
    sampled = agent.act(np.zeros((500, 4)), greedy=False)
    assert 0 < sampled.mean() < 1
    with pytest.raises(anybatch.EnvError, match=r"shape \(3,\) does not fit"):
        agent.act(np.zeros(3))
    env = make_cartpole()
    obs, _ = env.reset(seed=3)
    env.step(agent.act(obs))


def test_continuous_actions_of_an_agent_are_within_the_bounds(tmp_path: Path):
    run = train(tmp_path, "mujoco-ppo", env="gym:Pendulum-v1")
    agent = anybatch.load(run.folder)
    space = gymnasium.make("Pendulum-v1").action_space
    assert space.contains(agent.act(np.zeros(3, dtype=np.float32), greedy=False))
    assert agent.act(np.zeros((2, 3))).shape == (2, 1)


class Shop(gymnasium.Env[Any, Any]):
    """Dict observations with an action mask: only the action that is shown is allowed and pays."""

    observation_space = gymnasium.spaces.Dict(
        {
            "action_mask": gymnasium.spaces.MultiBinary(3),
            "numbers": gymnasium.spaces.Box(-1, 1, (2,)),
        }
    )
    action_space = gymnasium.spaces.Discrete(3)

    def _look(self) -> dict[str, np.ndarray]:
        self._wanted = int(self.np_random.integers(3))
        mask = np.eye(3, dtype=np.int8)[self._wanted]
        return {"action_mask": mask, "numbers": np.zeros(2, dtype=np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._wanted)
        self._steps += 1
        return self._look(), reward, self._steps == 5, False, {}


def test_a_function_that_makes_an_env_is_an_environment(tmp_path: Path):
    run = train(tmp_path, env=Shop)
    assert run.config.env == "object:Shop"
    assert run.evaluate(episodes=3).mean_return == 5.0  # masks leave one action
    agent = anybatch.load(run.folder, env=Shop)
    obs = {"action_mask": np.array([0, 0, 1], dtype=np.int8), "numbers": np.zeros(2, dtype=np.float32)}
    assert agent.act(obs) == 2
    with pytest.raises(anybatch.EnvError, match="pass it as env="):
        anybatch.resume(run.folder, total_env_steps=400)
    assert anybatch.resume(run.folder, env=Shop, total_env_steps=400).env_steps >= 400


def test_a_plan_takes_what_train_takes(tmp_path: Path):
    planned = anybatch.plan(env=Shop, num_envs=2)
    trained = train(tmp_path, preset="vector-ppo-ewma", env=Shop, num_envs=2)
    assert planned.config.env == trained.config.env == "object:Shop"
    assert planned.numbers.batch.num_envs == 2
    with pytest.raises(anybatch.ConfigError, match=r"num_envs = 8: the environment object has 1"):
        anybatch.plan(env=make_cartpole(), num_envs=8)


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("lr", "optimizer.learning_rate"),
        ("gamma", "objective.discount"),
        ("n_envs", "num_envs"),
        ("batch_size", "num_envs, num_steps, update.minibatches_per_epoch"),
    ],
)
def test_a_setting_of_another_library_is_answered_with_ours(setting: str, meant: str):
    with pytest.raises(anybatch.ConfigError) as refusal:
        anybatch.plan(**{setting: 1})
    assert str(refusal.value) == f"PPOConfig: unknown {setting}; did you mean {meant}?"


def test_arguments_of_another_kind_are_refused_in_one_sentence():
    with pytest.raises(anybatch.ConfigError, match=r"^config must be the name of a preset, .*; got 3$"):
        anybatch.plan(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(anybatch.ConfigError, match=r"^env must be the id of an environment"):
        anybatch.tune(env=Shop)  # pyright: ignore[reportArgumentType]


def test_an_observation_without_a_meaning_has_no_action(tmp_path: Path):
    agent = anybatch.load(train(tmp_path, env="gym:CartPole-v1").folder)
    with pytest.raises(
        anybatch.EnvError, match=r"^the observation for CartPole-v1 contains nan: values must be finite$"
    ):
        agent.act([0.0, np.nan, 0.0, 0.0])
    batch = np.zeros((3, 4))
    batch[1, 2] = -np.inf
    with pytest.raises(anybatch.EnvError, match=r"^observation 2 of 3 for CartPole-v1 contains -inf"):
        agent.act(batch)
    native = anybatch.load(train(tmp_path, env="toy:Match").folder)
    with pytest.raises(anybatch.EnvError, match=r"contains nan"):
        native.act([np.nan] * 5)
    masked = anybatch.load(train(tmp_path, env=Shop).folder, env=Shop)
    with pytest.raises(anybatch.EnvError, match=r"contains inf"):
        masked.act({"action_mask": np.ones(3, dtype=np.int8), "numbers": np.array([0, np.inf])})
    with pytest.raises(anybatch.EnvError, match=r"dict of arrays .* not a list"):
        masked.act([{"action_mask": np.ones(3, dtype=np.int8), "numbers": np.zeros(2)}] * 2)
    with pytest.raises(anybatch.EnvError, match=r"the observation lacks 'numbers'"):
        masked.act({"action_mask": np.ones(3, dtype=np.int8)})


class Shown(gymnasium.Env[Any, Any]):
    """Observations sampled from a space."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = space, Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 1.0, True, False, {}


NO_NUMBERS = r"^an observation for .* must be an array of numbers; got "
OUTSIDE = r"^(the )?observation .*contains {}, but only whole numbers from {} to {} are possible$"


@pytest.mark.parametrize("env", ["gym:CartPole-v1", "CartPole-v1"])
def test_what_is_no_observation_is_refused_in_one_sentence(env: str, tmp_path: Path):
    agent = anybatch.load(train(tmp_path, env=env).folder)
    with_gradient = torch.zeros(4, requires_grad=True)
    for obs in ("abc", None, {"a": 1}, object(), ["a"] * 4, ["1"] * 4, [None] * 4, [1j] * 4, with_gradient):
        with pytest.raises(ValueError, match=NO_NUMBERS) as refusal:
            agent.act(obs)
        assert isinstance(refusal.value, anybatch.EnvError) and "\n" not in str(refusal.value)
    with pytest.raises(anybatch.EnvError, match=NO_NUMBERS + "rows of different lengths"):
        agent.act([[1, 2, 3, 4], [1, 2, 3]])
    for obs in (3, [], [1, 2, 3], np.zeros((2, 3)), np.zeros((1, 2, 4))):
        with pytest.raises(anybatch.EnvError, match=r"^an observation of shape .* does not fit"):
            agent.act(obs)
    with pytest.raises(anybatch.EnvError, match="contains inf: values must be finite"):
        agent.act([1e300] * 4)
    assert agent.act([True, 0, np.float16(1), 2.5]) in (0, 1)
    assert agent.act(np.zeros((0, 4))).shape == (0,)


@pytest.mark.parametrize(
    ("space", "fits", "refused"),
    [
        (
            Discrete(5, start=1),
            [1, 5, 5.0, np.array(3)],
            [(0, "0", 1, 5), (6, "6", 1, 5), (1.5, "1.5", 1, 5)],
        ),
        (MultiDiscrete([3, 4]), [[0, 3], [2, 0]], [([0, 4], "4", 0, 3), ([3, 0], "3", 0, 2)]),
        (MultiBinary(2), [[0, 1], [True, False]], [([0, 2], "2", 0, 1), ([0.5, 0], "0.5", 0, 1)]),
        (
            Box(0, 255, (16, 16, 3), np.uint8),
            [np.zeros((16, 16, 3), dtype=np.int64)],
            [(np.full((16, 16, 3), value), str(value), 0, 255) for value in (0.5, 256, -1)],
        ),
    ],
)
def test_an_observation_outside_its_space_is_refused(
    space: gymnasium.Space[Any], fits: list[Any], refused: list[tuple[Any, str, int, int]], tmp_path: Path
):
    agent = anybatch.load(train(tmp_path, env=lambda: Shown(space)).folder, env=lambda: Shown(space))
    for obs in fits:
        assert agent.act(obs) in (0, 1)
    assert agent.act(np.stack([np.asarray(fits[0])] * 3)).shape == (3,)
    for obs, *numbers in refused:
        for given in (obs, np.stack([np.asarray(fits[0]), np.asarray(obs)])):
            with pytest.raises(anybatch.EnvError, match=OUTSIDE.format(*map(re.escape, map(str, numbers)))):
                agent.act(given)


def test_parts_of_an_observation_that_do_not_belong_together_are_refused(tmp_path: Path):
    space = gymnasium.spaces.Dict(x=Box(-1, 1, (2,)), y=Discrete(3))
    agent = anybatch.load(train(tmp_path, env=lambda: Shown(space)).folder, env=lambda: Shown(space))
    assert agent.act({"x": [0, 0], "y": 2}) in (0, 1)
    assert agent.act({"x": np.zeros((2, 2)), "y": [0, 2]}).shape == (2,)
    with pytest.raises(anybatch.EnvError, match=r"differ in their number of observations: 1 and 2$"):
        agent.act({"x": np.zeros((2, 2)), "y": [1]})
    for obs in ("abc", None, {"x": [0, 0]}, [1, 2]):
        with pytest.raises(anybatch.EnvError, match=r"^the observation lacks '[xy]'"):
            agent.act(obs)
    with pytest.raises(anybatch.EnvError, match=NO_NUMBERS):
        agent.act({"x": [0, 0], "y": None})


class Guided(Shown):
    """Masks of two choices in its infos."""

    def __init__(self) -> None:
        super().__init__(Box(-1, 1, (2,)))
        self.action_space = MultiDiscrete([2, 3])

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {"action_mask": (np.array([0, 1]), np.array([0, 0, 1]))}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, info = self.reset()
        return obs, 1.0, True, False, info


def test_a_mask_that_does_not_fit_is_refused_in_one_sentence(tmp_path: Path):
    agent = anybatch.load(train(tmp_path, env=Guided).folder, env=Guided)
    assert agent.act([0, 0], action_mask=Guided().reset()[1]["action_mask"]).tolist() == [1, 2]
    assert agent.act(np.zeros((2, 2)), action_mask=[[1, 0, 1, 0, 0], [0, 1, 0, 1, 0]]).tolist() == [
        [0, 0],
        [1, 1],
    ]
    for mask in ("abc", [1, 0], [1, 0, 1, 0, 0, 1], [[1, 0], [1, 0, 0]], {"a": 1}):
        with pytest.raises(anybatch.EnvError, match=r"needs 5 entries of 0 or 1 for each observation$"):
            agent.act([0, 0], action_mask=mask)


def test_data_beyond_memory_are_refused_before_a_function_makes_many_envs(tmp_path: Path):
    made: list[gymnasium.Env[Any, Any]] = []

    def make() -> gymnasium.Env[Any, Any]:
        made.append(make_cartpole())
        return made[-1]

    with pytest.raises(anybatch.ConfigError, match=r"^num-envs and num-steps need 2 rollouts of"):
        train(tmp_path, env=make, num_envs=2000, num_steps=100_000_000)
    assert len(made) == 1 and not list(tmp_path.iterdir())


def test_a_vector_env_is_an_environment_and_stays_open(tmp_path: Path):
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    with pytest.raises(anybatch.ConfigError, match=r"num_envs = 8: the environment object has 3"):
        train(tmp_path, env=vector, num_envs=8)
    run = train(tmp_path, env=vector, num_envs=3)
    with pytest.raises(anybatch.ConfigError, match=r"num_envs = 8: the environment object has 3"):
        anybatch.resume(run.folder, env=vector, num_envs=8)
    assert run.config.num_envs == 3 and run.plan.numbers.batch.num_envs == 3
    assert run.result["evaluation"]["episodes"] == 3
    assert run.evaluate(episodes=6).to_json()["episodes"] == 6
    with pytest.raises(anybatch.ConfigError, match="multiple of 3"):
        run.evaluate(episodes=4)
    obs, _ = vector.reset()
    assert anybatch.load(run.folder, env=vector).act(obs).shape == (3,)


def test_a_single_env_and_an_object_with_four_methods_are_environments(tmp_path: Path):
    assert train(tmp_path, env=make_cartpole(), num_envs=1).config.num_envs == 1
    own = ToyEnv("Match", EnvConfig(), seeds=range(5))
    run = anybatch.train(
        "cartpole-ppo-ewma",
        run_dir=tmp_path,
        **{name: value for name, value in SMALL.items() if name != "num_envs"} | {"env": own},
    )
    assert run.config.env == "object:ToyEnv" and run.config.num_envs == 5
    with pytest.raises(anybatch.EnvError, match="env must be a Gymnasium env"):
        train(tmp_path, env=3)
    with pytest.raises(anybatch.EnvError, match="must make a Gymnasium env, but it made int"):
        train(tmp_path, env=lambda: 3)
    with pytest.raises(anybatch.EnvError, match="cannot change object:CartPoleEnv"):
        train(tmp_path, env=make_cartpole(), num_envs=1, env_config={"max_episode_steps": 5})


@pytest.mark.parametrize("preset", ["cartpole-ppo-ewma", "cartpole-ppo", "cartpole-pqn", "procgen-ppg-ewma"])
def test_an_encoder_is_enough_for_a_network(preset: str, tmp_path: Path):
    changes = {"phase": {"policy_iterations": 2, "auxiliary_epochs": 1}} if "ppg" in preset else {}
    settings = {name: value for name, value in SMALL.items() if name != "network"}
    run = anybatch.train(preset, network=TwoLayers, run_dir=tmp_path, **settings, **changes)
    names = newest_state(run.folder)["shared"]["learner"]["network"]
    assert any("layers.2.weight" in name for name in names)
    assert run.config.network.factory == "object:TwoLayers"
    assert run.evaluate(2).to_json()["episodes"] == 2
    with pytest.raises(anybatch.ConfigError, match="pass it as network="):
        anybatch.load(run.folder)
    assert anybatch.load(run.folder, network=TwoLayers).act(np.eye(5)[2]) in range(5)


def test_the_seed_alone_decides_the_weights_of_an_own_network(tmp_path: Path):
    settings = {name: value for name, value in SMALL.items() if name != "network"}
    torch.manual_seed(1)
    first = anybatch.train("cartpole-ppo", network=TwoLayers, run_dir=tmp_path, **settings)
    torch.manual_seed(2)
    second = anybatch.train("cartpole-ppo", network=TwoLayers, run_dir=tmp_path, **settings)
    one, two = (newest_state(run.folder)["shared"]["learner"]["network"] for run in (first, second))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_policy_is_loaded_for_the_environment_that_is_named(tmp_path: Path):
    run = train(tmp_path, env="CartPole-v1")
    assert anybatch.load(run.folder).spec.engine == "native"
    assert anybatch.load(run.folder, env="gym:CartPole-v1").spec.engine.startswith("gymnasium")


class Hiccup(TwoLayers):
    """An encoder whose gradient is not a number in one gradient step."""

    learned = 0

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        Hiccup.learned += torch.is_grad_enabled()
        return super().forward(obs) * (float("nan") if Hiccup.learned == 7 else 1.0)


def test_a_skipped_step_leaves_the_measured_noise_scale_finite(tmp_path: Path):
    settings = {name: value for name, value in SMALL.items() if name != "network"}
    settings["update"] = {"minibatches_per_epoch": 2, "noise_scale_every": 1}
    run = anybatch.train("cartpole-ppo", network=Hiccup, run_dir=tmp_path, **settings)
    noise = newest_state(run.folder)["shared"]["learner"]["noise"]["window"]
    assert noise["policy"] and all(
        math.isfinite(n) for pairs in noise.values() for pair in pairs for n in pair
    )


def test_a_module_given_as_a_network_is_left_as_it_is(tmp_path: Path):
    spec = ToyEnv("Match", EnvConfig(), seeds=[0]).spec
    module = TwoLayers(spec)
    before = [parameter.clone() for parameter in module.parameters()]
    settings = {name: value for name, value in SMALL.items() if name != "network"}
    anybatch.train("cartpole-ppo", network=module, run_dir=tmp_path, **settings)
    assert all(map(torch.equal, module.parameters(), before))


def test_a_whole_network_can_be_given_and_unfit_ones_are_refused(tmp_path: Path):
    settings = {name: value for name, value in SMALL.items() if name != "network"}

    def run(network: Any, preset: str = "cartpole-ppo-ewma") -> anybatch.TrainedRun:
        return anybatch.train(preset, network=network, run_dir=tmp_path, **settings)

    assert run(whole_network).finished
    with pytest.raises(anybatch.ConfigError, match="has 2 outputs, but toy:Match needs 5"):
        run(too_few_outputs)
    with pytest.raises(anybatch.ConfigError, match=r"for one observation it returned \(5,\)"):
        run(no_features)
    with pytest.raises(anybatch.ConfigError, match="PQN needs a QNetwork"):
        run(whole_network, "cartpole-pqn")
    with pytest.raises(anybatch.ConfigError, match=r"must make a torch\.nn\.Module, but it made int"):
        run(lambda _spec: 3)
    with pytest.raises(anybatch.ConfigError, match="network must be a torch"):
        run(3)


def test_the_command_line_finds_a_network_by_name_and_rebuilds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = ["--env=toy:Match", "--num-envs=3", "--num-steps=8", "--total-env-steps=100"]
    factory = "--network.factory=custom_networks:TwoLayers"
    main(["train", *flags, factory, f"--run-dir={tmp_path}"])
    (folder,) = tmp_path.iterdir()
    main(["evaluate", str(folder)])
    main(["resume", str(folder), "--total-env-steps=200"])
    assert anybatch.load(folder).env_steps >= 200
    capsys.readouterr()
    for name, reason in (("custom_networks:Nothing", "has no function"), ("TwoLayers", "must have the form")):
        with pytest.raises(SystemExit) as stop:
            main(["train", *flags, f"--network.factory={name}", f"--run-dir={tmp_path}"])
        assert stop.value.code == 2 and reason in capsys.readouterr().err


def test_a_stopped_program_has_saved_and_gets_a_keyboard_interrupt(tmp_path: Path):
    code = """
import os, signal, sys, threading, time
from pathlib import Path
import anybatch

def stop_soon():
    while not any(path.stat().st_size for path in Path(sys.argv[1]).glob("*/metrics.jsonl")):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=stop_soon, daemon=True).start()
try:
    anybatch.train("cartpole-ppo", env="toy:Match", total_env_steps=10**9, run_dir=sys.argv[1])
except KeyboardInterrupt as stopped:
    print(stopped)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=200, check=True
    )
    (folder,) = tmp_path.iterdir()
    assert done.stdout.startswith(f"Stopped. Continue with: anybatch resume {folder} (saved at ")
    assert anybatch.TrainedRun(folder).env_steps > 0 and not anybatch.TrainedRun(folder).finished
