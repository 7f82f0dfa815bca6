"""Classic control in native code against Gymnasium's."""

import gymnasium
import numpy as np
import pytest

from anybatch import envs, native
from anybatch.config import EnvConfig
from anybatch.envs import classic_control
from anybatch.envs.classic_control import ClassicControlEnv
from anybatch.envs.protocol import BoxActions, DiscreteActions
from anybatch.errors import EnvError

SEEDS = [3, 1 << 40, 5]
STEPS = 1200


def actions_of(env: ClassicControlEnv, generator: np.random.Generator) -> np.ndarray:
    match env.spec.actions:
        case DiscreteActions(count):
            return generator.integers(count, size=env.spec.num_envs)
        case BoxActions(low, high):
            # Beyond the bounds too, where they are clipped.
            return (1.3 * generator.uniform(low, high, size=(env.spec.num_envs, 1))).astype(np.float32)
        case _:
            raise AssertionError


def set_state(env: gymnasium.Env, env_id: str, state: np.ndarray) -> None:
    width = {"CartPole-v1": 4, "Acrobot-v1": 4}.get(env_id, 2)
    env.unwrapped.state = state[:width].copy()  # pyright: ignore[reportAttributeAccessIssue]
    if env_id == "CartPole-v1":
        env.unwrapped.steps_beyond_terminated = None  # pyright: ignore[reportAttributeAccessIssue]


FASTEST = {
    "CartPole-v1": [2.4, 5, 0.21, 5],
    "Acrobot-v1": [np.pi, np.pi, 4 * np.pi, 9 * np.pi],
    "MountainCar-v0": [0.6, 0.07, 0, 0],
    "MountainCarContinuous-v0": [0.6, 0.07, 0, 0],
    "Pendulum-v1": [20, 8, 0, 0],
}
"""Bounds of what a state can be, which random play hardly reaches."""


@pytest.mark.parametrize("from_anywhere", [False, True])
@pytest.mark.parametrize("env_id", classic_control.GAMES)
def test_every_step_is_that_of_gymnasium(env_id: str, from_anywhere: bool):
    ours = ClassicControlEnv(env_id, EnvConfig(), seeds=SEEDS)
    theirs = gymnasium.make(env_id).unwrapped
    theirs.reset(seed=0)
    ours.reset()
    generator = np.random.default_rng(0)
    for _ in range(STEPS):
        if from_anywhere:
            state = generator.uniform(-1, 1, size=(len(SEEDS), 4)) * FASTEST[env_id]
            ours.load_state_dict(ours.state_dict() | {"state": state})
        before, action = ours.state_dict(), actions_of(ours, generator)
        step = ours.step(action)
        for env in range(len(SEEDS)):
            if not step.valid[env]:
                continue
            set_state(theirs, env_id, before["state"][env])
            one = action[env]
            if isinstance(ours.spec.actions, BoxActions):
                one = np.clip(one, ours.spec.actions.low, ours.spec.actions.high)
            obs, reward, terminated, _, _ = theirs.step(one)
            np.testing.assert_allclose(step.obs[env], obs, rtol=1e-6, atol=1e-6)
            assert step.reward[env] == pytest.approx(float(reward), rel=1e-6, abs=1e-6)
            assert step.terminated[env] == terminated


@pytest.mark.parametrize("env_id", classic_control.GAMES)
def test_spaces_and_limits_are_those_of_gymnasium(env_id: str):
    ours, theirs = ClassicControlEnv(env_id, EnvConfig(), seeds=SEEDS).spec, gymnasium.make(env_id)
    assert ours.obs_shape == theirs.observation_space.shape
    match ours.actions:
        case DiscreteActions(count):
            assert isinstance(theirs.action_space, gymnasium.spaces.Discrete)
            assert count == theirs.action_space.n
        case BoxActions(low, high):
            assert isinstance(theirs.action_space, gymnasium.spaces.Box)
            assert np.array_equal(low, theirs.action_space.low)
            assert np.array_equal(high, theirs.action_space.high)
        case _:
            raise AssertionError
    assert theirs.spec is not None
    assert classic_control.GAMES[env_id].step_limit == theirs.spec.max_episode_steps


