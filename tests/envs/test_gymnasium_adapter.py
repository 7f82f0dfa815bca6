import warnings

import gymnasium
import numpy as np
import pytest

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs import custom
from anybatch.envs.protocol import BoxActions, DiscreteActions, MultiDiscreteActions, VectorEnv
from anybatch.envs.spaces import read_observations
from anybatch.errors import EnvError

NO_ACTION = np.zeros(3, dtype=np.int64)
SAME_STEP = {"reset": "same_step"}


def test_the_step_after_the_step_limit_is_no_data(make):
    env = make("gym:CartPole-v1", max_episode_steps=3)
    env.reset()
    steps = [env.step(np.array([0, 1, 0])) for _ in range(5)]
    assert [step.valid.tolist() for step in steps] == [[True] * 3] * 3 + [[False] * 3] + [[True] * 3]
    assert [step.truncated.tolist() for step in steps] == [[False] * 3] * 2 + [[True] * 3] + [[False] * 3] * 2
    assert [step.episode_end.tolist() for step in steps] == [step.truncated.tolist() for step in steps]
    assert not any(step.terminated.any() for step in steps)
    assert [step.score.tolist() for step in steps] == [[1] * 3] * 3 + [[0] * 3] + [[1] * 3]
    assert all(step.final_obs is None for step in steps)


def test_same_step_reset_has_only_valid_steps_and_gives_the_final_observation(make):
    env = make("gym:CartPole-v1", max_episode_steps=3, options=SAME_STEP)
    env.reset()
    steps = [env.step(NO_ACTION) for _ in range(4)]
    assert all(step.valid.all() for step in steps)
    assert np.array_equal(steps[0].final_obs, steps[0].obs)
    assert steps[2].truncated.all() and steps[2].final_obs.dtype == np.float32
    # The cart accelerates to the left: the final observation continues, the next episode starts near rest.
    assert (steps[2].final_obs[:, 1] < steps[1].obs[:, 1]).all() and (
        np.abs(steps[2].obs[:, 1]) <= 0.05
    ).all()


@pytest.mark.parametrize(
    "env_id", ["gym:CartPole-v1", "custom_envs:Vector-v0", "custom_envs:Symbols-v0", "gym:Pendulum-v1"]
)
def test_both_reset_modes_give_the_same_transitions(make, transitions, env_id):
    next_step = transitions(make(env_id, max_episode_steps=7), 29)
    same_step = transitions(make(env_id, max_episode_steps=7, options=SAME_STEP), 29)
    assert next_step == same_step
    assert any(transition.terminated or transition.truncated for transition in next_step[0])


def test_processes_give_the_same_transitions_as_one_process(make, transitions):
    one = transitions(make("gym:CartPole-v1", seeds=[5, 11]), 13)
    several = transitions(make("gym:CartPole-v1", seeds=[5, 11], options={"vectorization_mode": "async"}), 13)
    assert one == several


def test_everything_is_valid_after_reset_even_when_an_episode_had_just_ended(make):
    env = make("gym:CartPole-v1", max_episode_steps=1)
    first = env.reset()
    assert env.step(NO_ACTION).truncated.all()
    assert not np.array_equal(env.reset(), first)  # the seeds are not used again
    assert env.step(NO_ACTION).valid.all()


def test_spec_names_the_engine(make):
    spec = make("gym:CartPole-v1").spec
    assert spec.engine.startswith("gymnasium 1.") and spec.env_id == "CartPole-v1"
    assert (spec.num_envs, spec.obs_shape, spec.obs_dtype) == (3, (4,), np.float32)
    assert spec.actions == DiscreteActions(2)


def test_equal_seeds_reproduce_and_other_seeds_share_no_initial_observation(make, transitions):
    assert transitions(make("gym:CartPole-v1"), 7) == transitions(make("gym:CartPole-v1"), 7)
    rows = np.concatenate([make("gym:CartPole-v1", seeds=seeds).reset() for seeds in ([1, 2, 3], [4, 5, 6])])
    assert len({tuple(row) for row in rows}) == 6


