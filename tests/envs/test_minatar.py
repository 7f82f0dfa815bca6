"""MinAtar in native code: ends and starts without a loss, restored to the bit."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_runs import changed, differences, newest_state, resume, start, toy_config, train

from anybatch import envs, native
from anybatch.cli import doctor
from anybatch.config import EnvConfig
from anybatch.envs.minatar import GAMES
from anybatch.envs.protocol import DiscreteActions, EnvStep, RestorableEnv
from anybatch.errors import ConfigError, EnvError
from anybatch.export import video
from anybatch.networks.encoders import MLPEncoder
from anybatch.storage.checkpoint import Checkpoints

PLANES_AND_ACTIONS = {
    "Asterix": (4, 5),
    "Breakout": (4, 3),
    "Freeway": (7, 3),
    "Seaquest": (10, 6),
    "SpaceInvaders": (6, 4),
}
ALWAYS_STARTS_THE_SAME = ("Asterix", "Seaquest", "SpaceInvaders")
SEEDS = (5, 5 + 2**32, 5 + 2**70)
"""Cut to 32 bits, or to 64, two of them would be one."""
STAY, LEFT, RIGHT = 0, 1, 2
"""Actions of Breakout."""

every_game = pytest.mark.parametrize("name", GAMES)


def make(name: str, seeds: Sequence[int] = SEEDS, **config: Any) -> RestorableEnv:
    env = envs.make(f"minatar:{name}", EnvConfig(**config), seeds=seeds)
    assert isinstance(env, RestorableEnv)
    return env


def play(env: RestorableEnv, steps: int, order: Sequence[int] = (0, 1, 2)) -> list[EnvStep]:
    """Steps with three fixed streams of actions, given to the envs in `order`."""
    assert isinstance(env.spec.actions, DiscreteActions)
    actions = np.random.default_rng(7).integers(env.spec.actions.count, size=(steps, 3))
    return [env.step(row[list(order)]) for row in actions]


def assert_same_steps(left: list[EnvStep], right: list[EnvStep]) -> None:
    for one, other in zip(left, right, strict=True):
        for name, array in one._asdict().items():
            assert array.dtype == getattr(other, name).dtype
            assert np.array_equal(array, getattr(other, name)), name


def paddle(obs: np.ndarray) -> np.ndarray:
    """Where each env's paddle is in Breakout."""
    assert (obs[:, 0].sum(axis=(1, 2)) == 1).all()
    return obs[:, 0, 9].argmax(axis=1)


@every_game
def test_a_game_shows_planes_of_bits_and_every_step_is_valid(name: str):
    planes, actions = PLANES_AND_ACTIONS[name]
    env = make(name, sticky=0.1)
    assert env.spec.env_id == f"minatar:{name}"
    assert env.spec.engine == "native"
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((planes, 10, 10), np.bool_)
    assert env.spec.actions == DiscreteActions(actions) and env.spec.num_envs == 3
    shown = [env.reset()]
    for step in play(env, 60):
        shown += [step.obs, step.final_obs]
        assert step.reward.dtype == np.float32 and step.reward.shape == (3,)
        assert np.isfinite(step.reward).all() and np.array_equal(step.score, step.reward)
        assert step.valid.all() and not step.truncated.any()
        assert np.array_equal(step.episode_end, step.terminated)
    assert {(obs.shape, obs.dtype.name) for obs in shown} == {((3, planes, 10, 10), "bool")}
    assert all(obs[:, 0].any(axis=(1, 2)).all() for obs in shown)  # the player is always somewhere


@every_game
def test_the_step_limit_truncates_and_keeps_the_observation_it_cut(name: str):
    free, limited = make(name), make(name, max_episode_steps=5)
    first = free.reset()
    assert np.array_equal(limited.reset(), first)
    steps = play(limited, 40)
    length = np.zeros(3, dtype=int)
    for step in steps:
        length += 1
        assert np.array_equal(step.truncated, (length == 5) & ~step.terminated)
        assert np.array_equal(step.episode_end, step.truncated | step.terminated)
        length[step.episode_end] = 0
        if name in ALWAYS_STARTS_THE_SAME:
            assert np.array_equal(step.obs[step.episode_end], first[step.episode_end])
    # Up to the first cut both are one and the same episode.
    uncut = play(free, 5)
    assert all(np.array_equal(cut.final_obs, whole.obs) for cut, whole in zip(steps[:5], uncut, strict=True))
    assert steps[4].truncated.all()
    assert not np.array_equal(steps[4].final_obs, steps[4].obs)


def test_a_ball_that_falls_at_the_step_limit_terminates_and_is_not_truncated():
    # Without a move the ball from the left passes the paddle at the sixth step, and the one from the right
    # meets it.
    env = make("Breakout", seeds=(7, 8, 9), max_episode_steps=6)
    from_the_left = env.reset()[:, 1, 3, 0]
    assert from_the_left.any() and not from_the_left.all()
    steps = [env.step(np.full(3, STAY)) for _ in range(6)]
    assert not any(step.episode_end.any() for step in steps[:5])
    assert np.array_equal(steps[5].terminated, from_the_left)
    assert np.array_equal(steps[5].truncated, ~from_the_left)
    assert steps[5].episode_end.all()


