"""A policy acts without its environment: what a run folder keeps of the spaces."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from toy_runs import toy_config

import anybatch
from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs.interface import from_json, interface_of, to_json
from anybatch.errors import UserError

NESTED = spaces.Dict(
    {
        "pixels": spaces.Box(0, 255, (9, 9, 3), np.uint8),
        "about": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 4])]),
        "flags": spaces.MultiBinary(2),
        "action_mask": spaces.MultiBinary(3),
    }
)


class Nested(gymnasium.Env[Any, Any]):
    observation_space = NESTED
    action_space = spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.observation_space.seed(seed)
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.seen(), float(action == 6), bool(self.np_random.random() < 0.3), False, {}

    def seen(self) -> Any:
        return self.observation_space.sample() | {"action_mask": np.array([1, 1, 0], dtype=np.int8)}


@pytest.mark.parametrize(
    "env_id",
    ["toy:Match", "toy:MultiMatch", "toy:Pixels84", "CartPole-v1", "gym:Pendulum-v1", "minatar:Breakout"],
)
def test_spaces_come_back_as_they_were(env_id: str):
    env = envs.make(env_id, EnvConfig(), seeds=[3])
    spec, interface = from_json(json.loads(json.dumps(to_json(env))))
    assert str(spec.actions) == str(env.spec.actions) and spec.obs_layout == env.spec.obs_layout
    assert (spec.env_id, spec.obs_shape, spec.obs_dtype) == (
        env.spec.env_id,
        env.spec.obs_shape,
        env.spec.obs_dtype,
    )
    assert type(interface) is type(interface_of(env))
    env.close()


def test_an_agent_acts_as_with_the_environment_and_without_it(tmp_path: Path):
    config = toy_config(num_envs=3, total_env_steps=60)
    run = anybatch.train(config, env=Nested, run_dir=tmp_path)
    alone, beside = anybatch.load(run.folder), anybatch.load(run.folder, env=Nested)
    NESTED.seed(7)
    observations = [NESTED.sample() | {"action_mask": np.array([0, 1, 1], dtype=np.int8)} for _ in range(9)]
    actions = [alone.act(obs) for obs in observations]
    assert actions == [beside.act(obs) for obs in observations]
    assert set(actions) <= {6, 7}
    chances = np.stack([alone.probabilities(obs) for obs in observations])
    assert chances.shape == (9, 3) and (chances[:, 0] == 0).all()
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-6)
    assert [alone.value(obs) for obs in observations] == [beside.value(obs) for obs in observations]


def test_stored_bounds_are_json_also_where_they_are_infinite(tmp_path: Path):
    run = anybatch.train(toy_config(env="gym:CartPole-v1"), run_dir=tmp_path)
    text = (run.folder / "spaces.json").read_text()
    assert '"inf"' in text and "Infinity" not in text
    space = gymnasium.make("CartPole-v1").observation_space
    assert anybatch.load(run.folder)._interface.space == space  # type: ignore[attr-defined]


def test_damaged_spaces_are_one_sentence(tmp_path: Path):
    run = anybatch.train(toy_config(), run_dir=tmp_path)
    path = run.folder / "spaces.json"
    for damaged in ({}, [], {**json.loads(path.read_text()), "obs_dtype": "wurst"}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(UserError, match=r"spaces\.json is damaged"):
            anybatch.load(run.folder)
    path.unlink()
    assert anybatch.load(run.folder).act(np.zeros(anybatch.load(run.folder).spec.obs_shape, np.float32)) >= 0


@pytest.mark.parametrize("preset", ["cartpole-ppo", "cartpole-pqn"])
def test_an_agent_tells_values_and_probabilities(preset: str, tmp_path: Path):
    run = anybatch.train(preset, run_dir=tmp_path, num_envs=2, total_env_steps="1k")
    agent = anybatch.load(run.folder)
    obs = np.linspace(-0.05, 0.05, 20, dtype=np.float32).reshape(5, 4)
    values, chances = agent.value(obs), agent.probabilities(obs)
    assert values.shape == (5,) and chances.shape == (5, 2)
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-6)
    assert (chances.argmax(1) == agent.act(obs)).all()
    assert agent.value(obs[1]) == pytest.approx(values[1], rel=1e-5)
    np.testing.assert_allclose(agent.probabilities(obs[1]), chances[1], rtol=1e-5)
    assert agent.policy is agent._policy.network
    assert "\n" not in str(run.evaluate(2)) and "mean return over 2 episodes" in str(run.evaluate(2))


def test_probabilities_need_discrete_actions(tmp_path: Path):
    agent = anybatch.load(anybatch.train(toy_config(env="toy:MultiMatch"), run_dir=tmp_path).folder)
    with pytest.raises(UserError, match=r"Discrete actions.* MultiDiscrete\(\[2, 3, 5\]\)"):
        agent.probabilities(np.zeros(agent.spec.obs_shape, np.float32))
