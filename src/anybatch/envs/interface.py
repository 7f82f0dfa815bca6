"""Translation of single observations and actions between an environment and a policy, outside a rollout.

A program gives these observations, so they are checked before a network sees them. An environment's spaces
can be stored as JSON, for a policy that acts without it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from anybatch.envs.observation_reader import INFO_KEY, ObservationReader
from anybatch.envs.protocol import (
    ActionMap,
    Actions,
    BoxActions,
    DiscreteActions,
    EnvSpec,
    MultiDiscreteActions,
    VectorEnv,
)
from anybatch.envs.spaces import read_actions, read_observations
from anybatch.errors import EnvError

NUMBERS = "biuf"
"""numpy's kinds of booleans, integers and floats."""


class Values(NamedTuple):
    """What one observation consists of. Whole numbers have a smallest and a largest value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: np.ndarray | None
    high: np.ndarray | None


class Interface(Protocol):
    """Translates an environment's observations and actions."""

    def batch(self, obs: Any) -> tuple[Any, bool]:
        """One observation or a batch of them as a batch, and whether it was only one.

        Raises EnvError if it is anything else.
        """
        ...

    def observe(self, batch: Any, action_mask: Any | None) -> np.ndarray:
        """A batch of observations as a network sees it, [N, …]."""
        ...

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        """Actions [N, …] of a policy in the environment's form."""
        ...


@runtime_checkable
class HasInterface(Protocol):
    """An adapter whose observations or actions differ from those of a network."""

    @property
    def interface(self) -> Interface: ...


def interface_of(env: VectorEnv) -> Interface:
    return env.interface if isinstance(env, HasInterface) else ArrayInterface(env.spec)


@dataclass(frozen=True)
class ArrayInterface:
    """For environments whose observations are a network's inputs."""

    spec: EnvSpec

    def batch(self, obs: Any) -> tuple[np.ndarray, bool]:
        array = numbers(self.spec.env_id, obs)
        values = values_of_type(self.spec.obs_shape, self.spec.obs_dtype)
        single = array.shape == values.shape
        return _in_batch(self.spec.env_id, array[None] if single else array, values), single

    def observe(self, batch: Any, action_mask: Any | None) -> np.ndarray:
        if action_mask is not None:
            raise EnvError(
                f"{self.spec.env_id} takes no action_mask: its observations contain the masks, or it has none"
            )
        return batch

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        actions = self.spec.actions
        return actions.to_engine(action) if isinstance(actions, BoxActions) else action


@dataclass(frozen=True)
class SpaceInterface:
    """For environments with the spaces of Gymnasium."""

    env_id: str
    space: Any
    """The space of one observation."""
    action_space: Any
    """The space of one action."""
    reader: ObservationReader
    convert_action: Callable[[np.ndarray], np.ndarray]

    def batch(self, obs: Any) -> tuple[Any, bool]:
        parts = _each(self.space, obs, lambda part, _: numbers(self.env_id, part))
        first, space = next(_leaves(self.space, parts))
        single = first.shape == space.shape

        def in_batch(part: np.ndarray, space: Any) -> np.ndarray:
            values = values_of_space(space)
            if single and part.shape != values.shape:
                raise unfit(self.env_id, part.shape, values.shape)
            return _in_batch(self.env_id, part[None] if single else part, values)

        batch = _each(self.space, parts, in_batch)
        counts = sorted({len(part) for part, _ in _leaves(self.space, batch)})
        if len(counts) > 1:
            raise EnvError(
                f"the parts of the batch for {self.env_id} differ in their number of observations: "
                f"{counts[0]} and {counts[-1]}"
            )
        return batch, single

    def observe(self, batch: Any, action_mask: Any | None) -> np.ndarray:
        first, _ = next(_leaves(self.space, batch))
        return self.reader.outside(batch, len(first), action_mask)

    def to_engine(self, action: np.ndarray) -> np.ndarray:
        return self.convert_action(action)


