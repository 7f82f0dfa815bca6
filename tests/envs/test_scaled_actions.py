"""env_config.actions = scaled: actions in [-1, 1] reach the bounds, on every engine and if exported."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from conftest import Make
from gymnasium.spaces import Box
from gymnasium.wrappers import RescaleAction
from toy_runs import toy_config, train

import anybatch
from anybatch.cli import main
from anybatch.config import EnvConfig
from anybatch.envs import custom
from anybatch.envs.protocol import BoxActions, EnvSpec
from anybatch.errors import EnvError
from anybatch.export.policy_graph import PolicyGraph
from anybatch.networks import make

LOW, HIGH = np.array([0, -0.2, -2], np.float32), np.array([50, 3, 2], np.float32)
ACTIONS = np.array([[-1, -1, -1], [1, 1, 1], [0, 0.5, -0.25], [-7, 3, 0.1]], np.float32)
SCALED = EnvConfig(actions="scaled")


class Echo(gymnasium.Env):
    """Observes the action that it was given."""

    def __init__(self, low: np.ndarray = LOW, high: np.ndarray = HIGH) -> None:
        self.action_space = Box(low, high)
        self.observation_space = Box(-np.inf, np.inf, low.shape)

    def reset(self, **how: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(**how)
        return np.zeros(self.action_space.shape, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.asarray(action, np.float32), 0.0, False, False, {}


def given(env: Any, actions: np.ndarray, config: EnvConfig = SCALED) -> np.ndarray:
    """The actions that the environment gets."""
    stepped = custom.custom_env(lambda: env).make(config, [0])
    stepped.reset()
    return np.concatenate([stepped.step(action[None]).obs for action in actions])


def test_gymnasiums_rescale_action_does_the_same():
    theirs = given(RescaleAction(Echo(), -1, 1), ACTIONS, EnvConfig())
    ours = given(Echo(), ACTIONS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.array_equal(ours[:2], [LOW, HIGH])
    assert ((ours >= LOW) & (ours <= HIGH)).all()


def test_clipped_is_the_default():
    assert np.array_equal(given(Echo(), ACTIONS, EnvConfig()), np.clip(ACTIONS, LOW, HIGH))


def test_dimensions_with_an_infinite_bound_are_only_clipped():
    low = np.array([-np.inf, 0, np.finfo(np.float32).min], np.float32)
    high = np.array([np.inf, np.inf, np.finfo(np.float32).max], np.float32)
    assert np.array_equal(given(Echo(low, high), ACTIONS), np.clip(ACTIONS, low, high))


@pytest.mark.parametrize("engine", ["native", "envpool", "gym"])
def test_a_scaled_pendulum_is_one_with_twice_the_actions(engine: str, make: Make):
    scaled, clipped = (make(f"{engine}:Pendulum-v1", actions=how) for how in ("scaled", "clipped"))
    assert np.array_equal(scaled.reset(), clipped.reset())
    assert isinstance(scaled.spec.actions, BoxActions) and scaled.spec.actions.scaled
    for action in np.linspace(-1.5, 1.5, 30, dtype=np.float32):
        actions = np.full((scaled.spec.num_envs, 1), action)
        ours, theirs = scaled.step(actions), clipped.step(2 * actions)
        np.testing.assert_allclose(ours.obs, theirs.obs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(ours.reward, theirs.reward, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("env_id", ["native:CartPole-v1", "toy:Match"])
def test_discrete_actions_do_not_change(env_id: str, make: Make):
    scaled, clipped = (make(env_id, actions=how).spec for how in ("scaled", "clipped"))
    assert scaled == clipped


def test_equal_and_reversed_bounds_are_refused():
    flat = np.array([1, 1], np.float32)
    with pytest.raises(EnvError, match="dimension 1 of its actions is bounded by 1 and 1; the lower"):
        given(Echo(np.array([0, 1], np.float32), np.array([1, 1], np.float32)), ACTIONS[:, :2])
    assert np.array_equal(given(Echo(flat, flat), ACTIONS[:, :2], EnvConfig()), np.ones((4, 2)))
    with pytest.raises(EnvError, match="dimension 0 of its actions is bounded by 1 and -1; the lower"):
        BoxActions(flat, -flat).validate_bounds("mine")


def test_an_object_that_steps_itself_refuses_scaling(make: Make):
    ours = make("toy:Target")
    with pytest.raises(EnvError, match="scaled cannot change toy:Target"):
        custom.custom_env(ours).make(SCALED, [0])
    assert custom.custom_env(ours).make(EnvConfig(), [0]) is ours


def test_the_exported_graph_maps_too():
    spec = EnvSpec(
        env_id="mine",
        engine="test",
        num_envs=1,
        obs_shape=(4,),
        obs_dtype=np.dtype(np.float32),
        actions=BoxActions(LOW, HIGH, scaled=True),
    )
    config = toy_config().network
    network = make(config, layout=spec.obs_layout, num_actions=3, continuous=True, generator_seed=1)
    with torch.no_grad():
        network.policy.head.weight.mul_(300)
        action, mean, _ = PolicyGraph(network, None, spec)(torch.randn(64, 4))
    assert mean.abs().max() > 1
    expected = np.clip(mean.numpy(), -1, 1) * (HIGH - LOW) / 2 + (HIGH + LOW) / 2
    np.testing.assert_allclose(action.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("compiled", ["auto", "off"])
def test_a_run_learns_from_sampled_actions_and_acts_with_mapped_ones(compiled: str, tmp_path: Path):
    config = toy_config(
        env="Pendulum-v1",
        env_config={"actions": "scaled"},
        total_env_steps=400,
        native=compiled,
        network={"log_std": 1.0},
    )
    run = train(config, tmp_path)
    agent = anybatch.load(run.folder)
    obs = np.random.default_rng(1).normal(size=(32, 3)).astype(np.float32)
    action = agent.act(obs, greedy=False)
    assert np.abs(action).max() == 2 and (np.abs(action) < 2).any()


def test_what_is_exported_maps_and_says_so(tmp_path: Path):
    config = toy_config(env="Pendulum-v1", env_config={"actions": "scaled"}, total_env_steps=100)
    folder = str(train(config, tmp_path).folder)
    one_episode = ["--evaluation.num-envs=1", "--evaluation.episodes-per-env=1"]
    # An export compares the actions of the graph with those of the environment.
    main(["export", folder, "--onnx", str(tmp_path / "policy.onnx"), *one_episode])
    main(["export", folder, "--hub", str(tmp_path / "hub"), "--no-video", *one_episode])
    assert "mapped from [-1, 1]" in (tmp_path / "hub" / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "hinted"),
    [
        (["--env-config.actions=clipped"], True),
        ([], False),  # the preset scales them
        (["--env-config.actions=scaled"], False),
        (["--preset=mujoco-ppo", "--num-envs=2"], False),  # a paper's numbers, with the paper's actions
        (["--env=toy:Target"], False),  # bounds of -1 and 1
    ],
)
def test_a_new_run_hints_at_unusual_bounds(
    words: list[str], hinted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    short = ["--num-steps=8", "--total-env-steps=16", "--update.minibatches-per-epoch=1"]
    main(["train", "--env=Pendulum-v1", *words, *short, "--evaluation.num-envs=1", f"--run-dir={tmp_path}"])
    assert ("bounded by -2 and 2" in " ".join(capsys.readouterr().out.split())) == hinted
