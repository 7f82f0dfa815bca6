"""Environments that a program gives as objects or factories."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import custom_envs
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from toy_runs import changed, toy_config, train_own

from anybatch import training
from anybatch.config import EnvConfig
from anybatch.envs.custom import custom_env
from anybatch.envs.protocol import EnvStep, VectorEnv
from anybatch.envs.toy import ToyEnv
from anybatch.errors import EnvError
from anybatch.evaluating import evaluation_env
from anybatch.runs.display import QUIET
from anybatch.user_objects import UserObjects


class Slow(custom_envs.Echo):
    """Episodes of nine steps, and a note of being closed."""

    closed = 0

    def __init__(self) -> None:
        super().__init__(*custom_envs.SPACES["Vector"])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.steps == 9, False, info

    def close(self) -> None:
        self.closed += 1


class Ours(ToyEnv):
    """An object of our protocol, with a note of being closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def first_end(env: VectorEnv) -> tuple[int, EnvStep]:
    """The number of steps until the first episode ends, and the step that ends it."""
    env.reset()
    for number in range(1, 20):
        step = env.step(np.zeros(env.spec.num_envs, dtype=np.int64))
        if step.episode_end.any():
            return number, step
    raise AssertionError("no episode ended")


def made(given: Any, seeds: Sequence[int], **settings: Any) -> VectorEnv:
    return custom_env(given).make(EnvConfig(**settings), seeds)


def test_a_factory_makes_as_many_envs_as_there_are_seeds_and_each_has_its_own():
    first, again, other = (made(Slow, seeds) for seeds in ([5, 6, 7], [5, 6, 7], [8, 6, 5]))
    shown, repeated, others = (env.reset() for env in (first, again, other))
    assert first.spec.num_envs == 3 and shown.shape == (3, 3)
    assert np.array_equal(shown, repeated)
    assert np.array_equal(shown[1], others[1]) and np.array_equal(shown[0], others[2])
    assert len({tuple(obs) for obs in shown.tolist()}) == 3


@pytest.mark.parametrize(("limit", "steps", "truncated"), [(None, 9, False), (4, 4, True)])
def test_a_factory_follows_the_step_limit(limit: int | None, steps: int, truncated: bool):
    number, step = first_end(made(Slow, [1, 2], max_episode_steps=limit))
    assert number == steps
    assert step.truncated.all() == truncated and step.terminated.all() != truncated


def test_a_factory_has_no_other_options_than_how_its_envs_are_stepped():
    made(Slow, [1], options={"vectorization_mode": "sync"}).close()
    with pytest.raises(EnvError, match=r"has no option difficulty; its only option is vectorization_mode"):
        made(Slow, [1], options={"difficulty": "3"})
    with pytest.raises(EnvError, match="must make a Gymnasium env, but it made str"):
        made(lambda: "a string", [1])


@pytest.mark.parametrize("given", [Slow(), SyncVectorEnv([Slow, Slow])], ids=["single", "vector"])
def test_an_object_has_the_envs_that_it_has_and_settings_cannot_change_it(given: Any):
    custom = custom_env(given)
    assert custom.num_envs == getattr(given, "num_envs", 1) and custom.is_object
    env = custom.make(EnvConfig(), list(range(custom.num_envs)))
    assert env.spec.num_envs == custom.num_envs and first_end(env)[0] == 9
    for settings in ({"max_episode_steps": 4}, {"options": {"vectorization_mode": "async"}}):
        with pytest.raises(EnvError, match="which is an object: pass a function that makes it"):
            custom.make(EnvConfig(**settings), [3])


def test_an_object_of_our_protocol_is_taken_as_it_is():
    env = ToyEnv("Match", EnvConfig(), seeds=[1, 2, 3])
    custom = custom_env(env)
    assert custom.num_envs == 3 and custom.make(EnvConfig(), [4]) is env


@pytest.mark.parametrize("given", [3, "CartPole-v1", None], ids=repr)
def test_what_is_no_environment_is_refused_in_one_sentence(given: Any):
    with pytest.raises(EnvError, match=f"env must be a Gymnasium env.* got {type(given).__name__}"):
        custom_env(given)


def test_what_continues_a_stopped_run_is_code_if_only_a_program_has_its_objects(tmp_path: Path):
    custom = UserObjects.of(env=Slow)
    outcome = training.train(
        custom.named_in(toy_config(num_envs=2, total_env_steps=20)),
        preset="test",
        base=tmp_path,
        output=QUIET,
        custom=custom,
    )
    code = f"anybatch.resume({str(outcome.folder)!r}, env=…)"
    assert outcome.how_to_continue().startswith(f"Stopped. Continue with: {code} (saved at ")


def test_an_object_is_left_open_and_what_a_factory_made_is_closed(tmp_path: Path):
    given, ours, manufactured = Slow(), Ours("Match", EnvConfig(), seeds=[1, 2, 3]), []

    def factory() -> gymnasium.Env[Any, Any]:
        manufactured.append(Slow())
        return manufactured[-1]

    for number, (env, num_envs) in enumerate([(given, 1), (ours, 3), (factory, 2)]):
        custom = UserObjects.of(env=env)
        config = custom.named_in(toy_config(num_envs=2, total_env_steps=20, evaluation={"num_envs": 3}))
        assert config.num_envs == num_envs
        learner = train_own(config, custom, tmp_path / str(number))["learner"]
        assert learner["env_steps"] >= 20
    assert given.closed == ours.closed == 0
    training, evaluation = manufactured[:2], manufactured[2:]
    assert len(evaluation) == 3 and all(env.closed == 1 for env in training + evaluation)


def test_a_factory_is_evaluated_on_other_episodes_than_it_is_trained_on():
    custom = UserObjects.of(env=Slow)
    config = changed(custom.named_in(toy_config(num_envs=4)), evaluation={"num_envs": 4})
    training, resumed = (custom.training_env(config, env_steps=steps) for steps in (0, 100))
    seen = [env.reset() for env in (training, resumed, evaluation_env(config, custom))]
    assert len({tuple(obs) for some in seen for obs in some.tolist()}) == 12
