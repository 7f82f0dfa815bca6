import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anybatch.config import EnvConfig
from anybatch.envs import make as make_env
from anybatch.envs.protocol import MultiDiscreteActions, RestorableEnv
from anybatch.envs.toy import GAMES, uniform
from anybatch.errors import EnvError

NO_ACTION = np.zeros(3, dtype=np.int64)
SAME_STEP = {"reset": "same_step"}


def test_constant_pays_one_and_only_the_step_limit_ends_it(make):
    env = make("toy:Constant")
    env.reset()
    steps = [env.step(NO_ACTION) for _ in range(7)]
    assert [step.truncated.tolist() for step in steps] == [[t == 4] * 3 for t in range(7)]
    assert [step.valid.tolist() for step in steps] == [[t != 5] * 3 for t in range(7)]
    assert [step.reward.tolist() for step in steps] == [[float(t != 5)] * 3 for t in range(7)]
    assert not any(step.terminated.any() for step in steps)


def test_the_step_limit_can_be_set(make):
    env = make("toy:Constant", max_episode_steps=2, options=SAME_STEP)
    env.reset()
    assert [bool(env.step(NO_ACTION).truncated.all()) for _ in range(4)] == [False, True, False, True]


def test_walking_right_in_the_corridor_is_worth_the_discounted_distance(make):
    env = make("toy:Corridor", seeds=range(31))
    cell = env.reset().argmax(axis=1)
    assert set(cell) == set(range(5))
    value, open_ = np.zeros(31), np.ones(31, dtype=bool)
    for t in range(5):
        step = env.step(np.ones(31, dtype=np.int64))
        value += 0.9**t * step.reward * open_
        open_ &= ~step.terminated
    assert value == pytest.approx(0.9 ** (4.0 - cell))


def test_the_corridor_has_a_wall_at_the_left(make):
    env = make("toy:Corridor", seeds=range(31))
    env.reset()
    for _ in range(5):
        step = env.step(np.zeros(31, dtype=np.int64))
    assert step.obs.argmax(axis=1).tolist() == [0] * 31 and not step.terminated.any()


def test_match_rewards_the_shown_action_only(make):
    env = make("toy:Match")
    obs = env.reset()
    for _ in range(13):
        shown = obs.argmax(axis=1)
        step = env.step((shown + np.array([0, 0, 1])) % 5)
        assert step.reward.tolist() == (step.valid & [True, True, False]).tolist()
        obs = step.obs


def test_match_ends_one_step_in_eight(make):
    env = make("toy:Match", seeds=range(101), options=SAME_STEP)
    env.reset()
    ended = np.mean([env.step(np.zeros(101, dtype=np.int64)).terminated for _ in range(100)])
    assert ended == pytest.approx(1 / 8, abs=0.02)


def test_target_costs_the_squared_distance_of_the_clipped_action(make):
    env = make("toy:Target")
    goal = env.reset().astype(np.float64)
    step = env.step(np.array([[10, -10], goal[1], [0, 0]], dtype=np.float32))
    expected = [-np.sum((np.array([1, -1]) - goal[0]) ** 2), 0, -np.sum(goal[2] ** 2)]
    assert step.reward.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("name", "shape"), [("Pixels", (3, 16, 16)), ("Pixels84", (1, 84, 84))])
def test_the_bright_quadrant_is_the_right_action(make, name, shape):
    env = make(f"toy:{name}", seeds=range(31))
    assert (env.spec.obs_shape, env.spec.obs_dtype) == (shape, np.uint8)
    obs = env.reset()
    middle = shape[1] // 2
    corners = [obs[:, :, 0, 0], obs[:, :, 0, middle], obs[:, :, middle, 0], obs[:, :, middle, middle]]
    bright = np.stack(corners, axis=1).min(axis=2).argmax(axis=1)
    assert set(bright) == {0, 1, 2, 3}
    assert obs.sum(axis=(1, 2, 3)).tolist() == [255 * shape[0] * middle**2] * 31
    assert env.step(bright).reward.tolist() == [1] * 31


def masks_of(env, obs):
    return obs[:, env.spec.obs_layout.mask_part] != 0


def test_masked_pays_for_the_next_allowed_action_from_the_shown_one_on(make):
    env = make("toy:Masked", seeds=range(101))
    obs = env.reset()
    shown, allowed = obs[:, :5].argmax(axis=1), masks_of(env, obs)
    assert allowed.any(axis=1).all() and not allowed.all(axis=1).all()
    right = [
        next((symbol + k) % 5 for k in range(5) if row[(symbol + k) % 5])
        for symbol, row in zip(shown, allowed, strict=True)
    ]
    assert (right != shown).any()
    assert env.step(np.array(right)).reward.tolist() == [1] * 101


def test_a_forbidden_action_costs_one(make):
    env = make("toy:Masked", seeds=range(101))
    allowed = masks_of(env, env.reset())
    reward = env.step(allowed.argmin(axis=1)).reward
    assert (reward[~allowed.all(axis=1)] == -1).all() and (reward[allowed.all(axis=1)] >= 0).all()


def test_multi_match_pays_the_share_of_the_choices_that_are_right(make):
    env = make("toy:MultiMatch", seeds=range(31))
    assert env.spec.actions == MultiDiscreteActions((2, 3, 5)) and env.spec.action_width == 10
    obs = env.reset()
    shown = np.stack([part.argmax(axis=1) for part in np.split(obs, [2, 5], axis=1)], axis=1)
    assert [set(column) for column in shown.T] == [set(range(count)) for count in (2, 3, 5)]
    shown[1, 2], shown[2] = (shown[1, 2] + 1) % 5, (shown[2] + 1) % [2, 3, 5]
    assert env.step(shown).reward.tolist() == pytest.approx([1, 2 / 3, 0] + [1] * 28)


