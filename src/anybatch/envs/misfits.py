"""Observations that do not fit their space: Gymnasium answers them with errors of numpy, or not at all."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Space, Tuple

from anybatch.errors import EnvError


def misfit(space: Space[Any], obs: Any, part: str = "", *, of_any_type: bool = False) -> str | None:
    """What is wrong with an observation, got and expected; None if it can be stored as one of its space.

    `of_any_type` compares shapes only.
    """
    if isinstance(space, Dict | Tuple):
        parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, inner in parts:
            name = f"{part}.{key}" if part else str(key)
            try:
                value = obs[key]
            except (TypeError, LookupError):
                return f"an observation without the part {name} of its space"
            if found := misfit(inner, value, name, of_any_type=of_any_type):
                return found
        return None
    of_part = f" in its part {part}" if part else ""
    try:
        array = np.asarray(obs)
    except ValueError:
        return (
            f"an observation with rows of different lengths{of_part}, but its space has shape {space.shape}"
        )
    if array.shape != space.shape:
        return f"an observation of shape {array.shape}{of_part}, but its space has shape {space.shape}"
    if not of_any_type and space.dtype and not np.can_cast(array.dtype, space.dtype, "same_kind"):
        return f"an observation of type {array.dtype}{of_part}, but its space has type {space.dtype}"
    return None


class CheckedObservations(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Refuses observations that do not fit, for envs in processes of their own.

    Shared memory would take them in part, or repeat a single number, without an error.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._env_id = env_id

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**how)
        return self._checked(obs, "reset"), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return self._checked(obs, "step"), reward, terminated, truncated, info

    def _checked(self, obs: Any, method: str) -> Any:
        if found := misfit(self.observation_space, obs):
            raise EnvError(f"an environment of {self._env_id} returned {found}, from its {method}")
        return obs