def test_an_environments_own_vector_form_is_seeded_too(make):
    own = {"vectorization_mode": "vector_entry_point"}
    first, again, *others = (
        make("gym:CartPole-v1", seeds=seeds, options=own).reset()
        for seeds in ([1, 2], [1, 2], [2, 3], [1, 3])
    )
    assert np.array_equal(first, again)
    assert len({tuple(row) for row in np.concatenate([first, *others])}) == 6  # every seed counts


def test_actions_beyond_the_bounds_equal_clipped_ones(make):
    beyond, clipped = make("gym:Pendulum-v1"), make("gym:Pendulum-v1")
    assert isinstance(beyond.spec.actions, BoxActions)
    assert (beyond.spec.actions.low.tolist(), beyond.spec.actions.high.tolist()) == ([-2], [2])
    assert np.array_equal(beyond.reset(), clipped.reset())
    action = np.array([[20], [-20], [1]], dtype=np.float32)
    wide, narrow = beyond.step(action), clipped.step(np.clip(action, -2, 2))
    assert np.array_equal(wide.obs, narrow.obs) and np.array_equal(wide.reward, narrow.reward)
    assert action.tolist() == [[20], [-20], [1]]


def test_the_engine_itself_receives_the_clipped_action(make):
    env = make("custom_envs:NarrowBox-v0")  # asserts that the action is in its space
    env.reset()
    reward = env.step(np.array([[1, 1], [-1, -1], [0.05, 0]], dtype=np.float32)).reward
    assert reward.tolist() == pytest.approx([0.2, -0.2, 0.05])


def test_infinite_bounds_clip_nothing(make):
    env = make("custom_envs:UnboundedBox-v0")
    env.reset()
    assert env.step(np.full((3, 2), 1e6, dtype=np.float32)).reward.tolist() == [2e6] * 3


def test_discrete_actions_are_shifted_to_their_start(make):
    env = make("custom_envs:ShiftedActions-v0")
    assert env.spec.actions == DiscreteActions(5)
    env.reset()
    assert env.step(np.array([0, 2, 4])).reward.tolist() == [-2, 0, 2]


@pytest.mark.parametrize("name", ["Float64", "Integers", "Bits"])
def test_vectors_of_any_type_become_float32(make, name):
    env = make(f"custom_envs:{name}-v0")
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((3,), np.float32)
    assert env.reset().dtype == env.step(NO_ACTION).obs.dtype == np.float32


def test_discrete_observations_become_one_hot(make):
    env = make("custom_envs:Symbols-v0")
    obs = env.reset()
    assert env.spec.obs_shape == (7,)
    assert obs.tolist() == np.eye(7)[env._engine._observations - 2].tolist()


def test_images_become_channels_first_and_stay_uint8(make):
    env = make("custom_envs:ChannelsLast-v0")
    obs = env.reset()
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((3, 37, 41), np.uint8)
    assert obs.shape == (3, 3, 37, 41) and obs.flags.c_contiguous
    assert np.array_equal(obs[1, 2], env._engine._observations[1, :, :, 2])
    assert make("custom_envs:ChannelsFirst-v0").spec.obs_shape == (2, 37, 41)


def test_same_step_final_images_are_channels_first_too(make):
    env = make("custom_envs:ChannelsLast-v0", options=SAME_STEP)
    env.reset()
    env.step(NO_ACTION)
    step = env.step(NO_ACTION)
    assert step.terminated.all() and step.final_obs.shape == (3, 3, 37, 41)
    assert not np.array_equal(step.final_obs, step.obs)


def test_options_reach_the_environment_as_numbers(make):
    env = make("custom_envs:Vector-v0", options={"bonus": "0.5"})
    env.reset()
    assert env.step(NO_ACTION).reward.tolist() == [0.5] * 3


def test_actions_of_several_choices_are_shifted_to_their_starts(make):
    env = make("custom_envs:ShiftedMultiDiscrete-v0")  # asserts that the action is in its space
    assert env.spec.actions == MultiDiscreteActions((2, 3))
    assert (env.spec.action_width, env.spec.action_shape, env.spec.action_counts) == (5, (2,), (2, 3))
    env.reset()
    action = np.array([[0, 0], [1, 2], [0, 2]])
    assert env.step(action).reward.tolist() == [5 - 1, 6 + 1, 5 + 1]


