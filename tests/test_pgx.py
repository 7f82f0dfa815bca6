"""MinAtar through pgx: what its adapter adds to bare pgx."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from pgx.minatar import seaquest

from anybatch.config import EnvConfig
from anybatch.envs.pgx_adapter import GAMES, PgxEnv, advance
from anybatch.envs.protocol import EnvStep
from anybatch.errors import EnvError

SEEDS = (5, 5 + 2**32, 5 + 2**70)
"""As many as in test_minatar: a game is compiled for each number of envs."""


def make(name: str, seeds: tuple[int, ...] = SEEDS, **config: Any) -> PgxEnv:
    return PgxEnv(name, EnvConfig(**config), seeds=seeds)


def play(env: PgxEnv, steps: int) -> list[EnvStep]:
    actions = np.random.default_rng(7).integers(3, size=(steps, 3))
    return [env.step(row) for row in actions]


def test_steps_are_those_of_bare_pgx_with_the_same_keys():
    """Step and start by hand, one env at a time: what the vectorized, jitted step must reproduce."""
    rules = GAMES["Breakout"].rules(use_minimal_action_set=True, sticky_action_prob=0.25)
    bare_step, bare_start = jax.jit(rules.step), jax.jit(rules.init)
    split = partial(jax.random.split, num=3)
    env = make("Breakout", sticky=0.25)
    obs, steps = env.reset(), play(env, 40)
    actions = np.random.default_rng(7).integers(3, size=(40, 3))
    ends = 0
    for i, seed in enumerate(SEEDS):
        words = np.random.SeedSequence(seed).generate_state(2, np.uint32)
        stream, _, start_key = split(jax.random.wrap_key_data(words, impl="threefry2x32"))
        state = bare_start(start_key)
        assert np.array_equal(obs[i], np.moveaxis(np.asarray(state.observation), -1, 0))
        for step, action in zip(steps, actions[:, i], strict=True):
            stream, step_key, start_key = split(stream)
            state = bare_step(state, np.int32(action), step_key)
            assert np.array_equal(step.final_obs[i], np.moveaxis(np.asarray(state.observation), -1, 0))
            assert (step.reward[i], step.terminated[i]) == (state.rewards[0], state.terminated)
            if state.terminated:
                ends += 1
                state = bare_start(start_key).replace(_last_action=state._last_action)
            assert np.array_equal(step.obs[i], np.moveaxis(np.asarray(state.observation), -1, 0))
    assert ends >= 6


def test_a_state_of_the_seaquest_that_pgx_has_is_refused():
    env = make("Seaquest")
    state = env.state_dict()
    theirs = seaquest.State()
    state["game"] = {name: np.stack([getattr(theirs, name)] * 3) for name in state["game"]}
    said = (
        "minatar:Seaquest: a saved state whose _f_bullets is (3, 5, 3) does not fit (3, 2, 3); game, engine "
        "(pgx 2.6.0 with the Seaquest of MinAtar 1.0.15) and the number of envs must be the same"
    )
    with pytest.raises(EnvError) as refusal:
        env.load_state_dict(state)
    assert str(refusal.value) == said


def test_a_game_is_compiled_once_for_a_number_of_envs():
    env = make("Breakout")
    env.reset()
    play(env, 3)
    compiled = advance._cache_size()  # type: ignore[attr-defined]
    other = make("Breakout", seeds=(8, 9, 10), sticky=0.5, max_episode_steps=2)
    other.load_state_dict(env.state_dict())
    play(other, 3)
    other.reset()
    play(other, 3)
    assert advance._cache_size() == compiled  # type: ignore[attr-defined]
