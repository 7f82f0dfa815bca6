"""The numbers that stand for a learning curve: its mean over the run, and over the end of it."""

from collections.abc import Iterable
from statistics import fmean

FINAL_SHARE = 0.1
"""The last part of a run, whose mean return is the final one."""
RETURN_DIGITS = 6
"""Significant digits that a cell keeps of returns."""


def filled(curve: Iterable[float | None]) -> list[float]:
    """A curve with gaps filled by the value after or, at the end, before them. Empty if it has no value.

    The episodes that a row is about ran in the env steps before it. With the value before the gap, curves of
    larger iterations would be late, and their areas too small.
    """
    values = list(curve)
    following = next((value for value in reversed(values) if value is not None), None)
    whole: list[float] = []
    for value in reversed(values):
        following = following if value is None else value
        if following is not None:
            whole.append(following)
    return whole[::-1]


def area(curve: Iterable[float | None]) -> float | None:
    """The mean over the run: the area under the curve, divided by its length."""
    whole = filled(curve)
    return rounded(fmean(whole)) if whole else None


def final_return(curve: Iterable[float | None]) -> float | None:
    """The mean over the last part of the run."""
    whole = filled(curve)
    return rounded(fmean(whole[-max(1, round(FINAL_SHARE * len(whole))) :])) if whole else None


def rounded(value: float | None, digits: int = RETURN_DIGITS) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")
