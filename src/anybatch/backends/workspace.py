"""Scratch memory of native code."""

from collections.abc import Callable

import torch
from torch import Tensor

MOST_SIZES = 4
"""Number of microbatch sizes for which memory is kept."""


class Workspace:
    """Scratch memory by number of samples. Few sizes occur, and reused memory is in the cache."""

    def __init__(self, numbers_for: Callable[[int], int], dtype: torch.dtype):
        """`numbers_for` returns how many numbers a number of samples needs."""
        self._numbers_for = numbers_for
        self._dtype = dtype
        self._kept: dict[int, Tensor] = {}

    def for_samples(self, count: int) -> int:
        """The address of memory to work on `count` samples."""
        if count not in self._kept:
            if len(self._kept) == MOST_SIZES:
                self._kept.clear()
            self._kept[count] = torch.empty(self._numbers_for(count), dtype=self._dtype)
        return self._kept[count].data_ptr()
