"""Environments of a user with and without pictures, registered on import."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Blind(gymnasium.Env[np.ndarray, int]):
    """Counts its steps, for ten of them. It shows nothing."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = Box(0, 10, (2,), np.float32)
    action_space = Discrete(3)
    steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed, options=options)
        self.steps = 0
        return np.array([0, 1], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        del action
        self.steps += 1
        return np.array([self.steps, 1], np.float32), 1.0, self.steps == 10, False, {}


class Drawn(Blind):
    """Its picture is 33 × 55 pixels in the gray of its step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> np.ndarray:
        return np.full((33, 55, 3), 20 * self.steps, dtype=np.uint8)


class NoDisplay(Drawn):
    def render(self) -> np.ndarray:
        raise RuntimeError("no display\nhere")


for kind in (Blind, Drawn, NoDisplay):
    gymnasium.register(id=f"{kind.__name__}-v0", entry_point=kind)
