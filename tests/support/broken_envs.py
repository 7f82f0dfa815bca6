"""Environments that misbehave, registered on import as a user's own would be."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Text


class Misbehaving(gymnasium.Env[np.ndarray, int]):
    """Rewards of 1 and zeros to see, until at step 4 something is not a number."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(2)

    def __init__(self, reward: float = 1.0, obs: float = 0.0) -> None:
        self.bad_reward, self.bad_obs = reward, obs
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.steps = 0
        return np.zeros(3, dtype=np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        del action
        self.steps += 1
        bad = self.steps == 4
        obs = np.full(3, self.bad_obs if bad else 0.0, dtype=np.float32)
        return obs, self.bad_reward if bad else 1.0, self.steps == 9, False, {}


class Unsupported(Misbehaving):
    """Observations that no network here takes."""

    observation_space = Dict({"position": Box(-1, 1, (3,), np.float32), "words": Text(5)})


class Misfit(gymnasium.Env[Any, int]):
    """Its third step shows three numbers instead of two, and ends the episode."""

    action_space = Discrete(2)

    def __init__(self, *, nested: bool) -> None:
        numbers = Box(-1, 1, (2,), np.float32)
        self.nested, self.steps = nested, 0
        self.observation_space = (
            Dict({"place": Dict({"x": numbers}), "y": Discrete(2)}) if nested else numbers
        )

    def _obs(self, count: int) -> Any:
        numbers = np.zeros(count, dtype=np.float32)
        return {"place": {"x": numbers}, "y": np.int64(1)} if self.nested else numbers

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self._obs(2), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        self.steps += 1
        return self._obs(3 if self.steps == 3 else 2), 1.0, self.steps == 3, False, {}


gymnasium.register("Sound-v0", entry_point=Misbehaving)
gymnasium.register("NaNReward-v0", entry_point=Misbehaving, kwargs={"reward": float("nan")})
gymnasium.register("InfiniteReward-v0", entry_point=Misbehaving, kwargs={"reward": float("inf")})
gymnasium.register("NaNObs-v0", entry_point=Misbehaving, kwargs={"obs": float("nan")})
gymnasium.register("Unsupported-v0", entry_point=Unsupported)
gymnasium.register("Misfit-v0", entry_point=Misfit, kwargs={"nested": False})
gymnasium.register("Parts-v0", entry_point=Misfit, kwargs={"nested": True})
