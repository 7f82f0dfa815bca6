"""Action masks of engines: they stay with their observations, and wrong ones are named."""

import numpy as np
import pytest

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs.layout import ObsLayout
from anybatch.envs.protocol import DiscreteActions, EnvSpec, MultiDiscreteActions
from anybatch.errors import EnvError

FORMS = [
    {},
    {"form": "list"},
    {"entry": "true"},
    {"actions": "multi"},
    {"actions": "multi", "form": "tuple"},
    {"actions": "multi", "entry": "true"},
    {"entry": "true", "image": "true"},
    {"image": "true"},
]


def guarded(make, **options):
    return make("guarded_envs:Guarded-v0", options=options)


def masks_of(env, obs):
    return obs[:, env.spec.obs_layout.mask_part] != 0


def first_allowed(env, mask):
    counts = env.spec.action_counts
    if counts is None:
        return mask.argmax(axis=1)
    return np.stack([part.argmax(axis=1) for part in np.split(mask, np.cumsum(counts)[:-1], axis=1)], axis=1)


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("reset", ["next_step", "same_step"])
def test_the_mask_of_each_env_and_step_is_the_engines_own(make, options, reset):
    env = guarded(make, reset=reset, **options)
    layout = env.spec.obs_layout
    assert layout.mask_width == env.spec.action_width == 5 and env.spec.obs_shape == layout.shape
    mask = masks_of(env, env.reset())
    seen = []
    for t in range(1, 14):
        seen.append(mask)
        step = env.step(first_allowed(env, mask))  # the engine asserts that it is allowed
        assert step.reward.tolist() == step.valid.tolist()
        mask = masks_of(env, step.obs)
        ended = step.terminated | step.truncated
        at_end = t % 5 == 4 if reset == "next_step" else t % 4 == 0
        assert ended.tolist() == [at_end] * 3
        inner = np.stack([single.unwrapped.mask for single in env._engine.envs]).astype(bool)
        if reset == "next_step" and ended.all():
            assert not inner.any() and mask.all()  # the engine allows nothing where nothing is decided
        else:
            assert np.array_equal(mask, inner)
        if step.final_obs is not None:
            final = masks_of(env, step.final_obs)
            assert final.all() if ended.all() else np.array_equal(final, mask)
    assert not np.stack(seen).all()


def test_masks_of_processes_are_those_of_one_process(make):
    one, several = (guarded(make, vectorization_mode=mode) for mode in ("sync", "async"))
    obs, same = one.reset(), several.reset()
    for _ in range(6):
        assert np.array_equal(obs, same)
        action = first_allowed(one, masks_of(one, obs))
        obs, same = one.step(action).obs, several.step(action).obs


@pytest.mark.parametrize("entry", ["false", "true"])
@pytest.mark.parametrize(
    ("actions", "fault", "sentence"),
    [
        (
            "discrete",
            "nothing",
            "^environment 0 of guarded_envs:Guarded-v0 gave an action_mask at step 2 that allows no action$",
        ),
        ("multi", "nothing in one choice", "at step 2 that allows no action in one of its choices$"),
        ("discrete", "two", "at step 2 with 2.* in it: entries must be 0 or 1$"),
    ],
)
def test_masks_that_cannot_be_followed_are_refused(make, entry, actions, fault, sentence):
    env = guarded(make, entry=entry, actions=actions, fault=fault)
    mask = masks_of(env, env.reset())
    mask = masks_of(env, env.step(first_allowed(env, mask)).obs)
    with pytest.raises(EnvError, match=sentence):
        env.step(first_allowed(env, mask))


@pytest.mark.parametrize("entry", ["false", "true"])
@pytest.mark.parametrize(("reset", "step"), [("same_step", 4), ("next_step", 5)])
def test_a_mask_that_allows_nothing_at_the_start_of_an_episode_is_refused(make, entry, reset, step):
    env = guarded(make, entry=entry, reset=reset, fault="nothing at a start")
    obs = env.reset()
    for _ in range(step - 1):
        obs = env.step(first_allowed(env, masks_of(env, obs))).obs
    with pytest.raises(EnvError, match=f"at step {step} that allows no action$"):
        env.step(first_allowed(env, masks_of(env, obs)))