@every_game
def test_an_env_is_its_seed_whatever_its_place(name: str):
    orders = ((0, 1, 2), (2, 0, 1))
    made = [make(name, [SEEDS[i] for i in order], sticky=0.3) for order in orders]
    starts = [env.reset() for env in made]
    played = [play(env, 40, order) for env, order in zip(made, orders, strict=True)]
    assert np.array_equal(starts[0][list(orders[1])], starts[1])
    for one, other in zip(*played, strict=True):
        assert np.array_equal(one.obs[list(orders[1])], other.obs)
        assert np.array_equal(one.reward[list(orders[1])], other.reward)
    assert_same_steps(play_from_start(make(name, sticky=0.3)), played[0])


def play_from_start(env: RestorableEnv) -> list[EnvStep]:
    env.reset()
    return play(env, 40)


def test_an_env_is_its_seed_in_any_number_of_envs():
    several = play_from_start(make("Breakout", sticky=0.3))
    for i, seed in enumerate(SEEDS):
        alone = make("Breakout", [seed], sticky=0.3)
        alone.reset()
        for one, step in zip(play(alone, 40, [i]), several, strict=True):
            assert one.final_obs is not None and step.final_obs is not None
            assert np.array_equal(one.obs[0], step.obs[i])
            assert np.array_equal(one.final_obs[0], step.final_obs[i])


@every_game
def test_envs_with_other_seeds_go_other_ways(name: str):
    env = make(name, sticky=0.5)
    env.reset()
    actions = np.random.default_rng(3).integers(PLANES_AND_ACTIONS[name][1], size=60)
    shown = np.stack([env.step(np.full(3, action)).obs for action in actions], axis=1)  # [N, T, …]
    assert len({part.tobytes() for part in shown}) == 3


def test_resets_continue_the_random_streams():
    env = make("Breakout", seeds=(1, 2, 3))
    starts = {env.reset().tobytes() for _ in range(20)}
    assert len(starts) > 3  # of eight: two for each env


@pytest.mark.parametrize(("sticky", "repeated"), [(0.0, 0.0), (0.25, 0.25), (0.99999, 1.0)])
def test_a_sticky_action_is_the_one_before_with_its_probability(sticky: float, repeated: float):
    # These episodes have one step: the action before lies in the episode before, as in the original.
    env = make("Breakout", sticky=sticky, max_episode_steps=1)
    start = paddle(env.reset())
    moves = [np.zeros(3, dtype=int)]  # before all episodes one stays
    for _ in range(400):
        another = np.where(moves[-1] == -1, RIGHT, LEFT)
        moves.append(paddle(env.step(another).final_obs) - start)
    again = np.mean([now == before for before, now in pairwise(moves)])
    tolerance = 0.05 if 0 < repeated < 1 else 0  # four standard errors of 1,200 draws
    assert abs(again - repeated) <= tolerance


@every_game
def test_a_restored_env_continues_to_the_bit(name: str, tmp_path: Path):
    env = make(name, sticky=0.3, max_episode_steps=5)
    env.reset()
    play(env, 11)
    state = env.state_dict()
    Checkpoints(tmp_path, keep=1).save(0, {"env": state})
    expected = play(env, 40)
    assert any(step.truncated.any() for step in expected)
    loaded = Checkpoints(tmp_path, keep=1).load_latest()
    assert loaded is not None and not differences(loaded.tree["env"], state)  # stepping has not changed it
    restored = make(name, seeds=(1, 2, 3), sticky=0.3, max_episode_steps=5)
    restored.load_state_dict(loaded.tree["env"])
    for array in (*loaded.tree["env"].pop("game").values(), *loaded.tree["env"].values()):
        array[...] = 0  # what was read stays the reader's
    assert_same_steps(expected, play(restored, 40))


def test_a_state_that_does_not_fit_is_refused():
    fitting, of_two_envs = (make("Breakout", seeds=seeds) for seeds in (SEEDS, SEEDS[:2]))
    with pytest.raises(EnvError, match=r"^minatar:Breakout: a saved state whose \w+ is \(2,\) does not fit"):
        fitting.load_state_dict(of_two_envs.state_dict())
    without_ball = fitting.state_dict()
    ball = next(name for name in without_ball["game"] if name.endswith("ball_y"))
    del without_ball["game"][ball]
    said = rf"{ball} is absent does not fit \(3,\); game, engine \(native\) and the number of envs must"
    with pytest.raises(EnvError, match=said):
        fitting.load_state_dict(without_ball)


OUTSIDE = {
    "Asterix": ("player_x", "player_y"),
    "Breakout": ("ball_x", "ball_y", "ball_dir", "last_x", "last_y", "pos"),
    "Freeway": ("pos", "cars"),
    "Seaquest": ("sub_x", "sub_y", "oxygen", "diver_count", "f_bullets", "e_bullets", "e_fish", "e_subs"),
    "SpaceInvaders": ("pos",),
}


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in GAMES for field in OUTSIDE[name]])
def test_native_code_refuses_a_state_that_leads_outside_its_memory(name: str, field: str):
    env = make(name)
    env.reset()
    state = env.state_dict()
    state["game"][field][1] = 1_000_000
    with pytest.raises(EnvError, match=f"^minatar:{name}: a saved state has a number that no game can have$"):
        env.load_state_dict(state)


