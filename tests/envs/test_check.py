"""check_env: each mistake is named in a sentence, and what is right gives none."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs.check import check_env
from anybatch.errors import EnvError

WIDTH = 3


class Right(gymnasium.Env):
    """Ends after 20 steps; observations are random, from its own stream."""

    observation_space = Box(-1, 1, (WIDTH,))
    action_space: Any = Discrete(2)
    reward: Any = 1.0

    def seen(self) -> Any:
        return self.np_random.uniform(-1, 1, WIDTH).astype(np.float32)

    def reset(self, **how: Any) -> Any:
        super().reset(seed=how.get("seed"))
        self.steps = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        del action
        self.steps += 1
        return self.seen(), self.reward, False, self.steps >= 20, {}


class WrongShape(Right):
    def seen(self) -> Any:
        return np.zeros(WIDTH + 1, np.float32)


class WrongType(Right):
    def seen(self) -> Any:
        return np.zeros(WIDTH, np.float64)


class NotFinite(Right):
    def seen(self) -> Any:
        return np.array([0, np.nan, 0], np.float32)


class Outside(Right):
    def seen(self) -> Any:
        return np.full(WIDTH, 7, np.float32)


class FourValues(Right):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class OnlyAnObservation(Right):
    def reset(self, **how: Any) -> Any:
        return super().reset(**how)[0]


class Unseeded(Right):
    def seen(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, WIDTH).astype(np.float32)


class Endless(Right):
    def step(self, action: Any) -> Any:
        obs, reward, *_, info = super().step(action)
        return obs, reward, False, False, info


class LateNaN(Right):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, np.nan if self.steps == 15 else 1.0, *rest


class Raises(Right):
    def step(self, action: Any) -> Any:
        raise KeyError(f"speed {action}")


class SeveralRewards(Right):
    reward = (1.0, 2.0)


class LargeRewards(Right):
    reward = -5000.0


class SmallRewards(Right):
    reward = 1e-5


class Throttle(Right):
    action_space = Box(np.array([0, -1], np.float32), np.array([50, 1], np.float32))


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (WrongShape, ("reset()", "(4,)", "(3,)")),
        (WrongType, ("reset()", "float64", "float32")),
        (NotFinite, ("reset()", "nan")),
        (Outside, ("reset()", "7", "[-1, 1]")),
        (FourValues, ("step()", "five", "4 values")),
        (OnlyAnObservation, ("reset()", "ndarray")),
        (Unseeded, ("seed", "np_random")),
        (Endless, ("time limit", "max-episode-steps")),
        (LateNaN, ("reward", "nan")),
        (Raises, ("KeyError", "speed")),
        (SeveralRewards, ("reward", "one number", "2 values")),
        (LargeRewards, ("5e+03", "large", "normalize.rewards")),
        (SmallRewards, ("1e-05", "small")),
        (Throttle, ("Dimension 0", "0 and 50", "scaled")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_is_named_in_one_sentence(kind: Callable[[], Any], facts: tuple[str, ...]):
    for given in (kind, kind()):
        problems = check_env(given)
        named = [problem for problem in problems if all(fact in problem for fact in facts)]
        assert len(named) == 1, problems
        assert (kind is Unseeded) == any("draw random numbers" in problem for problem in problems), problems
        assert all(problem.endswith(".") and "\n" not in problem for problem in problems)


def test_what_is_right_gives_nothing():
    assert check_env(Right) == check_env(Right()) == []
    assert check_env(Throttle, EnvConfig(actions="scaled")) == []
    assert check_env(Endless, EnvConfig(max_episode_steps=30)) == []


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "gym:CartPole-v1", "toy:MaskedMulti", "toy:Mixed", "minatar:Breakout"]
)
def test_environments_by_id(env_id: str):
    assert check_env(env_id) == []


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "gym:Pendulum-v1"])
def test_pendulum_is_told_to_scale(env_id: str):
    (problem,) = check_env(env_id)
    assert "-2 and 2" in problem and "scaled" in problem
    assert check_env(env_id, EnvConfig(actions="scaled")) == []


def test_an_id_that_does_not_exist():
    with pytest.raises(EnvError, match="toy:Match"):
        check_env("toy:Mach")
    with pytest.raises(EnvError, match="no_such_package"):
        check_env("no_such_package:Env-v0")


def test_an_object_of_the_caller_stays_open():
    ours = envs.make("toy:Match", EnvConfig(), seeds=[1, 2])
    closed: list[bool] = []
    ours.close = lambda: closed.append(True)  # type: ignore[method-assign]
    assert check_env(ours) == [] and not closed
