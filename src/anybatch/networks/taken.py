"""Whether a gradient step was taken: known to the program, or a flag on the device that nothing waits for."""

from typing import TypeVar

from torch import Tensor

Taken = bool | Tensor
"""A flag is 1.0 or 0.0, without dimensions."""
Number = float | Tensor
"""A number of the program or, without dimensions, of the device."""
Before = TypeVar("Before", bound=tuple[Number, ...])


def if_taken(flag: Tensor, now: Before, before: Before) -> Before:
    """The numbers `now` if the flag is 1, those `before` if it is 0, without looking at it."""
    kept = (earlier + flag * (later - earlier) for later, earlier in zip(now, before, strict=True))
    return type(before)._make(kept)  # pyright: ignore[reportAttributeAccessIssue]