def test_choices_in_a_matrix_are_one_after_another(make):
    env = make("custom_envs:MatrixMultiDiscrete-v0")
    assert env.spec.actions == MultiDiscreteActions((2, 3, 4, 5))
    env.reset()
    assert env.step(np.array([[1, 2, 3, 4], [0, 0, 0, 4], [1, 0, 0, 0]])).reward.tolist() == [10, 4, 1]


@pytest.mark.parametrize(("name", "bits"), [("MultiBinary", 3), ("MatrixMultiBinary", 6)])
def test_multi_binary_actions_are_choices_of_two(make, name, bits):
    env = make(f"custom_envs:{name}-v0")  # asserts that the action is in its space
    assert env.spec.actions == MultiDiscreteActions((2,) * bits) and env.spec.action_width == 2 * bits
    env.reset()
    action = np.zeros((3, bits), dtype=np.int64)
    action[1], action[2, 1] = 1, 1
    assert env.step(action).reward.tolist() == [0, bits, 1]


def seen_and_given(env):
    """The observations of a reset, as the adapter and as the engine gives them."""
    return env.reset(), env._engine._observations


def test_dict_and_tuple_observations_are_one_vector_in_the_order_of_the_space(make):
    env = make("custom_envs:DictObs-v0")
    obs, engine = seen_and_given(env)
    assert (env.spec.obs_shape, env.spec.obs_dtype, env.spec.obs_kind) == (
        (3 + 2 + 3 + 4,),
        np.float32,
        "vector",
    )
    symbols = np.eye(3)[engine["beta"] - 1]
    flat = [*engine["alpha"], symbols, engine["gamma"]["inner"].reshape(3, 4)]
    assert obs.dtype == np.float32
    assert np.array_equal(obs, np.concatenate(flat, axis=1).astype(np.float32))
    pair = make("custom_envs:TupleObs-v0")
    obs, engine = seen_and_given(pair)
    assert np.array_equal(obs, np.concatenate(engine, axis=1))


@pytest.mark.parametrize(("name", "width"), [("Matrix", 6), ("MatrixBits", 6), ("Scalar", 1)])
def test_boxes_and_bits_of_any_shape_are_flat_numbers(make, name, width):
    env = make(f"custom_envs:{name}-v0")
    obs, engine = seen_and_given(env)
    assert env.spec.obs_shape == (width,) and obs.dtype == np.float32
    assert np.array_equal(obs, engine.reshape(3, width))


def test_multi_discrete_observations_become_one_hot_each(make):
    env = make("custom_envs:MultiSymbols-v0")
    obs, engine = seen_and_given(env)
    expected = [np.eye(2)[engine[:, 0] - 1], np.eye(3)[engine[:, 1] + 1]]
    assert np.array_equal(obs, np.concatenate(expected, axis=1))


def test_a_dict_of_one_image_is_the_image(make):
    env = make("custom_envs:DictOfOne-v0")
    obs, engine = seen_and_given(env)
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((3, 37, 41), np.uint8)
    assert np.array_equal(obs, engine["pixels"].transpose(0, 3, 1, 2))


def test_float_images_are_scaled_to_one_by_finite_bounds(make):
    env = make("custom_envs:FloatImageLast-v0")
    obs, engine = seen_and_given(env)
    assert (env.spec.obs_shape, env.spec.obs_dtype, env.spec.obs_kind) == ((3, 37, 41), np.float32, "image")
    assert obs.dtype == np.float32 and 0 <= obs.min() < 0.05 and 0.95 < obs.max() <= 1
    assert np.allclose(obs, (engine.transpose(0, 3, 1, 2) + 2) / 8, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["FloatImage", "UnboundedFloatImage"])
def test_float_images_up_to_one_or_without_bounds_stay_as_they_are(make, name):
    env = make(f"custom_envs:{name}-v0")
    obs, engine = seen_and_given(env)
    assert env.spec.obs_kind == "image" and np.array_equal(obs, engine)