def test_a_run_resumes_to_the_bit(tmp_path: Path):
    config = toy_config(
        env="minatar:Breakout",
        total_env_steps=126,
        env_config={"sticky": 0.1, "max_episode_steps": 20},
        evaluation={"num_envs": 3},
    )
    whole = train(config, tmp_path / "whole")
    half = train(changed(config, total_env_steps=63), tmp_path / "half")
    resumed = resume(half.folder, config)
    assert not differences(newest_state(whole.folder), newest_state(resumed.folder))
    assert whole.evaluation == resumed.evaluation


def test_planes_stay_bits_until_the_network():
    config = toy_config(env="minatar:Breakout", num_steps=20)
    state = start(config)
    data = state.source.collector.collect(state.network, config.num_steps)
    assert data.obs.dtype == torch.bool and data.obs.shape == (21, 3, 4, 10, 10)
    assert data.valid.all() and data.terminated.any()  # so the final observations were valued too


def test_an_mlp_takes_planes_as_zeros_and_ones():
    planes = torch.rand(5, 4, 10, 10) < 0.3
    encoder = MLPEncoder((4, 10, 10), (11,))
    assert torch.equal(encoder(planes), encoder(planes.float()))


def test_normalizing_planes_is_refused():
    with pytest.raises(
        ConfigError, match=r"normalize.observations = step .* minatar:Breakout has 0/1 planes"
    ):
        start(toy_config(env="minatar:Breakout", normalize={"observations": "step"}))


def test_a_picture_has_a_color_for_each_plane_and_the_player_on_top():
    planes = np.zeros((10, 10, 10), dtype=np.bool_)
    planes[np.arange(10), 4, np.arange(10)] = True
    planes[:, 0, 0] = True
    picture = video.picture_of_planes(planes)
    assert picture.shape == (320, 320, 3) and picture.dtype == np.uint8
    colors = [tuple(picture[4 * 32, 32 * column]) for column in range(10)]
    assert len({*colors, (0, 0, 0)}) == 11
    assert tuple(picture[31, 31]) == colors[0]
    assert (picture.any(axis=2).sum()) == 11 * 32 * 32


def test_the_game_under_way_is_drawn():
    drawn = video.make_drawn("minatar:Breakout", EnvConfig(), seed=3)
    shown = [drawn.draw(drawn.env.reset()), drawn.draw(drawn.env.step(np.array([LEFT])).obs)]
    # Thirty bricks and the paddle; then the ball below them, where it was before among them.
    assert [picture.any(axis=2).sum() / 32**2 for picture in shown] == [31, 32]


@pytest.mark.parametrize(
    ("env_id", "config", "said"),
    [
        (
            "minatar:Breakot",
            {},
            r"^there is no environment minatar:Breakot; the nearest names are minatar:Breakout, minatar:\w+",
        ),
        ("minatar:Invaders", {}, "the nearest names are minatar:SpaceInvaders, "),
        (
            "minatar:Breakout",
            {"episodic_life": True},
            "env-config.episodic-life = True needs one of EnvPool's Atari",
        ),
        (
            "minatar:Breakout",
            {"reward_clip": True},
            "env-config.reward-clip = True needs one of EnvPool's Atari",
        ),
        (
            "minatar:Breakout",
            {"options": {"size": "9"}},
            "^minatar:Breakout has no option size; its settings are",
        ),
        ("minatar:Breakout", {"engine": "toy"}, "^minatar:Breakout names the engine minatar, but env-config"),
        (
            "toy:Match",
            {"sticky": 0.1},
            "sticky = 0.1 needs one of EnvPool's Atari games or MinAtar's, and toy:Match",
        ),
    ],
)
def test_what_cannot_be_had_is_one_sentence(env_id: str, config: dict[str, Any], said: str):
    with pytest.raises(EnvError, match=said):
        envs.make(env_id, EnvConfig(**config), seeds=[1])


@pytest.mark.parametrize(
    ("env_id", "engine"),
    [
        ("minatar:Asterix", "auto"),
        ("minatar:Asterix", "native"),
        ("minatar:Asterix", "minatar"),
        ("Asterix", "minatar"),
    ],
)
def test_a_game_can_be_named_by_its_id_or_its_engine(env_id: str, engine: Any):
    spec = envs.make(env_id, EnvConfig(engine=engine), seeds=[1]).spec
    assert (spec.env_id, spec.engine) == ("minatar:Asterix", "native")


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(native, "attempt", native.attempt.__wrapped__)  # not what was loaded before
    said = "minatar:Breakout runs in native code only: there is no C compiler (install gcc or clang)"
    with pytest.raises(EnvError, match=f"^{re.escape(said)}$"):
        make("Breakout")
    (probe,) = [env_id for env_id in doctor.PROBES if env_id.startswith("minatar")]
    assert doctor.engine(probe) == doctor.Check(probe, False, said)
