"""MinAtar's five games in native code: less than a microsecond per env step."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anybatch import native
from anybatch.config import EnvConfig
from anybatch.envs.protocol import DiscreteActions, EnvSpec, EnvStep, NativeEnvs
from anybatch.errors import EnvError
from anybatch.native.layout import MINATAR_SIDE, MINATAR_STATES, MinAtarEnvs, MinAtarGame

NO_LIMIT = np.iinfo(np.int64).max
_KEPT = {"seed": np.int64, "draws": np.int64, "steps": np.int64, "last_action": np.int64}
"""State of an env, except that of its game."""
_FLAGS = dict.fromkeys(("terminated", "truncated", "ended"), np.bool_)
_OF_A_STEP = {"action": np.int64, "reward": np.float32} | _FLAGS
"""Inputs and outputs of a step, except observations."""

GAMES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}
"""Names in C."""


class MinAtarEnv:
    """N envs of one game, each with its own random stream, reset within the step that ends an episode.

    Rules and probabilities are those of the package minatar 1.0.15. This includes sticky actions: the first
    step of an episode may repeat the last action of the episode before.

    Actions are the game's minimal set, not the six that all games share: 3 in Breakout and Freeway, 4 in
    SpaceInvaders, 5 in Asterix, 6 in Seaquest. Freeway's own clock terminates it, as in the original; only
    env_config.max_episode_steps truncates, and without it the other games may never end.
    """

    def __init__(self, name: str, config: EnvConfig, *, seeds: Sequence[int]) -> None:
        num_envs = len(seeds)
        if config.options:
            raise EnvError(
                f"minatar:{name} has no option {next(iter(config.options))}; its settings are "
                "env-config.sticky and env-config.max-episode-steps"
            )
        try:
            self._library = native.library("float32")
        except native.CompileError as error:
            raise EnvError(f"minatar:{name} runs in native code only: {error}") from None
        game = MinAtarGame.in_dll(self._library, GAMES[name])
        self._state: np.ndarray = np.zeros(num_envs, dtype=np.dtype(MINATAR_STATES[GAMES[name]]))
        self._kept, self._step = (
            {name: np.zeros(num_envs, dtype=dtype) for name, dtype in types.items()}
            for types in (_KEPT, _OF_A_STEP)
        )
        # A SeedSequence takes integers of any size.
        words = [np.random.SeedSequence(int(seed)).generate_state(1, np.uint64)[0] for seed in seeds]
        self._kept["seed"][:] = np.array(words, dtype=np.uint64).view(np.int64)
        places = {name: array.ctypes.data for name, array in (self._kept | self._step).items()}
        limit = min(config.max_episode_steps or NO_LIMIT, NO_LIMIT)
        self._struct = MinAtarEnvs(
            ctypes.addressof(game), num_envs, limit, config.sticky, self._state.ctypes.data, **places
        )
        self._envs = ctypes.addressof(self._struct)
        self._every_step_is_valid = np.ones(num_envs, dtype=np.bool_)
        self.spec = EnvSpec(
            env_id=f"minatar:{name}",
            engine="native",
            num_envs=num_envs,
            obs_shape=(game.planes, MINATAR_SIDE, MINATAR_SIDE),
            obs_dtype=np.dtype(np.bool_),
            actions=DiscreteActions(game.num_actions),
        )

    def reset(self) -> np.ndarray:
        """Start new episodes, which continue each env's random stream."""
        self._step["ended"][:] = True
        obs = np.empty((self.spec.num_envs, *self.spec.obs_shape), dtype=np.bool_)
        self._library.start_minatar(self._envs, _place(obs))
        return obs

    def step(self, action: np.ndarray) -> EnvStep:
        self._step["action"][:] = action
        obs = np.empty((self.spec.num_envs, *self.spec.obs_shape), dtype=np.bool_)
        num_ended = self._library.play_minatar(self._envs, _place(obs))
        _, reward, terminated, truncated, ended = (array.copy() for array in self._step.values())
        final_obs = obs
        if num_ended:
            final_obs = obs.copy()
            self._library.start_minatar(self._envs, _place(obs))
        valid = self._every_step_is_valid
        return EnvStep(obs, reward, terminated, truncated, valid, reward, ended, final_obs)

    def native_envs(self) -> NativeEnvs:
        return NativeEnvs.of(self._library.minatar_row, self._struct)

    def close(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        names = self._state.dtype.names or ()
        game = {name: self._state[name].copy() for name in names}
        return {"game": game} | {name: array.copy() for name, array in self._kept.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`, including random streams."""
        validate_saved_game(self.spec, self.state_dict()["game"], state["game"])
        for name, array in state["game"].items():
            self._state[name][...] = array
        for name, array in self._kept.items():
            array[...] = state[name]
        if not self._library.minatar_is_sound(self._envs):
            raise EnvError(f"{self.spec.env_id}: a saved state has a number that no game can have")


def _place(array: np.ndarray) -> int:
    """The address of an array, in a third of the time that `array.ctypes` takes."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data))


def validate_saved_game(spec: EnvSpec, here: Mapping[str, np.ndarray], saved: Mapping[str, Any]) -> None:
    """Refuse a saved game whose fields or shapes differ from those of this game."""
    wanted = {name: np.shape(array) for name, array in here.items()}
    given = {name: np.shape(array) for name, array in saved.items()}
    if given == wanted:
        return
    name = next(name for name in (*wanted, *given) if wanted.get(name) != given.get(name))
    raise EnvError(
        f"{spec.env_id}: a saved state whose {name} is {given.get(name, 'absent')} does not fit "
        f"{wanted.get(name, 'one without it')}; game, engine ({spec.engine}) and the number of envs "
        "must be the same"
    )