@pytest.mark.parametrize("env_id", classic_control.GAMES)
def test_first_states_have_the_spread_of_gymnasium(env_id: str):
    ours = ClassicControlEnv(env_id, EnvConfig(), seeds=range(4000)).reset()
    theirs = gymnasium.make(env_id)
    seen = np.array([theirs.reset(seed=seed)[0] for seed in range(4000)])
    np.testing.assert_allclose(ours.mean(0), seen.mean(0), atol=6 * seen.std(0).max() / 4000**0.5 + 1e-7)
    np.testing.assert_allclose(ours.std(0), seen.std(0), rtol=0.06, atol=1e-7)
    np.testing.assert_allclose(ours.min(0), seen.min(0), atol=0.01)
    np.testing.assert_allclose(ours.max(0), seen.max(0), atol=0.01)


def test_episodes_are_cut_and_reset_on_the_next_step():
    env = ClassicControlEnv("Pendulum-v1", EnvConfig(max_episode_steps=3), seeds=SEEDS)
    env.reset()
    action = np.zeros((3, 1), dtype=np.float32)
    steps = [env.step(action) for _ in range(5)]
    assert [step.truncated.tolist() for step in steps] == [[False] * 3] * 2 + [[True] * 3] + [[False] * 3] * 2
    assert [step.valid.all() for step in steps] == [True, True, True, False, True]
    assert steps[3].reward.tolist() == [0, 0, 0] and not np.array_equal(steps[3].obs, steps[2].obs)


def test_an_episode_that_ends_at_its_limit_terminates_and_is_not_truncated():
    push = np.ones(1, dtype=np.int64)
    env = ClassicControlEnv("CartPole-v1", EnvConfig(), seeds=[5])
    env.reset()
    length = next(number for number in range(1, 500) if env.step(push).terminated[0])
    for limit, ends in ((length - 1, (False, True)), (length, (True, False)), (length + 1, (True, False))):
        env = ClassicControlEnv("CartPole-v1", EnvConfig(max_episode_steps=limit), seeds=[5])
        env.reset()
        steps = [env.step(push) for _ in range(min(limit, length))]
        assert not any(step.episode_end[0] for step in steps[:-1])
        assert (steps[-1].terminated[0], steps[-1].truncated[0], steps[-1].episode_end[0]) == (*ends, True)


def test_an_env_depends_on_its_own_seed_alone():
    one, three = (ClassicControlEnv("CartPole-v1", EnvConfig(), seeds=seeds) for seeds in ([5], SEEDS))
    assert np.array_equal(one.reset()[0], three.reset()[2])
    assert len({tuple(obs) for obs in three.reset()}) == 3


def test_a_restored_env_continues_to_the_bit():
    env = ClassicControlEnv("CartPole-v1", EnvConfig(), seeds=SEEDS)
    env.reset()
    generator = np.random.default_rng(1)
    actions = [actions_of(env, generator) for _ in range(200)]
    for action in actions[:77]:
        env.step(action)
    saved = env.state_dict()
    rest = [env.step(action) for action in actions[77:]]
    other = ClassicControlEnv("CartPole-v1", EnvConfig(), seeds=[0, 0, 0])
    other.load_state_dict(saved)
    for step, action in zip(rest, actions[77:], strict=True):
        again = other.step(action)
        assert all(np.array_equal(here, there) for here, there in zip(step[:7], again[:7], strict=True))


def test_the_engine_is_chosen_by_what_there_is(monkeypatch: pytest.MonkeyPatch):
    def engine(env_id: str, config: EnvConfig | None = None) -> str:
        env = envs.make(env_id, config or EnvConfig(), seeds=[0])
        env.close()
        return env.spec.engine.split()[0]

    assert engine("CartPole-v1") == engine("native:Pendulum-v1") == "native"
    assert engine("envpool:CartPole-v1") == engine("CartPole-v1", EnvConfig(engine="envpool")) == "envpool"
    assert engine("gym:CartPole-v1") == "gymnasium"
    with pytest.raises(EnvError, match="the nearest names are native:CartPole-v1"):
        engine("native:CartPole")
    monkeypatch.setattr(native, "available", lambda: False)
    assert engine("CartPole-v1") == "envpool"
