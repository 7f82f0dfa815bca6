"""Checks that a saved state can be restored, by comparison with the state of a fresh start.

Checksums detect damage by a disk, but not a state saved by another program or configuration.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anybatch.errors import CheckpointError

_LARGEST_INT = 2**63 - 1
_MISFITS = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, ArithmeticError)
"""Errors of restoring a part that a fresh state lacks, so that it could not be compared."""


@contextlib.contextmanager
def naming(checkpoint: Path) -> Iterator[None]:
    """Name the checkpoint in the error that refuses a part of it."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"the checkpoint {checkpoint} cannot be used: {error}") from error


@contextlib.contextmanager
def refusing_misfits(checkpoint: Path) -> Iterator[None]:
    """Refuse a checkpoint in one sentence, also if restoring it fails. Only for our own code."""
    with naming(checkpoint):
        try:
            yield
        except CheckpointError:
            raise
        except _MISFITS as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
            raise CheckpointError(what) from error


class Rules(NamedTuple):
    """The differences that a comparison allows."""

    may_lack: bool
    """Parts that are None or empty on one side. What only the saved state has, its reader must check."""
    any_length: bool
    """Whether arrays may differ in their first dimension, the number of envs."""
    finite: bool
    """Whether arrays must be finite."""


def validate_fit(
    saved: object,
    like: object,
    where: str,
    *,
    may_lack: bool = False,
    any_length: bool = False,
    finite: bool = True,
) -> None:
    """Raise CheckpointError unless `saved` has the structure, types and shapes of `like`.

    `where` is the place of both in the whole state; the other arguments are the `Rules`.
    """
    _compare(saved, like, where, Rules(may_lack, any_length, finite))


def _compare(saved: object, like: object, where: str, rules: Rules) -> None:
    if like is None or saved is None:
        is_part = saved is None and isinstance(like, dict | np.ndarray)
        if saved is not like and not (rules.may_lack and (like is None or is_part)):
            raise CheckpointError(f"{where} is {'missing' if saved is None else 'not known here'}")
        return
    match like:
        case dict():
            _compare_dicts(saved, like, where, rules)
        case list() | tuple():
            _compare_lists(saved, like, where, rules)
        case Tensor() | np.ndarray():
            _compare_arrays(saved, like, where, rules)
        case _:
            _require_value(saved, type(like), where)


def _compare_dicts(saved: object, like: Mapping[Any, Any], where: str, rules: Rules) -> None:
    if not isinstance(saved, dict):
        raise CheckpointError(f"{where} is {_kind(saved)}, not a table of parts")
    if rules.may_lack and not saved:
        return
    if rules.may_lack and not like:
        for name, value in saved.items():
            if not isinstance(value, Tensor):
                _require_numbers(value, f"{where}/{name}")
        return
    for name in (*like, *saved):
        if name not in saved or name not in like:
            raise CheckpointError(f"{where}/{name} is {'missing' if name in like else 'not known here'}")
        _compare(saved[name], like[name], f"{where}/{name}", rules)


def _compare_lists(saved: object, like: Sequence[Any], where: str, rules: Rules) -> None:
    if not isinstance(saved, list | tuple):
        raise CheckpointError(f"{where} is {_kind(saved)}, not a list")
    if like and len(saved) != len(like):
        raise CheckpointError(f"{where} has {len(saved)} entries, not {len(like)}")
    for place, value in enumerate(saved):
        if like:
            _compare(value, like[place], f"{where}/{place}", rules)
        else:
            _require_numbers(value, f"{where}/{place}")


def _require_numbers(saved: object, where: str) -> None:
    """Refuse anything but numbers, or lists of them, in parts that are empty at the start."""
    for value in saved if isinstance(saved, list | tuple) and saved else [saved]:
        _require_value(value, int if isinstance(value, int) else float, where)


def _compare_arrays(saved: object, like: Tensor | np.ndarray, where: str, rules: Rules) -> None:
    if not isinstance(saved, type(like) if isinstance(like, np.ndarray) else Tensor):
        raise CheckpointError(f"{where} is {_kind(saved)}, not an array")
    there, here = tuple(saved.shape), tuple(like.shape)
    same_rows = rules.any_length and len(there) == len(here) and there[1:] == here[1:]
    if there != here and not same_rows:
        raise CheckpointError(f"{where} is {there} in the checkpoint and {here} here")
    if saved.dtype != like.dtype:
        raise CheckpointError(f"{where} is of {_dtype(saved)} in the checkpoint and of {_dtype(like)} here")
    if rules.finite and not torch.isfinite(torch.as_tensor(saved)).all():
        raise CheckpointError(f"{where} has non-finite values")


def _require_value(saved: object, kind: type, where: str) -> None:
    fits = type(saved) is kind or (kind is float and type(saved) is int)
    if not fits:
        raise CheckpointError(f"{where} is {_kind(saved)}, not of type {kind.__name__}")
    if isinstance(saved, float) and not math.isfinite(saved):
        raise CheckpointError(f"{where} is {saved}, which is not a finite number")
    if isinstance(saved, int) and not 0 <= saved <= _LARGEST_INT:
        raise CheckpointError(f"{where} is out of range: {str(saved)[:40]}")


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"


def _dtype(array: Tensor | np.ndarray) -> str:
    return str(array.dtype).removeprefix("torch.")
