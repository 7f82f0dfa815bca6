"""MinAtar's five games through pgx, on JAX's CPU backend, for machines without a C compiler.

pgx's Seaquest differs from the original rules; `pgx_seaquest` implements them.

Only this module and `pgx_seaquest` import pgx and jax. Importing them starts JAX's threads: a process
that has done so must not fork, only spawn.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pgx
from pgx.minatar import asterix, breakout, freeway, space_invaders

from anybatch.config import EnvConfig
from anybatch.envs import pgx_seaquest
from anybatch.envs.minatar import refuse_unfit
from anybatch.envs.protocol import DiscreteActions, EnvSpec, EnvStep

PGX = f"pgx {pgx.__version__}"


class Game(NamedTuple):
    """A game in pgx's form."""

    rules: Any
    """A class derived from pgx's Env."""
    state: Any
    """Makes a state from which to start."""
    engine: str = PGX
    """Name of the engine, for display."""


GAMES = {
    "Asterix": Game(asterix.MinAtarAsterix, asterix.State),
    "Breakout": Game(breakout.MinAtarBreakout, breakout.State),
    "Freeway": Game(freeway.MinAtarFreeway, freeway.State),
    "Seaquest": Game(
        pgx_seaquest.Seaquest, pgx_seaquest.first_state, f"{PGX} with the Seaquest of MinAtar 1.0.15"
    ),
    "SpaceInvaders": Game(space_invaders.MinAtarSpaceInvaders, space_invaders.State),
}
KEY_KIND = "threefry2x32"
"""JAX's default generator, by name, so that a setting of JAX does not change the meaning of a seed."""
NO_LIMIT = np.iinfo(np.int32).max


class Envs(NamedTuple):
    """State of N envs; every array is [N, …]."""

    game: Any
    """pgx's state of the game."""
    key: Any
    """uint32 [N, 2]: the random stream of each env."""
    steps: Any
    """int32 [N] since the episode began."""


class Seen(NamedTuple):
    """What a step shows, as in `EnvStep`."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_obs: Any


class PgxEnv:
    """N envs of one game, each with its own random stream: rules, actions and resets of `MinAtarEnv`."""

    def __init__(self, name: str, config: EnvConfig, *, seeds: Sequence[int]) -> None:
        env_id = f"minatar:{name}"
        self._name = name
        self._sticky = np.float32(config.sticky)
        self._limit = np.int32(min(config.max_episode_steps or NO_LIMIT, NO_LIMIT))
        self._envs = _not_started(name, seeds)
        self._every_step_is_valid = np.ones(len(seeds), dtype=np.bool_)
        height, width, planes = self._envs.game.observation.shape[1:]
        self.spec = EnvSpec(
            env_id=env_id,
            engine=GAMES[name].engine,
            num_envs=len(seeds),
            obs_shape=(planes, height, width),
            obs_dtype=np.dtype(np.bool_),
            actions=DiscreteActions(self._envs.game.legal_action_mask.shape[1]),
        )

    def reset(self) -> np.ndarray:
        """Start new episodes, which continue each env's random stream."""
        # Ended games restart within the next step, so there is no second function to compile.
        ended = jnp.ones_like(self._envs.game.terminated)
        self._envs = self._envs._replace(game=self._envs.game.replace(terminated=ended))
        return self.step(np.zeros(self.spec.num_envs, dtype=np.int64)).obs

    def step(self, action: np.ndarray) -> EnvStep:
        self._envs, seen = advance(self._name, self._envs, action.astype(np.int32), self._sticky, self._limit)
        obs = np.array(seen.obs)  # a copy: torch warns of arrays that cannot be written to, as JAX's are
        reward, terminated, truncated, final_obs = (np.asarray(array) for array in seen[1:])
        ended = terminated | truncated
        valid = self._every_step_is_valid
        return EnvStep(obs, reward, terminated, truncated, valid, reward, ended, final_obs)

    def close(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        game = self._envs.game
        return {
            "game": {field.name: np.array(getattr(game, field.name)) for field in fields(game)},
            "key": np.array(self._envs.key),
            "steps": np.array(self._envs.steps),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, including random streams."""
        here = self.state_dict()
        refuse_unfit(self.spec, here["game"] | {"key": here["key"]}, state["game"] | {"key": state["key"]})
        restored = jax.tree.map(lambda now, saved: np.array(saved, dtype=now.dtype), here, state)
        game = self._envs.game.replace(**restored["game"])
        self._envs = _on_cpu(Envs(game, restored["key"], restored["steps"]))


@partial(jax.jit, static_argnames="name")
def advance(name: str, envs: Envs, action: Any, sticky: Any, limit: Any) -> tuple[Envs, Seen]:
    """One step of all envs in one call, compiled once for each game and number of envs.

    An env that ends continues with a new episode's first state; one that had ended before does nothing else.
    """
    rules = GAMES[name].rules(use_minimal_action_set=True, sticky_action_prob=sticky)
    keys = jax.vmap(partial(jax.random.split, num=3))(jax.random.wrap_key_data(envs.key, impl=KEY_KIND))
    played = jax.vmap(rules.step)(envs.game, action, keys[:, 1])
    steps = envs.steps + 1
    truncated = ~played.terminated & (steps >= limit)
    ended = played.terminated | truncated

    def with_starts() -> Any:
        # As in the original, a sticky action may repeat one of the episode before.
        starts = jax.vmap(rules.init)(keys[:, 2]).replace(_last_action=played._last_action)
        return _choose(ended, starts, played)

    # First states are costly, and most steps end no episode.
    following = jax.lax.cond(ended.any(), with_starts, lambda: played)
    seen = Seen(
        obs=_channels_first(following.observation),
        reward=played.rewards[:, 0],
        terminated=played.terminated,
        truncated=truncated,
        final_obs=_channels_first(played.observation),
    )
    return Envs(following, jax.random.key_data(keys[:, 0]), jnp.where(ended, 0, steps)), seen


def _choose(where: Any, those: Any, others: Any) -> Any:
    """One of two states for each env."""
    return jax.vmap(lambda one, that, other: jax.tree.map(partial(jnp.where, one), that, other))(
        where, those, others
    )


def _channels_first(obs: Any) -> Any:
    return obs.transpose(0, 3, 1, 2)  # [N, H, W, C] -> [N, C, H, W]


def _not_started(name: str, seeds: Sequence[int]) -> Envs:
    """Envs whose first step starts an episode, regardless of the action."""
    # A step also computes the next state of ended games, and pgx would search forever in one without an
    # alien: zeros do not work, but the default values of its states do.
    game = jax.tree.map(lambda leaf: np.stack([leaf] * len(seeds)), GAMES[name].state())
    ended = np.ones(len(seeds), dtype=np.bool_)
    # A SeedSequence takes integers of any size.
    keys = [np.random.SeedSequence(int(seed)).generate_state(2, np.uint32) for seed in seeds]
    return _on_cpu(Envs(game.replace(terminated=ended), np.stack(keys), np.zeros(len(seeds), dtype=np.int32)))


def _on_cpu(envs: Envs) -> Envs:
    """Arrays that keep the computation on the CPU, even if JAX has a GPU."""
    return jax.device_put(envs, jax.devices("cpu")[0])
