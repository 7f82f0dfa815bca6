"""Toy games with several choices at once, with action masks, and with observations of several parts.

In each the right answer is shown and pays 1, a forbidden action costs 1, and each step is the last with
probability 1/8: the best policy has V = 1 / (1 - 7γ/8) before the step limit is counted.
"""

import math
from dataclasses import dataclass

import numpy as np

from anybatch.envs.layout import ObsLayout
from anybatch.envs.protocol import Actions, DiscreteActions, MultiDiscreteActions

END_PROBABILITY = 1 / 8


@dataclass(frozen=True)
class Choices:
    """A symbol is shown for each choice. The right action is the symbol or, if a mask forbids it, the next
    that is allowed; the first follows the last. The reward is the share of the choices that are right.
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

    def play(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        taken = action.reshape(len(state), -1)
        rows = np.arange(len(state))
        right: list[np.ndarray] = []
        forbidden: list[np.ndarray] = []
        for choice, ((symbol, count), allowed) in enumerate(
            zip(self._symbols(state), self._allowed(state), strict=True)
        ):
            right.append(taken[:, choice] == _next_allowed(symbol, count, allowed))
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
    forbidden.
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

    def play(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        behind = (action - _right(state)) % 4
        reward = np.where(behind == 0, 1.0, np.where(behind == state[:, 2], -1.0, 0.0))
        return self.start(uniform), reward, uniform[:, 1] < END_PROBABILITY


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


def _next_allowed(symbol: np.ndarray, count: int, allowed: np.ndarray) -> np.ndarray:
    """The first allowed action [N] from `symbol` [N] on."""
    order = (symbol[:, None] + np.arange(count)) % count
    return order[np.arange(len(symbol)), np.take_along_axis(allowed, order, axis=1).argmax(axis=1)]
