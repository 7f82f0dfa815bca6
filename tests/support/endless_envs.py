"""Environments that have no end, or hang, registered on import as a user's own would be."""

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

HANGING = "ANYBATCH_TEST_HANGING"
"""Environment variable: a file that appears when `Hanging-v0` hangs."""


class Endless(gymnasium.Env[np.ndarray, int]):
    """Reward 1 at every step, for ever."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.zeros(3, dtype=np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        del action
        return np.zeros(3, dtype=np.float32), 1.0, False, False, {}


class Hanging(Endless):
    """Waits for something that never comes, at its tenth step."""

    steps = 0

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 10:
            Path(os.environ[HANGING]).touch()
            while True:
                time.sleep(0.02)
        return super().step(action)


class Stuck(Hanging):
    """Hangs like an engine that waits in its own code for ever, and does not let Python run meanwhile."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        Path(os.environ[HANGING]).touch()
        libc = ctypes.PyDLL(None)
        mutex = ctypes.create_string_buffer(256)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)
        return super().step(action)


gymnasium.register("Stuck-v0", entry_point=Stuck)
gymnasium.register("Endless-v0", entry_point=Endless)
gymnasium.register("Hanging-v0", entry_point=Hanging)