def test_masks_of_several_choices_allow_something_in_each(make):
    env = make("toy:MaskedMulti", seeds=range(101))
    allowed = masks_of(env, env.reset())
    parts = np.split(allowed, [2, 5], axis=1)
    assert all(part.any(axis=1).all() and not part.all(axis=1).all() for part in parts)
    forbidden_in_one = np.zeros((101, 3), dtype=np.int64)
    forbidden_in_one[:, 1] = parts[1].argmin(axis=1)
    reward = env.step(forbidden_in_one).reward
    assert (reward[~parts[1].all(axis=1)] == -1).all()


def test_mixed_needs_the_image_and_the_vector(make):
    env = make("toy:Mixed", seeds=range(101))
    layout = env.spec.obs_layout
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((4 * 2 + 3 * 16 * 16 + 4,), np.uint8)
    obs = env.reset()
    image, vector = layout.image_of(obs), np.ascontiguousarray(obs[:, :8]).view(np.float32)
    quadrant = np.stack([image[:, 0, y, x] for y in (0, 8) for x in (0, 8)], axis=1).argmax(axis=1)
    places = np.exp(2j * np.pi / 3 * np.arange(3))
    added = np.abs(vector[:, :1] + 1j * vector[:, 1:] - places).argmin(axis=1)
    assert set(added) == {0, 1, 2} and np.allclose(vector[:, 0] + 1j * vector[:, 1], places[added])
    right = (quadrant + added) % 4
    allowed = masks_of(env, obs)
    assert allowed[np.arange(101), right].all() and (allowed.sum(axis=1) == 3).all()
    again = make("toy:Mixed", seeds=range(101))
    again.reset()
    assert again.step(allowed.argmin(axis=1)).reward.tolist() == [-1] * 101
    assert env.step(right).reward.tolist() == [1] * 101


@settings(deadline=None, max_examples=30)
@given(
    name=st.sampled_from(sorted(GAMES.keys() - {"Pixels84"})),
    seeds=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5),
    limit=st.integers(1, 11),
)
def test_both_reset_modes_give_the_same_transitions(transitions, name, seeds, limit):
    modes = [
        EnvConfig(max_episode_steps=limit, options={"reset": mode}) for mode in ("next_step", "same_step")
    ]
    next_step, same_step = (transitions(make_env(f"toy:{name}", mode, seeds=seeds), 17) for mode in modes)
    assert next_step == same_step
    assert any(transition.terminated or transition.truncated for transition in next_step[0])


def test_final_observations_of_both_reset_modes_are_where_the_protocol_says(make):
    env = make("toy:Constant", options=SAME_STEP)
    env.reset()
    steps = [env.step(NO_ACTION) for _ in range(5)]
    assert all(step.valid.all() for step in steps)
    assert np.array_equal(steps[3].final_obs, steps[3].obs)
    assert not (steps[4].final_obs == steps[4].obs).any()


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("options", [{}, SAME_STEP])
def test_a_restored_env_continues_to_the_bit(make, name, options):
    env = make(f"toy:{name}", max_episode_steps=3, options=options)
    assert isinstance(env, RestorableEnv)
    action = np.zeros((3, *env.spec.action_shape), dtype=np.int64)
    env.reset()
    for _ in range(3):
        env.step(action)
    state = env.state_dict()
    saved = json.loads(json.dumps({key: value.tolist() for key, value in state.items()}))
    expected = [env.step(action) for _ in range(13)]

    restored = make(f"toy:{name}", seeds=[2, 3, 4], max_episode_steps=3, options=options)
    restored.load_state_dict(saved)
    for step in expected:
        for left, right in zip(step, restored.step(action), strict=True):
            assert np.array_equal(left, right)


def test_a_taken_state_does_not_change_with_the_env(make):
    env = make("toy:Match")
    env.reset()
    state = env.state_dict()
    before = {key: value.copy() for key, value in state.items()}
    env.step(NO_ACTION)
    assert all(np.array_equal(state[key], before[key]) for key in before)


def test_a_state_of_another_number_of_envs_is_refused(make):
    state = make("toy:Match").state_dict()
    with pytest.raises(EnvError, match=r"toy:Match: a saved state of shape \(3, 1\) does not fit \(2, 1\)"):
        make("toy:Match", seeds=[1, 2]).load_state_dict(state)


def test_equal_seeds_reproduce_and_other_seeds_share_no_initial_observation(make, transitions):
    assert transitions(make("toy:Target"), 7) == transitions(make("toy:Target"), 7)
    rows = np.concatenate([make("toy:Target", seeds=seeds).reset() for seeds in ([1, 2, 3], [4, 5, 6])])
    assert len({tuple(row) for row in rows}) == 6


def test_random_numbers_are_those_of_splitmix64():
    # The published first output for seed 0.
    assert uniform(np.array([0]), np.array([0]), 1)[0, 0] == (0xE220A8397B1DCDAF >> 11) * 2.0**-53


def test_draws_continue_one_stream_per_seed():
    seeds = np.array([7, 11])
    stream = uniform(seeds, np.array([0, 0]), 6)
    halves = [uniform(seeds, np.array([draw, draw]), 3) for draw in (0, 1)]
    assert np.array_equal(stream, np.concatenate(halves, axis=1))


def test_unknown_options_are_refused(make):
    with pytest.raises(EnvError, match=r"^toy:Match has no option size; its only option is reset$"):
        make("toy:Match", options={"size": "9"})
    with pytest.raises(
        EnvError, match=r"^toy:Match: the option reset = 3 is not one of next_step, same_step$"
    ):
        make("toy:Match", options={"reset": "3"})
