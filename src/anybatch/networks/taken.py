"""Whether a gradient step was applied: a bool, or a flag on the device that the program does not wait for."""

from typing import TypeVar

from torch import Tensor

Taken = bool | Tensor
"""A flag is 1.0 or 0.0, without dimensions."""
Number = float | Tensor
"""A Python number, or a tensor without dimensions on the device."""
Before = TypeVar("Before", bound=tuple[Number, ...])


def if_taken(flag: Tensor, now: Before, before: Before) -> Before:
    """The numbers `now` if the flag is 1, those `before` if it is 0, without reading it."""
    kept = (earlier + flag * (later - earlier) for later, earlier in zip(now, before, strict=True))
    return type(before)._make(kept)  # pyright: ignore[reportAttributeAccessIssue]
