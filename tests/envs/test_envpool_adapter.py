import os
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from anybatch.envs.episodes import Episode, EpisodeTracker
from anybatch.envs.protocol import BoxActions, DiscreteActions
from anybatch.errors import EnvError

NO_ACTION = np.zeros(3, dtype=np.int64)


@pytest.mark.parametrize("env_id", ["envpool:CartPole-v1", "Breakout-v5"])
def test_the_step_after_the_step_limit_is_no_data(make, env_id):
    env = make(env_id, max_episode_steps=3)
    first_obs = env.reset()
    steps = [env.step(np.array([0, 1, 0])) for _ in range(5)]
    assert [step.valid.tolist() for step in steps] == [[True] * 3] * 3 + [[False] * 3] + [[True] * 3]
    assert [step.truncated.tolist() for step in steps] == [[False] * 3] * 2 + [[True] * 3] + [[False] * 3] * 2
    assert [step.episode_end.tolist() for step in steps] == [step.truncated.tolist() for step in steps]
    assert not any(step.terminated.any() for step in steps)
    assert steps[3].score.tolist() == [0, 0, 0]
    assert all(step.final_obs is None for step in steps)
    assert not np.array_equal(steps[2].obs, steps[3].obs) and steps[3].obs.shape == first_obs.shape


def test_everything_is_valid_after_reset_even_when_an_episode_had_just_ended(make):
    env = make("envpool:CartPole-v1", max_episode_steps=1)
    env.reset()
    assert env.step(NO_ACTION).truncated.all()
    env.reset()
    assert env.step(NO_ACTION).valid.all()


def test_cartpole_is_a_float32_vector_with_discrete_actions(make):
    env = make("envpool:CartPole-v1")
    assert env.spec.engine == "envpool 1.2.5"
    assert (env.spec.env_id, env.spec.num_envs) == ("CartPole-v1", 3)
    assert (env.spec.obs_shape, env.spec.obs_dtype, env.spec.actions) == (
        (4,),
        np.float32,
        DiscreteActions(2),
    )
    env.reset()
    step = env.step(NO_ACTION)
    assert (step.obs.dtype, step.reward.dtype, step.score.dtype) == (np.float32,) * 3
    assert step.reward.tolist() == step.score.tolist() == [1, 1, 1]


def test_a_lost_life_ends_learning_episodes_but_not_the_game(make):
    env = make("Breakout-v5", episodic_life=True)
    tracker = EpisodeTracker(3)
    env.reset()
    steps = [env.step(NO_ACTION) for _ in range(30)]
    lost = [t for t, step in enumerate(steps) if step.terminated[0]]
    assert len(lost) == 1
    after = steps[lost[0] + 1]
    assert not steps[lost[0]].episode_end[0]
    assert not after.valid[0] and not after.episode_end[0] and steps[lost[0] + 2].valid[0]
    for step in steps:
        tracker.update(step)
    assert tracker.take() == []


def test_lost_lives_leave_episode_statistics_untouched_up_to_the_step_cap(make):
    env = make("Breakout-v5", episodic_life=True, max_episode_steps=60)
    tracker = EpisodeTracker(3)
    env.reset()
    lives_lost = 0
    for _ in range(66):
        step = env.step(NO_ACTION)
        lives_lost += int((step.terminated & ~step.episode_end).sum())
        tracker.update(step)
    assert lives_lost >= 3
    assert [episode.length for episode in tracker.take()] == [60, 60, 60]


def test_five_lives_of_breakout_are_one_episode(make):
    env = make("Breakout-v5", episodic_life=True, seeds=[5])
    env.reset()
    steps = [env.step(NO_ACTION[:1]) for _ in range(150)]
    terminated = [t for t, step in enumerate(steps) if step.terminated[0]]
    assert [t for t, step in enumerate(steps) if step.episode_end[0]] == terminated[4:5]


def test_a_game_that_restarts_within_a_reset_step_ended_its_episode(make):
    # Up to 1,000 no-ops after a lost life are enough for Phoenix to lose the others meanwhile.
    env = make("Phoenix-v5", episodic_life=True, options={"noop_max": "1000"})
    env.reset()
    steps = [env.step(NO_ACTION) for _ in range(100)]
    assert any((step.episode_end & ~step.valid).any() for step in steps)
    assert not any((later.episode_end & now.episode_end).any() for now, later in pairwise(steps))


def test_clipped_rewards_keep_the_score_of_the_game(make):
    env = make("Asterix-v5", reward_clip=True, max_episode_steps=40)
    tracker = EpisodeTracker(3)
    env.reset()
    rng = np.random.default_rng(0)
    steps = [env.step(rng.integers(0, 9, 3)) for _ in range(40)]
    for step in steps:
        tracker.update(step)
        assert set(step.reward.tolist()) <= {0.0, 1.0}
        assert step.score.tolist() == [50 * reward for reward in step.reward]
    total = sum(step.score.sum() for step in steps)
    assert total > 0 and sum(episode.episode_return for episode in tracker.take()) == total


def test_rewards_are_not_clipped_unless_asked(make):
    env = make("Asterix-v5")
    env.reset()
    rng = np.random.default_rng(0)
    assert max(env.step(rng.integers(0, 9, 3)).reward.max() for _ in range(40)) == 50


