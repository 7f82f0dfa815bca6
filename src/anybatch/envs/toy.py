"""Small environments whose answers are known in closed form, restorable bit for bit.

A game is a set of pure functions on arrays over N envs; `ToyEnv` adds step limits, resets and randomness.
Randomness is a function of (seed, number of draws), so the state of an env is a few numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from anybatch.config import EnvConfig
from anybatch.envs import settings as env_settings
from anybatch.envs.layout import ObsLayout
from anybatch.envs.protocol import (
    Actions,
    BoxActions,
    DiscreteActions,
    EnvSpec,
    EnvStep,
    MultiDiscreteActions,
    with_scaling,
)
from anybatch.errors import EnvError

RESET_MODES = ("next_step", "same_step")
UNIFORMS_PER_DRAW = 3
END_PROBABILITY = 1 / 8
"""That a step is the last, in most games."""

Played = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Next state [N, K], reward [N], terminated [N]."""


class Game(Protocol):
    """Rules without memory. `state` is float64 [N, K]; `uniform` is fresh randomness in [0, 1), [N, 3]."""

    @property
    def obs_layout(self) -> ObsLayout: ...
    @property
    def actions(self) -> Actions: ...
    @property
    def step_limit(self) -> int: ...

    def start(self, uniform: np.ndarray) -> np.ndarray: ...
    def observe(self, state: np.ndarray) -> np.ndarray: ...
    def play(self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> Played: ...


class Constant:
    """Reward 1 at every step and no end except the step limit: with bootstrapping V = 1 / (1 - γ)
    everywhere."""

    obs_layout = ObsLayout.single((2,), "vector")
    actions = DiscreteActions(2)
    step_limit = 5

    def start(self, uniform: np.ndarray) -> np.ndarray:
        return uniform[:, :2]

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state.astype(np.float32)

    def play(self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> Played:
        del state
        return uniform[:, :2], np.ones(len(action)), np.zeros(len(action), dtype=np.bool_)


class Match:
    """Reward 1 for the action that the observation shows; each step is the last with probability 1/8.

    The best policy has V = 1 / (1 - 7γ/8) before the step limit is counted.
    """

    count = 5
    obs_layout = ObsLayout.single((5,), "vector")
    actions = DiscreteActions(5)
    step_limit = 50

    def start(self, uniform: np.ndarray) -> np.ndarray:
        return np.floor(uniform[:, :1] * self.count)

    def observe(self, state: np.ndarray) -> np.ndarray:
        return (state == np.arange(self.count)).astype(np.float32)

    def play(self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> Played:
        reward = (action == state[:, 0]).astype(np.float64)
        return self.start(uniform), reward, uniform[:, 1] < END_PROBABILITY


class Corridor(Match):
    """Five cells; action 1 goes right, 0 left. Leaving at the right gives reward 1 and ends the episode.

    The best policy has V(cell) = γ^(4 - cell).
    """

    actions = DiscreteActions(2)

    def play(self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> Played:
        del uniform
        cell = state[:, 0] + np.where(action == 1, 1, -1)
        left = cell == self.count
        return np.clip(cell, 0, self.count - 1)[:, None], left.astype(np.float64), left


class Target:
    """Reward -‖action - goal‖² for the goal that the observation shows.

    Each step is the last with probability 1/8. The best policy has V = 0.
    """

    obs_layout = ObsLayout.single((2,), "vector")
    actions = BoxActions(np.full(2, -1, dtype=np.float32), np.full(2, 1, dtype=np.float32))
    step_limit = 50

    def start(self, uniform: np.ndarray) -> np.ndarray:
        return 2 * uniform[:, :2] - 1

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state.astype(np.float32)

    def play(self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> Played:
        reward = -np.square(np.clip(action, -1, 1) - state).sum(axis=1)
        return self.start(uniform), reward, uniform[:, 2] < END_PROBABILITY


class Pixels(Match):
    """`Match` with four actions and an image: the action is the quadrant that is bright."""

    count = 4
    actions = DiscreteActions(4)

    def __init__(self, image_shape: tuple[int, int, int]):
        self.image_shape = image_shape
        self.obs_layout = ObsLayout.single(image_shape, "image")

    def observe(self, state: np.ndarray) -> np.ndarray:
        return bright_quadrants(state[:, 0], self.image_shape)


@dataclass(frozen=True)
class Choices:
    """A symbol is shown for each choice. The right action is the symbol or, if a mask forbids it, the next
    that is allowed; the first follows the last. The reward is the share of the choices that are right, or -1
    if one is forbidden. The best policy has V = 1 / (1 - 7γ/8) before the step limit is counted.
    """

    counts: tuple[int, ...]
    masked: bool
    step_limit = 50

    @property
    def obs_layout(self) -> ObsLayout:
        width = sum(self.counts)
        return ObsLayout(vector_width=width, mask_width=width if self.masked else 0)

    @property
    def actions(self) -> Actions:
        if len(self.counts) == 1:
            return DiscreteActions(self.counts[0])
        return MultiDiscreteActions(self.counts)

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """The numbers of the symbols shown, and of the masks among all that allow something."""
        symbols = np.floor(uniform[:, 0] * math.prod(self.counts))
        masks = np.floor(uniform[:, 2] * math.prod(2**count - 1 for count in self.counts))
        return np.stack([symbols, masks], axis=1)

    def observe(self, state: np.ndarray) -> np.ndarray:
        shown = [symbol[:, None] == np.arange(count) for symbol, count in self._symbols(state)]
        vector = np.concatenate(shown, axis=1).astype(np.float32)
        if not self.masked:
            return vector
        mask = np.concatenate(self._allowed(state), axis=1)
        return self.obs_layout.pack(image=None, vector=vector, mask=mask)

    def play(self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> Played:
        taken = action.reshape(len(state), -1)
        rows = np.arange(len(state))
        right: list[np.ndarray] = []
        forbidden: list[np.ndarray] = []
        for choice, ((symbol, count), allowed) in enumerate(
            zip(self._symbols(state), self._allowed(state), strict=True)
        ):
            order = (symbol[:, None] + np.arange(count)) % count
            next_allowed = order[rows, np.take_along_axis(allowed, order, axis=1).argmax(axis=1)]
            right.append(taken[:, choice] == next_allowed)
            forbidden.append(~allowed[rows, taken[:, choice]])
        reward = np.where(np.any(forbidden, axis=0), -1.0, np.mean(right, axis=0))
        return self.start(uniform), reward, uniform[:, 1] < END_PROBABILITY

    def _symbols(self, state: np.ndarray) -> list[tuple[np.ndarray, int]]:
        """The symbol [N] of each choice, and its count."""
        return list(zip(_digits(state[:, 0], self.counts), self.counts, strict=True))

    def _allowed(self, state: np.ndarray) -> list[np.ndarray]:
        """The actions [N, count] of each choice that the mask allows: the binary digits of its number."""
        if not self.masked:
            return [np.ones((len(state), count), dtype=np.bool_) for count in self.counts]
        codes = _digits(state[:, 1], [2**count - 1 for count in self.counts])
        return [
            ((code[:, None] + 1) >> np.arange(count)) % 2 == 1
            for code, count in zip(codes, self.counts, strict=True)
        ]


class Mixed:
    """An image, a vector and a mask: the right action is the bright quadrant plus the number in the vector.

    The number is one of 0, 1 and 2, and the vector its place on a circle of three. One wrong action is
    forbidden: it costs 1. The best policy has the value of `Choices`.
    """

    image_shape = (3, 16, 16)
    obs_layout = ObsLayout(image_shape=image_shape, vector_width=2, mask_width=4)
    actions = DiscreteActions(4)
    step_limit = 50

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Quadrant, number to add, and how far behind the right action the forbidden one is."""
        quadrant, added = np.divmod(np.floor(uniform[:, 0] * 12), 3)
        return np.stack([quadrant, added, 1 + np.floor(uniform[:, 2] * 3)], axis=1)

    def observe(self, state: np.ndarray) -> np.ndarray:
        forbidden = (_right(state) + state[:, 2]) % 4
        angle = 2 * np.pi / 3 * state[:, 1]
        return self.obs_layout.pack(
            image=bright_quadrants(state[:, 0], self.image_shape),
            vector=np.stack([np.cos(angle), np.sin(angle)], axis=1),
            mask=np.arange(4) != forbidden[:, None],
        )

    def play(self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> Played:
        behind = (action - _right(state)) % 4
        reward = np.where(behind == 0, 1.0, np.where(behind == state[:, 2], -1.0, 0.0))
        return self.start(uniform), reward, uniform[:, 1] < END_PROBABILITY


GAMES: dict[str, Game] = {
    "Constant": Constant(),
    "Corridor": Corridor(),
    "Match": Match(),
    "Target": Target(),
    "Pixels": Pixels((3, 16, 16)),
    "Pixels84": Pixels((1, 84, 84)),
    "Masked": Choices((5,), masked=True),
    "MultiMatch": Choices((2, 3, 5), masked=False),
    "MaskedMulti": Choices((2, 3, 5), masked=True),
    "Mixed": Mixed(),
}


class ToyEnv:
    """N envs of one game. The option reset = same_step gives the same transitions without reset steps."""

    def __init__(self, name: str, config: EnvConfig, *, seeds: Sequence[int]) -> None:
        settings = env_settings.parse_options(config.options)
        reset = env_settings.take_choice(f"toy:{name}", settings, "reset", RESET_MODES)
        if settings:
            raise EnvError(f"toy:{name} has no option {next(iter(settings))}; its only option is reset")
        self._game = GAMES[name]
        self._same_step = reset == "same_step"
        self._step_limit = config.max_episode_steps or self._game.step_limit
        self._seeds = np.array(seeds, dtype=np.int64)
        self._draws = np.zeros(len(seeds), dtype=np.int64)
        self._steps = np.zeros(len(seeds), dtype=np.int64)
        self._done = np.zeros(len(seeds), dtype=np.bool_)
        self._state = self._game.start(self._uniform())
        self.spec = EnvSpec(
            env_id=f"toy:{name}",
            engine="toy",
            num_envs=len(seeds),
            obs_shape=self._game.obs_layout.shape,
            obs_dtype=self._game.obs_layout.dtype,
            actions=with_scaling(self._game.actions, config.actions),  # bounds are [-1, 1]
            obs_layout=self._game.obs_layout,
        )

    def reset(self) -> np.ndarray:
        self._done = np.zeros_like(self._done)
        self._restart(np.ones_like(self._done))
        return self._game.observe(self._state)

    def step(self, action: np.ndarray) -> EnvStep:
        valid = ~self._done
        before = self._state
        self._state, reward, terminated = self._game.play(before, action, self._uniform())
        self._draws = self._draws + valid
        self._steps = self._steps + valid
        terminated = terminated & valid
        truncated = valid & ~terminated & (self._steps >= self._step_limit)
        ended = terminated | truncated

        final_obs = self._game.observe(self._state) if self._same_step else None
        restarting = ended if self._same_step else ~valid
        if restarting.any():
            self._restart(restarting)
        self._done = np.zeros_like(ended) if self._same_step else ended
        obs = self._game.observe(self._state)
        reward = (reward * valid).astype(np.float32)
        return EnvStep(obs, reward, terminated, truncated, valid, reward, ended, final_obs)

    def _restart(self, where: np.ndarray) -> None:
        self._state = np.where(where[:, None], self._game.start(self._uniform()), self._state)
        self._draws = self._draws + where
        self._steps = np.where(where, 0, self._steps)

    def _uniform(self) -> np.ndarray:
        return uniform(self._seeds, self._draws, UNIFORMS_PER_DRAW)

    def close(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {
            "seeds": self._seeds.copy(),
            "draws": self._draws.copy(),
            "steps": self._steps.copy(),
            "done": self._done.copy(),
            "state": self._state.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, including seeds."""
        if np.shape(state["state"]) != self._state.shape:
            raise EnvError(
                f"{self.spec.env_id}: a saved state of shape {np.shape(state['state'])} does not fit "
                f"{self._state.shape}; the number of envs must be the same"
            )
        self._seeds = np.array(state["seeds"], dtype=np.int64)
        self._draws = np.array(state["draws"], dtype=np.int64)
        self._steps = np.array(state["steps"], dtype=np.int64)
        self._done = np.array(state["done"], dtype=np.bool_)
        self._state = np.array(state["state"], dtype=np.float64)


def uniform(seeds: np.ndarray, draws: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) per env, [N, count], a function of each env's seed and its number of draws.

    The SplitMix64 generator (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195), used by index: its n-th
    output is a hash of seed + n · constant.
    """
    index = draws[:, None] * count + np.arange(1, count + 1)
    bits = seeds.astype(np.uint64)[:, None] + index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = bits ^ (bits >> np.uint64(31))
    return (bits >> np.uint64(11)) * 2.0**-53


def bright_quadrants(quadrant: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """uint8 images [N, C, H, W] in which one of four quadrants is bright."""
    channels, height, width = shape
    lower, right = np.divmod(quadrant.astype(np.int64), 2)
    rows = (np.arange(height) >= height // 2) == lower[:, None]
    columns = (np.arange(width) >= width // 2) == right[:, None]
    image = (rows[:, :, None] & columns[:, None, :]).astype(np.uint8) * 255  # [N, H, W]
    return np.repeat(image[:, None], channels, axis=1)


def _right(state: np.ndarray) -> np.ndarray:
    return (state[:, 0] + state[:, 1]) % 4


def _digits(number: np.ndarray, bases: tuple[int, ...] | list[int]) -> list[np.ndarray]:
    """The digits [N] of whole numbers [N] whose places have different bases, the last place first."""
    digits: list[np.ndarray] = []
    rest = number.astype(np.int64)
    for base in bases:
        rest, digit = np.divmod(rest, base)
        digits.append(digit)
    return digits