def test_a_mask_of_another_length_is_refused_at_its_step(make):
    env = guarded(make, form="list", fault="short")
    mask = masks_of(env, env.reset())
    mask = masks_of(env, env.step(first_allowed(env, mask)).obs)
    with pytest.raises(EnvError, match=r"at step 2 of 4 entries: its actions need 5$"):
        env.step(first_allowed(env, mask))


def test_a_mask_that_is_gone_is_refused(make):
    env = guarded(make, fault="lost")
    mask = masks_of(env, env.reset())
    mask = masks_of(env, env.step(first_allowed(env, mask)).obs)
    with pytest.raises(
        EnvError, match=r"environment 0 .* gave no action_mask at step 2, but the first reset "
    ):
        env.step(first_allowed(env, mask))


def test_a_mask_that_comes_late_is_refused(make):
    env = guarded(make, fault="late")
    assert env.spec.obs_layout.mask_width == 0
    env.reset()
    everything = np.ones((3, 5), dtype=bool)
    for single in env._engine.envs:
        single.unwrapped.mask[:] = 1
    env.step(first_allowed(env, everything))
    for single in env._engine.envs:
        single.unwrapped.mask[:] = 1
    with pytest.raises(EnvError, match="gave an action_mask at step 2, but none at its first reset"):
        env.step(first_allowed(env, everything))


def test_masks_and_continuous_actions_are_refused(make):
    with pytest.raises(EnvError, match=r"has an action_mask and continuous actions \(Box of 2 numbers\)"):
        guarded(make, actions="box")


def test_a_spec_refuses_a_layout_that_does_not_fit():
    settings = {"env_id": "own", "engine": "own", "num_envs": 1, "obs_dtype": np.dtype(np.float32)}
    plain = EnvSpec(**settings, obs_shape=(2, 3), actions=DiscreteActions(5))
    assert plain.obs_layout == ObsLayout(vector_width=6)
    masked = ObsLayout(vector_width=7, mask_width=5)
    EnvSpec(**settings, obs_shape=(12,), actions=MultiDiscreteActions((2, 3)), obs_layout=masked)
    with pytest.raises(EnvError, match=r"own: observations of shape \(7,\) and type float32 do not fit"):
        EnvSpec(**settings, obs_shape=(7,), actions=DiscreteActions(5), obs_layout=masked)
    with pytest.raises(EnvError, match="own has an action_mask of 5 entries, but its actions"):
        EnvSpec(**settings, obs_shape=(12,), actions=DiscreteActions(6), obs_layout=masked)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fault": "nothing"}, "gave an action_mask"),
        ({"fault": "lost"}, "gave no action_mask"),
        ({"image": "true", "fault": "bad number"}, "returned a non-finite observation"),
    ],
)
def test_errors_number_environments_over_the_whole_run(settings: dict[str, str], said: str):
    env = envs.make("guarded_envs:Guarded-v0", EnvConfig(options=settings), seeds=[1, 2], first_env=6)
    mask = masks_of(env, env.reset())
    mask = masks_of(env, env.step(first_allowed(env, mask)).obs)
    with pytest.raises(EnvError, match=f"environment 6 of guarded_envs:Guarded-v0 {said}"):
        env.step(first_allowed(env, mask))
    env.close()


def test_numbers_among_bytes_that_are_not_finite_are_refused(make):
    env = guarded(make, image="true", fault="bad number")
    mask = masks_of(env, env.reset())
    mask = masks_of(env, env.step(first_allowed(env, mask)).obs)
    with pytest.raises(EnvError, match=r"environment 0 .* a non-finite observation, nan, at step 2$"):
        env.step(first_allowed(env, mask))
