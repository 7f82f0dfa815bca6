"""The spaces of an environment as JSON, so that a trained policy can act without the environment.

Gymnasium is imported only for environments with its spaces.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from anybatch.envs.interface import ArrayInterface, Interface, SpaceInterface, interface_of
from anybatch.envs.protocol import (
    Actions,
    BoxActions,
    DiscreteActions,
    EnvSpec,
    MultiDiscreteActions,
    VectorEnv,
)


def to_json(env: VectorEnv) -> dict[str, Any]:
    """What `from_json` needs to know about an environment."""
    spec, interface = env.spec, interface_of(env)
    has_spaces = isinstance(interface, SpaceInterface)
    return {
        "env_id": spec.env_id,
        "engine": spec.engine,
        "obs_shape": list(spec.obs_shape),
        "obs_dtype": spec.obs_dtype.name,
        "actions": _actions_json(spec.actions),
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
    from anybatch.envs.observation_reader import INFO_KEY, ObservationReader
    from anybatch.envs.spaces import read_actions, read_observations

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


def _actions_json(actions: Actions) -> dict[str, Any]:
    match actions:
        case DiscreteActions():
            return {"count": actions.count}
        case MultiDiscreteActions():
            return {"counts": list(actions.counts)}
        case BoxActions():
            bounds = {"low": actions.low.tolist(), "high": actions.high.tolist()}
            return bounds | {"scaled": actions.scaled}


def _actions_from(data: Mapping[str, Any]) -> Actions:
    if "count" in data:
        return DiscreteActions(int(data["count"]))
    if "counts" in data:
        return MultiDiscreteActions(tuple(map(int, data["counts"])))
    low, high = (np.array(data[name], dtype=np.float32) for name in ("low", "high"))
    return BoxActions(low, high, scaled=bool(data["scaled"]))


def _space_json(space: Any) -> dict[str, Any]:
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    match space:
        case Box():
            bounds = {"low": _bound(space.low), "high": _bound(space.high)}
            return {"kind": "Box", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **bounds}
        case Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case MultiDiscrete():
            dtype = np.dtype(space.dtype).name
            return {
                "kind": "MultiDiscrete",
                "nvec": space.nvec.tolist(),
                "start": space.start.tolist(),
                "dtype": dtype,
            }
        case MultiBinary():
            return {"kind": "MultiBinary", "shape": list(space.shape)}
        case Tuple():
            return {"kind": "Tuple", "spaces": [_space_json(part) for part in space.spaces]}
        case Dict():
            return {"kind": "Dict", "spaces": {key: _space_json(part) for key, part in space.spaces.items()}}
    raise TypeError(f"a space of type {type(space).__name__} cannot be stored")


def _bound(bound: np.ndarray) -> Any:
    """One number if all are the same, as in images."""
    same = bound.size > 0 and bool((bound == bound.flat[0]).all())
    return bound.flat[0].item() if same else bound.tolist()


def _space_from(data: Mapping[str, Any]) -> Any:
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    match data["kind"]:
        case "Box":
            shape, dtype = tuple(map(int, data["shape"])), np.dtype(str(data["dtype"]))
            low, high = (
                np.broadcast_to(np.array(data[name], dtype=dtype), shape) for name in ("low", "high")
            )
            return Box(low, high, shape=shape, dtype=dtype.type)
        case "Discrete":
            return Discrete(int(data["n"]), start=int(data["start"]))
        case "MultiDiscrete":
            return MultiDiscrete(
                data["nvec"], start=np.array(data["start"]), dtype=np.dtype(str(data["dtype"])).type
            )
        case "MultiBinary":
            return MultiBinary(data["shape"])
        case "Tuple":
            return Tuple([_space_from(part) for part in data["spaces"]])
        case "Dict":
            # In the order of the original space, which a sorted one need not have.
            return Dict([(key, _space_from(part)) for key, part in data["spaces"].items()])
    raise ValueError(f"there is no space {data['kind']!r}")