def _in_batch(env_id: str, array: np.ndarray, values: Values) -> np.ndarray:
    """A batch [N, …] in the environment's type, if its shape fits and all of its values are possible."""
    if array.ndim == 0 or array.shape[1:] != values.shape:
        raise unfit(env_id, array.shape, values.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(values.dtype)
    if values.low is None or values.high is None:
        possible, shown = np.isfinite(converted), converted
    else:
        possible = (array >= values.low) & (array <= values.high) & (array == np.floor(array))
        shown = array
    if possible.all():
        return converted
    place = tuple(np.argwhere(~possible)[0])
    rule = ": values must be finite"
    if values.low is not None and values.high is not None:
        smallest, largest = values.low[place[1:]], values.high[place[1:]]
        rule = f", but only whole numbers from {smallest} to {largest} are possible"
    which = f"observation {place[0] + 1} of {len(array)}" if len(array) > 1 else "the observation"
    raise EnvError(f"{which} for {env_id} contains {shown[place]}{rule}")


def _each(space: Any, obs: Any, convert: Callable[[Any, Any], Any]) -> Any:
    """An observation, or a batch of them, with each part that has no others in it converted."""
    if not hasattr(space, "spaces"):
        return convert(obs, space)
    inner = space.spaces
    if isinstance(inner, Mapping):
        return {key: _each(part, _part(obs, key), convert) for key, part in inner.items()}
    return tuple(_each(part, _part(obs, index), convert) for index, part in enumerate(inner))


def _part(obs: Any, key: Any) -> Any:
    try:
        return obs[key]
    except (KeyError, IndexError, TypeError):
        if isinstance(obs, list | tuple) and any(isinstance(one, Mapping) for one in obs):
            raise EnvError("a batch is one dict of arrays [N, …], not a list of N dicts") from None
        raise EnvError(f"the observation lacks {key!r}, which is part of its space") from None


def _leaves(space: Any, obs: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """The parts that have no others in them, and their spaces."""
    if not hasattr(space, "spaces"):
        yield obs, space
        return
    inner = space.spaces
    for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from _leaves(part, obs[key])


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
    found = repr(given)
    found = found if len(found) <= 40 else f"a value of type {type(given).__name__}"
    try:
        array = np.asarray(given)
        if array.dtype.kind in NUMBERS:
            return array
    except ValueError:
        found = "rows of different lengths"
    except (TypeError, RuntimeError):  # such as a tensor on a GPU, or with a gradient
        pass
    raise EnvError(f"an observation for {env_id} must be an array of numbers; got {found}")


def unfit(env_id: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> EnvError:
    return EnvError(
        f"an observation of shape {shape} does not fit {env_id}, whose observations have shape {expected}, "
        "or that shape after the number of observations in a batch"
    )


def to_json(env: VectorEnv) -> dict[str, Any]:
    """The spaces of an environment, so that a trained policy can act without it."""
    spec, interface = env.spec, interface_of(env)
    has_spaces = isinstance(interface, SpaceInterface)
    return {
        "env_id": spec.env_id,
        "engine": spec.engine,
        "obs_shape": list(spec.obs_shape),
        "obs_dtype": spec.obs_dtype.name,
        "actions": {"kind": type(spec.actions).__name__} | _plain(vars(spec.actions)),
        "action_masks": spec.obs_layout.mask_width > 0,
        "observation_space": _space_json(interface.space) if has_spaces else None,
        "action_space": _space_json(interface.action_space) if has_spaces else None,
    }


def from_json(data: Mapping[str, Any]) -> tuple[EnvSpec, Interface]:
    """The spec of one such environment, and how its observations and actions are translated.

    Raises KeyError, TypeError or ValueError if the data is damaged.
    """
    env_id = str(data["env_id"])
    known: Any = {"env_id": env_id, "engine": str(data["engine"]), "num_envs": 1}
    if data["observation_space"] is None:
        shape, dtype = tuple(map(int, data["obs_shape"])), np.dtype(str(data["obs_dtype"]))
        spec = EnvSpec(**known, obs_shape=shape, obs_dtype=dtype, actions=_actions_from(data["actions"]))
        return spec, ArrayInterface(spec)
    space, action_space = _space_from(data["observation_space"]), _space_from(data["action_space"])
    observations = read_observations(space, env_id)
    how = "scaled" if data["actions"].get("scaled") else "clipped"
    actions, to_engine = read_actions(action_space, env_id, how)
    in_info = data["action_masks"] and observations.read_mask is None
    info: dict[str, Any] = {INFO_KEY: None} if in_info else {}
    reader = ObservationReader(observations, actions, env_id=env_id, num_envs=1, first_info=info)
    layout = reader.layout
    spec = EnvSpec(
        **known, obs_shape=layout.shape, obs_dtype=layout.dtype, actions=actions, obs_layout=layout
    )
    return spec, SpaceInterface(env_id, space, action_space, reader, to_engine)


def _actions_from(data: Mapping[str, Any]) -> Actions:
    match data["kind"]:
        case "DiscreteActions":
            return DiscreteActions(int(data["count"]))
        case "MultiDiscreteActions":
            return MultiDiscreteActions(tuple(map(int, data["counts"])))
        case _:
            low, high = (np.array(data[name], dtype=np.float32) for name in ("low", "high"))
            return BoxActions(low, high, scaled=bool(data["scaled"]))


SPACES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "Box": (Box, ("shape", "dtype", "low", "high")),
    "Discrete": (Discrete, ("n", "start")),
    "MultiDiscrete": (MultiDiscrete, ("nvec", "start", "dtype")),
    "MultiBinary": (MultiBinary, ("shape",)),
}
"""The kinds of spaces without parts, and the attributes that define one."""


def _space_json(space: Any) -> dict[str, Any]:
    kind = type(space).__name__
    if isinstance(space, Tuple):
        return {"kind": kind, "spaces": [_space_json(part) for part in space.spaces]}
    if isinstance(space, Dict):
        return {"kind": kind, "spaces": {key: _space_json(part) for key, part in space.spaces.items()}}
    if kind not in SPACES:
        raise TypeError(f"a space of type {kind} cannot be stored")
    return {"kind": kind} | _plain({name: getattr(space, name) for name in SPACES[kind][1]})


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a space or of actions as JSON values."""
    plain: dict[str, Any] = {}
    for name, value in attributes.items():
        match value:
            case ActionMap():
                continue
            case np.ndarray():
                # One number if all are the same, as the bounds of images are.
                is_same = value.size > 0 and name in ("low", "high") and bool((value == value.flat[0]).all())
                plain[name] = _numbers(value.flat[0].item() if is_same and value.ndim > 1 else value.tolist())
            case np.generic():
                plain[name] = value.item()
            case np.dtype():
                plain[name] = value.name
            case _:
                plain[name] = list(value) if isinstance(value, tuple) else value
    return plain


def _numbers(value: Any) -> Any:
    """Numbers in lists, where infinities are text: JSON has none."""
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _space_from(data: Mapping[str, Any]) -> Any:
    kind = data["kind"]
    if kind == "Tuple":
        return Tuple([_space_from(part) for part in data["spaces"]])
    if kind == "Dict":
        # In the order of the original space, which a sorted one need not have.
        return Dict([(key, _space_from(part)) for key, part in data["spaces"].items()])
    make, names = SPACES[kind]
    found = {name: data[name] for name in names}
    if kind == "MultiBinary":
        return MultiBinary(found["shape"])
    if "dtype" in found:
        dtype = found["dtype"] = np.dtype(str(found["dtype"])).type
        for name in ("low", "high") if kind == "Box" else ("start",):
            found[name] = np.array(found[name], dtype=dtype)
    if kind == "Box":
        shape = found["shape"] = tuple(map(int, found["shape"]))
        found |= {name: np.broadcast_to(found[name], shape) for name in ("low", "high")}
    return make(**found)