def test_pixels_that_never_change_are_0_and_not_divided_by_their_range():
    low, high = np.zeros((9, 9, 3), dtype=np.float32), np.full((9, 9, 3), 2.0, dtype=np.float32)
    low[0], high[0] = 0.5, 0.5
    image = read_observations(gymnasium.spaces.Box(low, high), "Framed-v0").image
    assert image is not None
    seen = image.read(np.stack([low, high]))
    assert np.array_equal(seen[0], np.zeros((3, 9, 9)))
    assert not seen[1][:, 0].any() and (seen[1][:, 1:] == 1).all()


def test_the_largest_float_is_no_bound(make):
    env = make("custom_envs:LargestFloats-v0")
    obs, engine = seen_and_given(env)
    assert env.spec.obs_shape == (4, 8, 8) and np.array_equal(obs, engine.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(("name", "width"), [("ThinFloatBox", 3 * 7 * 41), ("ManyChannels", 2 * 37 * 41)])
def test_float_boxes_without_the_sizes_of_an_image_are_numbers(make, name, width):
    spec = make(f"custom_envs:{name}-v0").spec
    assert (spec.obs_shape, spec.obs_kind) == ((width,), "vector")


@pytest.mark.parametrize("options", [{}, SAME_STEP])
def test_an_image_and_numbers_are_packed_as_bytes(make, options):
    env = make("custom_envs:ImageAndVector-v0", options=options)
    layout = env.spec.obs_layout
    assert (layout.image_shape, layout.vector_width, layout.mask_width) == ((3, 37, 41), 4 + 3, 0)
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((4 * 7 + 3 * 37 * 41,), np.uint8)
    obs, engine = seen_and_given(env)
    assert np.array_equal(layout.image_of(obs), engine["image"].transpose(0, 3, 1, 2))
    vector = np.ascontiguousarray(obs[:, :28]).view(np.float32)
    assert np.array_equal(vector, np.concatenate([np.eye(4)[engine["lives"]], engine["speed"]], axis=1))
    env.step(NO_ACTION)
    step = env.step(NO_ACTION)
    assert step.terminated.all() and step.obs.shape == obs.shape
    if options:
        assert step.final_obs.shape == obs.shape and not np.array_equal(step.final_obs, step.obs)


def test_a_float_image_and_numbers_are_packed_as_floats(make):
    env = make("custom_envs:FloatImageAndVector-v0")
    obs, (image, vector) = seen_and_given(env)
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((3 + 3 * 9 * 8,), np.float32)
    assert np.array_equal(obs, np.concatenate([vector, image.reshape(3, -1) / 2], axis=1))
    assert np.array_equal(env.spec.obs_layout.image_of(obs), image / 2)


@pytest.mark.parametrize("name", ["DictObs", "ImageAndVector", "MultiSymbols", "FloatImageLast"])
def test_both_reset_modes_give_the_same_transitions_of_packed_observations(make, transitions, name):
    next_step = transitions(make(f"custom_envs:{name}-v0"), 7)
    assert next_step == transitions(make(f"custom_envs:{name}-v0", options=SAME_STEP), 7)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "TextObs",
            r"TextObs-v0 has observations Dict\(.*, whose part words is Text\(.*\); "
            "supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these, "
            "not Text, Graph, Sequence or OneOf$",
        ),
        ("SequenceObs", r"SequenceObs-v0 has observations Sequence\(.*\); supported are Box"),
        ("GraphObs", r"whose part 0 is Graph\(.*; supported are Box"),
        ("OneOfObs", r"whose part either is OneOf\(.*; supported are Box"),
        (
            "TwoImages",
            r"TwoImages-v0 has two images, 0 and 1; only one is supported, with any other numbers$",
        ),
        ("NestedMask", "shows inner.action_mask, but a mask must be an entry of the outermost Dict$"),
        ("DiscreteMask", r"whose part action_mask is Discrete\(5\); a mask must be Box or MultiBinary$"),
        ("OnlyMask", r"OnlyMask-v0 has observations Dict\(.*, which are empty$"),
        ("ShortMask", r"an action_mask of 4 entries, but its actions Discrete\(5\) need 5$"),
        (
            "ShortMultiMask",
            r"of 3 entries, but its actions MultiDiscrete\(\[2, 3\]\) need 5, the choices one after another$",
        ),
        (
            "MaskedBox",
            r"an action_mask and continuous actions \(Box of 2 numbers\); masks need Discrete, ",
        ),
        ("DictActions", r"DictActions-v0 has actions Dict\(.*; supported are Discrete, MultiDiscrete, "),
        ("IntegerBox", r"IntegerBox-v0 has actions Box\(0, 3, \(2,\), int64\)"),
        ("MatrixBox", r"MatrixBox-v0 has actions Box\(-1.0, 1.0, \(2, 3\), float32\)"),
        ("NeverResets", r"must reset ended episodes by itself, .* says AutoresetMode.DISABLED$"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(make, name, sentence):
    with pytest.raises(EnvError, match=sentence):
        make(f"custom_envs:{name}-v0")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gravty": "9"}, r"^gym:CartPole-v1 refuses its options: .*unexpected keyword argument 'gravty'"),
        ({"max_episode_steps": "foo"}, "refuses its options: "),
        ({"num_envs": "9"}, r"refuses its options: .*multiple values for keyword argument 'num_envs'"),
        ({"reset": "never"}, "the option reset = never is not one of next_step, same_step$"),
        (
            {"vectorization_mode": "gpu"},
            "vectorization_mode = gpu is not one of sync, async, vector_entry_point$",
        ),
        (
            {"reset": "same_step", "vectorization_mode": "vector_entry_point"},
            "^Gymnasium cannot make CartPole-v1",
        ),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(make, options, sentence):
    with pytest.raises(EnvError, match=sentence.replace("gym:", "")):
        make("gym:CartPole-v1", options=options)


def test_what_the_environment_lacks_is_said_in_one_sentence(make):
    with pytest.raises(EnvError, match=r"^Gymnasium cannot make HalfCheetah-v2: The mujoco v2 and v3 .*$"):
        make("gym:HalfCheetah-v2")


def test_ids_out_of_date_do_not_warn_and_filters_are_left_as_they_were(make):
    before = list(warnings.filters)
    make("gym:CartPole-v0")
    assert warnings.filters == before


def played(env: VectorEnv) -> list[np.ndarray]:
    """Everything that ten steps show, of envs that are closed then."""
    seen = [env.reset()]
    for number in range(10):
        step = env.step(np.full(env.spec.num_envs, number % 2))
        seen += [step.obs, step.reward, step.terminated]
    env.close()
    return seen


@pytest.mark.parametrize("how", ["by its id", "by a factory"])
def test_envs_in_processes_of_their_own_play_the_same(how: str):
    def make(config: EnvConfig) -> VectorEnv:
        if how == "by its id":
            return envs.make("gym:CartPole-v1", config, seeds=[3, 5])
        return custom.custom_env(lambda: gymnasium.make("CartPole-v1")).make(config, [3, 5])

    alone, together = (make(EnvConfig(vectorization=mode)) for mode in ("sync", "async"))
    assert isinstance(together._engine, gymnasium.vector.AsyncVectorEnv)  # type: ignore[attr-defined]
    for here, there in zip(played(alone), played(together), strict=True):
        assert np.array_equal(here, there)


def test_other_engines_refuse_processes():
    for env_id, engine in (("CartPole-v1", "native"), ("Breakout-v5", "envpool"), ("toy:Match", "toy")):
        with pytest.raises(EnvError, match=f"vectorization = async needs a Gymnasium.* runs on {engine}"):
            envs.make(env_id, EnvConfig(vectorization="async"), seeds=[1])


def test_an_object_refuses_processes():
    env = custom.custom_env(gymnasium.make("CartPole-v1"))
    with pytest.raises(EnvError, match=r"env-config\.vectorization .* is an object"):
        env.make(EnvConfig(vectorization="async"), [1])
