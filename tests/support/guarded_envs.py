"""Environments of a user that give action masks and take nothing else, registered on import."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

COUNTS = {"discrete": (5,), "multi": (2, 3)}


class Guarded(gymnasium.Env[Any, Any]):
    """Reward 1 for the first allowed action of each choice; a forbidden action is an error of ours.

    Episodes have 4 steps: they end with a termination and with a cut in turn. Options:

    entry: masks are an entry of a Dict observation, else of infos. image: the observation has one too.
    actions: discrete, multi, box. form: array, list or tuple of one array for each choice.
    fault: what is wrong with the masks, from the second step of an episode on, or at the starts of all
    episodes but the first. free: all actions are allowed.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        entry: bool = False,
        image: bool = False,
        actions: str = "discrete",
        form: str = "array",
        fault: str = "",
        free: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.entry, self.image, self.form, self.fault, self.free = entry, image, form, fault, free
        self.render_mode = render_mode
        self.counts = COUNTS.get(actions, (2,))
        self.width = sum(self.counts)
        self.action_space = {
            "discrete": Discrete(5),
            "multi": MultiDiscrete([2, 3]),
            "box": Box(-1, 1, (2,), np.float32),
        }[actions]
        spaces: dict[str, Any] = {"speed": Box(-1, 1, (3,), np.float32)}
        if image:
            spaces["image"] = Box(0, 255, (16, 16, 3), np.uint8)
        if entry:
            mask = Box(0, 9, (self.width,), np.int64) if fault else MultiBinary(self.width)
            spaces["action_mask"] = mask
        self.observation_space = Dict(spaces) if entry or image else spaces["speed"]
        self.steps = self.episodes = 0
        self.mask = np.ones(self.width, dtype=np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed, options=options)
        self.steps = 0
        self.episodes += 1
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        reward = self._reward(action)
        self.steps += 1
        ended = self.steps == 4
        obs, info = self._observe(), self._info()
        return obs, reward, ended and self.episodes % 2 == 1, ended and self.episodes % 2 == 0, info

    def _reward(self, action: Any) -> float:
        right = 0
        for mask, taken in zip(
            np.split(self.mask, np.cumsum(self.counts)[:-1]), np.ravel(action), strict=True
        ):
            assert mask[int(taken)], f"forbidden: {action} under {self.mask}"
            right += int(taken) == mask.argmax()
        return right / len(self.counts)

    def _observe(self) -> Any:
        parts = [self.np_random.integers(1, 2**count) >> np.arange(count) & 1 for count in self.counts]
        self.mask = np.concatenate(parts).astype(np.int8)
        if self.free:
            self.mask[:] = 1
        elif self.steps == 4:
            self.mask[:] = 0  # nothing follows
        obs = {"speed": self.np_random.uniform(-1, 1, 3).astype(np.float32)}
        if self.fault == "bad number" and self.steps == 2:
            obs["speed"][1] = np.nan
        if self.image:
            obs["image"] = self.np_random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        if self.entry:
            obs["action_mask"] = self._given() if self.fault else self.mask.copy()
        return obs if self.entry or self.image else obs["speed"]

    def _given(self) -> Any:
        mask = self.mask.astype(np.int64)
        if self.fault == "nothing at a start" and self.steps == 0 and self.episodes > 1:
            mask[:] = 0
        if self.steps >= 2:
            if self.fault == "nothing":
                mask[:] = 0
            if self.fault == "nothing in one choice":
                mask[:2] = 0
            if self.fault == "two":
                mask[1] = 2
            if self.fault == "short":
                mask = mask[:-1]
        return mask

    def _info(self) -> dict[str, Any]:
        late_or_lost = {"late": self.steps < 2, "lost": self.steps >= 2}.get(self.fault, False)
        if self.entry or self.fault == "none" or late_or_lost:
            return {}
        mask = self._given()
        match self.form:
            case "list":
                return {"action_mask": mask.tolist()}
            case "tuple":
                return {"action_mask": tuple(np.split(mask, np.cumsum(self.counts)[:-1]))}
        return {"action_mask": mask}

    def render(self) -> np.ndarray:
        return np.full((33, 55, 3), 20 * self.steps, dtype=np.uint8)


gymnasium.register(id="Guarded-v0", entry_point=Guarded)
