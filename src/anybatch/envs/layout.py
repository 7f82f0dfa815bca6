"""The parts of an observation, and the one array that holds them.

Rollouts, queues, segments and phases keep one tensor per observation. If an observation has several parts, an
adapter packs them into one row and the network unpacks them, so a mask stays with its observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from anybatch.config import ObsKind

FLOAT32 = np.dtype(np.float32)
UINT8 = np.dtype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class ObsLayout:
    """An image, a vector of numbers and an action mask, each of which may be absent.

    A single part is stored unchanged. Several parts are one row of numbers in the order vector, image, mask:
    float32, or bytes if the image consists of bytes or planes. Among bytes, the vector is stored as its
    float32 bytes.
    """

    image_shape: tuple[int, ...] | None = None
    """[channels, height, width]."""
    image_dtype: np.dtype = UINT8
    """uint8 for pixels, which networks divide by 255; float32 for pixels and bool for planes, which they use
    unchanged."""
    vector_width: int = 0
    mask_width: int = 0
    """Entries of the action mask: 1 if an action is allowed. 0 if there is no mask."""

    @classmethod
    def single(cls, shape: Sequence[int], kind: ObsKind) -> "ObsLayout":
        """The layout of observations that are one array: float32 numbers, uint8 pixels or bool planes."""
        if kind == "vector":
            return cls(vector_width=math.prod(shape))
        return cls(image_shape=tuple(shape), image_dtype=UINT8 if kind == "image" else np.dtype(np.bool_))

    @property
    def kind(self) -> ObsKind:
        """How an encoder interprets the observation: as its image, if it has one among other parts."""
        if self.image_shape is None:
            return "vector"
        return "planes" if self.image_dtype == np.bool_ else "image"

    @cached_property
    def is_packed(self) -> bool:
        """Whether there are several parts."""
        return (self.image_shape is not None) + (self.vector_width > 0) + (self.mask_width > 0) > 1

    @cached_property
    def dtype(self) -> np.dtype:
        """Type of the array that holds all parts."""
        if self.image_shape is None or self.image_dtype == np.float32:
            return FLOAT32
        return UINT8 if self.is_packed else self.image_dtype

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that holds all parts of one observation."""
        if self.is_packed:
            return (self._mask_start + self.mask_width,)
        return self.seen_shape

    @property
    def image_width(self) -> int:
        """Numbers in the image."""
        return 0 if self.image_shape is None else math.prod(self.image_shape)

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """The shape of an encoder's input: that of the image, else the number of the vector's entries."""
        return (self.vector_width,) if self.image_shape is None else self.image_shape

    @cached_property
    def vector_part(self) -> slice:
        """The place of the vector in a packed row."""
        return slice(self._image_start)

    @cached_property
    def image_part(self) -> slice:
        """The place of the image in a packed row."""
        return slice(self._image_start, self._mask_start)

    @cached_property
    def mask_part(self) -> slice:
        """The place of the mask in a packed row."""
        return slice(self._mask_start, self._mask_start + self.mask_width)

    @property
    def _image_start(self) -> int:
        return self.vector_width * (1 if self.dtype == np.float32 else FLOAT32.itemsize)

    @property
    def _mask_start(self) -> int:
        return self._image_start + self.image_width

    def pack(
        self, *, image: np.ndarray | None, vector: np.ndarray | None, mask: np.ndarray | None
    ) -> np.ndarray:
        """Rows of N observations, from images [N, C, H, W], vectors [N, V] and masks [N, A]."""
        count = next(len(part) for part in (image, vector, mask) if part is not None)
        rows = np.empty((count, *self.shape), dtype=self.dtype)
        if vector is not None:
            numbers = np.ascontiguousarray(vector, dtype=np.float32)
            rows[:, self.vector_part] = numbers if self.dtype == np.float32 else numbers.view(np.uint8)
        if image is not None:
            rows[:, self.image_part] = image.reshape(count, -1)
        if mask is not None:
            rows[:, self.mask_part] = mask
        return rows

    def image_of(self, obs: np.ndarray) -> np.ndarray:
        """The images [N, C, H, W] of observations [N, …] that have one."""
        assert self.image_shape is not None
        if not self.is_packed:
            return obs
        image = obs[:, self.image_part].reshape(len(obs), *self.image_shape)
        return image.astype(np.bool_) if self.image_dtype == np.bool_ else image

    def vector_of(self, obs: np.ndarray) -> np.ndarray:
        """The vectors [N, V] of observations [N, …] that have one."""
        if not self.is_packed:
            return obs
        vector = np.ascontiguousarray(obs[:, self.vector_part])
        return vector if self.dtype == np.float32 else vector.view(np.float32)

    def mask_of(self, obs: np.ndarray) -> np.ndarray:
        """The masks [N, A] of observations [N, …] that have one: True where an action is allowed."""
        return obs[:, self.mask_part] != 0
