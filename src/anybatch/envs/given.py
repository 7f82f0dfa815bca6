"""Checks of observations that a program gives to a policy, before a network sees them."""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

from anybatch.errors import EnvError

NUMBERS = "biuf"
"""numpy's kinds of booleans, integers and floats."""


class Values(NamedTuple):
    """What one observation consists of. Whole numbers have a smallest and a largest value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: np.ndarray | None
    high: np.ndarray | None


def values_of_type(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Values:
    """Any values that the type can hold."""
    if np.issubdtype(dtype, np.floating):
        return Values(shape, dtype, None, None)
    low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return Values(shape, dtype, np.broadcast_to(low, shape), np.broadcast_to(high, shape))


def values_of_space(space: Any) -> Values:
    """The values in a space of Gymnasium that has no parts; the bounds of a Box are not enforced."""
    match space:
        case Discrete() | MultiDiscrete():
            count = space.n if isinstance(space, Discrete) else space.nvec
            low = np.asarray(space.start)
            return Values(low.shape, space.dtype, low, low + count - 1)
        case MultiBinary():
            return values_of_type(space.shape, np.dtype(np.bool_))
        case _:
            return values_of_type(space.shape, space.dtype)


def numbers(env_id: str, given: object) -> np.ndarray:
    """What was given as an array of numbers."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise no_numbers(env_id, "rows of different lengths") from None
    except (TypeError, RuntimeError):  # such as a tensor on a GPU, or with a gradient
        raise no_numbers(env_id, brief(given)) from None
    if array.dtype.kind not in NUMBERS:
        raise no_numbers(env_id, brief(given))
    return array


def no_numbers(env_id: str, found: str) -> EnvError:
    return EnvError(f"an observation for {env_id} must be an array of numbers; got {found}")


def brief(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 40 else f"a value of type {type(given).__name__}"


def checked(env_id: str, array: np.ndarray, values: Values) -> np.ndarray:
    """A batch of observations [N, …] in the environment's type, if all of its values are possible."""
    if values.low is not None and values.high is not None:
        refuse_impossible(env_id, array, values.low, values.high)
        return array.astype(values.dtype)
    with np.errstate(over="ignore"):
        converted = array.astype(values.dtype)
    refuse_non_finite(env_id, converted)
    return converted


def refuse_impossible(env_id: str, array: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Refuse a batch with a value that is not whole, or not from `low` to `high`."""
    possible = (array >= low) & (array <= high) & (array == np.floor(array))
    if not possible.all():
        place = tuple(np.argwhere(~possible)[0])
        smallest, largest = low[place[1:]], high[place[1:]]
        raise EnvError(
            f"{which(array, place)} for {env_id} contains {array[place]}, but only whole numbers from "
            f"{smallest} to {largest} are possible"
        )


def refuse_non_finite(env_id: str, array: np.ndarray) -> None:
    """Refuse a batch with NaN or an infinity, for which a policy has no meaningful action."""
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0])
        raise EnvError(f"{which(array, place)} for {env_id} contains {array[place]}: values must be finite")


def which(array: np.ndarray, place: tuple[int, ...]) -> str:
    return f"observation {place[0] + 1} of {len(array)}" if len(array) > 1 else "the observation"


def unfit(env_id: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> EnvError:
    return EnvError(
        f"an observation of shape {shape} does not fit {env_id}, whose observations have shape {wanted}, "
        "or that shape after the number of observations in a batch"
    )