def test_sticky_actions_change_the_game(make):
    frames = []
    for sticky in (0.0, 0.0, 0.75):
        env = make("Breakout-v5", seeds=[5], sticky=sticky, episodic_life=True)
        env.reset()
        frames.append([env.step(np.array([2 + t % 2])).obs for t in range(17)][-1])
    assert np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[0], frames[2])


def test_procgen_is_a_uint8_image_and_takes_its_options(make):
    env = make("CoinrunHard-v0", options={"num_levels": "1", "start_level": "7"})
    assert (env.spec.obs_shape, env.spec.obs_dtype, env.spec.actions) == (
        (3, 64, 64),
        np.uint8,
        DiscreteActions(15),
    )
    obs = env.reset()
    assert obs.dtype == np.uint8 and obs.shape == (3, 3, 64, 64)
    assert np.array_equal(obs[0], obs[1])  # one level: whatever the seed
    assert env.step(NO_ACTION).obs.dtype == np.uint8


def test_actions_beyond_the_bounds_equal_clipped_ones(make):
    beyond, clipped = make("HalfCheetah-v4", seeds=[5, 11]), make("HalfCheetah-v4", seeds=[5, 11])
    assert isinstance(beyond.spec.actions, BoxActions)
    assert beyond.spec.actions.low.tolist() == [-1] * 6 and beyond.spec.actions.high.dtype == np.float32
    assert np.array_equal(beyond.reset(), clipped.reset())
    rng = np.random.default_rng(3)
    for _ in range(7):
        action = rng.uniform(-10, 10, (2, 6)).astype(np.float32)
        given = action.copy()
        wide, narrow = beyond.step(action), clipped.step(np.clip(action, -1, 1))
        assert np.array_equal(wide.obs, narrow.obs) and np.array_equal(wide.reward, narrow.reward)
        assert wide.obs.dtype == np.float32
        assert np.array_equal(action, given)


def test_equal_seeds_reproduce_and_other_seeds_share_no_initial_observation(make):
    first, again, other = (
        make("envpool:CartPole-v1", seeds=seeds) for seeds in ([1, 2, 3], [1, 2, 3], [4, 5, 6])
    )
    obs = [env.reset() for env in (first, again, other)]
    assert np.array_equal(obs[0], obs[1])
    assert len({tuple(row) for row in np.concatenate([obs[0], obs[2]])}) == 6
    assert np.array_equal(first.step(NO_ACTION).obs, again.step(NO_ACTION).obs)


def test_each_env_depends_on_its_own_seed_only(make):
    assert np.array_equal(
        make("envpool:CartPole-v1", seeds=[3, 7]).reset()[1],
        make("envpool:CartPole-v1", seeds=[7]).reset()[0],
    )


def test_warning_filters_are_left_as_they_were(make):
    before = list(warnings.filters)
    make("HalfCheetah-v4")
    assert warnings.filters == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"frame_skp": "4"}, r"^Breakout-v5 has no option frame_skp; .* are .*frame_skip, .*stack_num"),
        (
            {"img_height": "tall"},
            "^EnvPool cannot make Breakout-v5 with .*'tall'.*: a value has the wrong type$",
        ),
        ({"batch_size": "2"}, "^Breakout-v5: the option batch_size is set by num-envs$"),
        ({"reward_clip": "true"}, "^Breakout-v5: the option reward_clip is set by env-config.reward-clip$"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(make, options, sentence):
    with pytest.raises(EnvError, match=sentence):
        make("Breakout-v5", options=options)


def test_seeds_that_envpool_cannot_take_are_refused_in_one_sentence(make):
    with pytest.raises(EnvError, match=r"EnvPool cannot make CartPole-v1 .* int32, got 2147483648$"):
        make("envpool:CartPole-v1", seeds=[2**31])


def test_engine_threads_default_to_no_more_than_envs_or_cores(make):
    config = make("envpool:CartPole-v1", seeds=[5])._engine.config
    assert config["num_threads"] == 1
    assert make("envpool:CartPole-v1", engine_threads=2)._engine.config["num_threads"] == 2


def test_procgen_without_qt_says_which_command_installs_it(tmp_path: Path):
    for library in ("libQt5Gui.so.5", "libQt5Core.so.5"):
        (tmp_path / library).write_bytes(b"")  # found first, and not a library
    program = (
        "from anybatch import envs, config\n"
        "try: envs.make('CoinrunHard-v0', config.EnvConfig(), seeds=[5])\n"
        "except envs.EnvError as error: print(error)"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "CoinrunHard-v0 needs the system library Qt 5, which is missing: "
        "apt-get install libqt5gui5 installs it\n"
    )


def test_an_episode_of_cartpole_counts_its_steps_and_not_the_reset(make):
    env = make("envpool:CartPole-v1", max_episode_steps=5)
    tracker = EpisodeTracker(3)
    env.reset()
    for _ in range(12):
        tracker.update(env.step(NO_ACTION))
    assert tracker.take() == [
        Episode(5.0, 5, env, truncated=True, step=step) for step in (5, 11) for env in (0, 1, 2)
    ]
