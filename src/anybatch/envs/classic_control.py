"""Classic control in native code: no threads to wait for, and a resume continues episodes bit for bit."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anybatch import native
from anybatch.config import EnvConfig
from anybatch.envs.protocol import (
    Actions,
    BoxActions,
    DiscreteActions,
    EnvSpec,
    EnvStep,
    NativeEnvs,
    with_scaling,
)
from anybatch.errors import EnvError
from anybatch.native.layout import CLASSIC_CONTROL_STATE, ClassicControlEnvs, ClassicControlStep

_STATE_TYPES = {
    "state": np.float64,
    "seed": np.int64,
    "draws": np.int64,
    "steps": np.int64,
    "done": np.uint8,
}


@dataclass(frozen=True)
class Game:
    """What is known of an environment before it is built."""

    number: int
    """Its number in classic_control.c."""
    actions: Actions
    step_limit: int


def _torque(limit: float) -> BoxActions:
    return BoxActions(low=np.array([-limit], dtype=np.float32), high=np.array([limit], dtype=np.float32))


GAMES = {
    "CartPole-v1": Game(0, DiscreteActions(2), 500),
    "Acrobot-v1": Game(1, DiscreteActions(3), 500),
    "MountainCar-v0": Game(2, DiscreteActions(3), 200),
    "MountainCarContinuous-v0": Game(3, _torque(1.0), 999),
    "Pendulum-v1": Game(4, _torque(2.0), 200),
}


class ClassicControlEnv:
    """N envs of one game, which reset on the step after an episode's end."""

    def __init__(self, env_id: str, config: EnvConfig, *, seeds: Sequence[int]) -> None:
        if config.options:
            raise EnvError(f"{env_id} has no option {next(iter(config.options))}: its engine takes none")
        game = GAMES[env_id]
        try:
            self._library = native.library("float32")
        except native.CompileError as error:
            raise EnvError(f"{env_id} cannot run in native code: {error}") from None
        num_envs = len(seeds)
        self._memory = {
            name: np.zeros((num_envs, CLASSIC_CONTROL_STATE) if name == "state" else num_envs, dtype=dtype)
            for name, dtype in _STATE_TYPES.items()
        }
        self._memory["seed"][:] = np.array(seeds, dtype=np.int64)
        places = {name: array.ctypes.data for name, array in self._memory.items()}
        limit = config.max_episode_steps or game.step_limit
        actions = with_scaling(game.actions, config.actions)
        scale = float(actions.to_engine.scale[0]) if isinstance(actions, BoxActions) else 1.0
        self._struct = ClassicControlEnvs(game.number, num_envs, limit, scale, **places)
        self._envs = ctypes.addressof(self._struct)
        self._float_actions = isinstance(actions, BoxActions)
        self.spec = EnvSpec(
            env_id=env_id,
            engine="native",
            num_envs=num_envs,
            obs_shape=(self._library.classic_control_width(game.number),),
            obs_dtype=np.dtype(np.float32),
            actions=actions,
        )

    def reset(self) -> np.ndarray:
        obs = np.empty((self.spec.num_envs, *self.spec.obs_shape), dtype=np.float32)
        self._library.reset_envs(self._envs, obs.ctypes.data)
        return obs

    def step(self, action: np.ndarray) -> EnvStep:
        num_envs, width = self.spec.num_envs, self.spec.obs_shape[0]
        action = np.ascontiguousarray(action, dtype=np.float32 if self._float_actions else np.int64)
        # Only two allocations: with one env, each costs as much as the step itself.
        numbers = np.empty((width + 1) * num_envs, dtype=np.float32)
        flags = np.empty((4, num_envs), dtype=np.bool_)
        obs_at, flags_at = numbers.ctypes.data, flags.ctypes.data
        step = ClassicControlStep(
            obs_at, obs_at + 4 * width * num_envs, *(flags_at + row * num_envs for row in range(4))
        )
        self._library.step_envs(self._envs, action.ctypes.data, ctypes.addressof(step))
        obs, reward = numbers[: width * num_envs].reshape(num_envs, width), numbers[width * num_envs :]
        terminated, truncated, valid, ended = flags
        return EnvStep(obs, reward, terminated, truncated, valid, reward, ended, None)

    def native_envs(self) -> NativeEnvs:
        return NativeEnvs.of(self._library.classic_control_row, self._struct)

    def close(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {name: array.copy() for name, array in self._memory.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, including seeds."""
        for name, array in self._memory.items():
            array[...] = state[name]
        if not self._library.classic_control_is_sound(self._envs):
            raise EnvError(f"{self.spec.env_id}: a saved state has a number that no episode can have")
