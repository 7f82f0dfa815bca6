"""Environments of a user, registered on import. Their reward is the action they received."""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from gymnasium.vector import AutoresetMode, VectorEnv


class Echo(gymnasium.Env[Any, Any]):
    """Episodes of two steps; the observation is a random member of its space."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], bonus: float = 0.0) -> None:
        self.observation_space = deepcopy(observation_space)  # its generator must not be shared
        self.action_space = action_space
        self.bonus = bonus
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        self.steps += 1
        reward = float(np.sum(action)) + self.bonus
        return self.observation_space.sample(), reward, self.steps == 2, False, {}


class NeverResets(VectorEnv[Any, Any, Any]):
    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.single_observation_space = VECTOR
        self.single_action_space = Discrete(5)


VECTOR = Box(-1, 1, (3,), np.float32)
FLOAT_MAX = float(np.finfo(np.float32).max)
SPACES: dict[str, tuple[Space[Any], Space[Any]]] = {
    "Vector": (VECTOR, Discrete(5)),
    "ShiftedActions": (VECTOR, Discrete(5, start=-2)),
    # 0.1 is not a float32: an action clipped to the rounded bound would be outside.
    "NarrowBox": (VECTOR, Box(-0.1, 0.1, (2,), np.float64)),
    "UnboundedBox": (VECTOR, Box(-np.inf, np.inf, (2,), np.float32)),
    "Float64": (Box(-1, 1, (3,), np.float64), Discrete(5)),
    "Integers": (Box(-7, 7, (3,), np.int64), Discrete(5)),
    "Bits": (MultiBinary(3), Discrete(5)),
    "Symbols": (Discrete(7, start=2), Discrete(5)),
    "ChannelsLast": (Box(0, 255, (37, 41, 3), np.uint8), Discrete(5)),
    "ChannelsFirst": (Box(0, 255, (2, 37, 41), np.uint8), Discrete(5)),
    "FloatImage": (Box(0, 1, (3, 37, 41), np.float32), Discrete(5)),
    "FloatImageLast": (Box(-2, 6, (37, 41, 3), np.float64), Discrete(5)),
    "UnboundedFloatImage": (Box(-np.inf, np.inf, (1, 8, 8), np.float32), Discrete(5)),
    "LargestFloats": (Box(-FLOAT_MAX, FLOAT_MAX, (8, 8, 4), np.float32), Discrete(5)),
    "ThinFloatBox": (Box(0, 1, (3, 7, 41), np.float32), Discrete(5)),
    "ManyChannels": (Box(0, 1, (2, 37, 41), np.float32), Discrete(5)),
    "Matrix": (Box(-7, 7, (2, 3), np.int32), Discrete(5)),
    "Scalar": (Box(-7, 7, (), np.float32), Discrete(5)),
    "MatrixBits": (MultiBinary((2, 3)), Discrete(5)),
    "MultiSymbols": (MultiDiscrete([2, 3], start=[1, -1]), Discrete(5)),
    "DictObs": (
        Dict(
            {
                "beta": Discrete(3, start=1),
                "alpha": Tuple((VECTOR, MultiBinary(2))),
                "gamma": Dict({"inner": Box(-1, 1, (2, 2), np.float64)}),
            }
        ),
        Discrete(5),
    ),
    "DictOfOne": (Dict({"pixels": Box(0, 255, (37, 41, 3), np.uint8)}), Discrete(5)),
    "TupleObs": (Tuple((VECTOR, VECTOR)), Discrete(5)),
    "ImageAndVector": (
        Dict({"speed": VECTOR, "image": Box(0, 255, (37, 41, 3), np.uint8), "lives": Discrete(4)}),
        Discrete(5),
    ),
    "FloatImageAndVector": (Tuple((Box(0, 2, (3, 9, 8), np.float32), VECTOR)), Discrete(5)),
    "TwoImages": (Tuple((Box(0, 255, (2, 8, 8), np.uint8), Box(0, 1, (3, 8, 8), np.float32))), Discrete(5)),
    "TextObs": (Dict({"words": Text(5), "speed": VECTOR}), Discrete(5)),
    "SequenceObs": (Sequence(VECTOR), Discrete(5)),
    "GraphObs": (Tuple((Graph(VECTOR, None), VECTOR)), Discrete(5)),
    "OneOfObs": (Dict({"either": OneOf((VECTOR, VECTOR))}), Discrete(5)),
    "NestedMask": (Dict({"inner": Dict({"action_mask": MultiBinary(5), "speed": VECTOR})}), Discrete(5)),
    "DiscreteMask": (Dict({"action_mask": Discrete(5), "speed": VECTOR}), Discrete(5)),
    "OnlyMask": (Dict({"action_mask": MultiBinary(5)}), Discrete(5)),
    "ShortMask": (Dict({"action_mask": MultiBinary(4), "speed": VECTOR}), Discrete(5)),
    "ShortMultiMask": (Dict({"action_mask": MultiBinary(3), "speed": VECTOR}), MultiDiscrete([2, 3])),
    "MaskedBox": (Dict({"action_mask": MultiBinary(2), "speed": VECTOR}), Box(-1, 1, (2,), np.float32)),
    "MultiDiscrete": (VECTOR, MultiDiscrete([2, 3])),
    "ShiftedMultiDiscrete": (VECTOR, MultiDiscrete([2, 3], start=[5, -1], dtype=np.int32)),
    "MatrixMultiDiscrete": (VECTOR, MultiDiscrete([[2, 3], [4, 5]])),
    "MultiBinary": (VECTOR, MultiBinary(3)),
    "MatrixMultiBinary": (VECTOR, MultiBinary((2, 3))),
    "DictActions": (VECTOR, Dict({"move": Discrete(5)})),
    "IntegerBox": (VECTOR, Box(0, 3, (2,), np.int64)),
    "MatrixBox": (VECTOR, Box(-1, 1, (2, 3), np.float32)),
}
for name, (observation_space, action_space) in SPACES.items():
    gymnasium.register(
        id=f"{name}-v0",
        entry_point=Echo,
        kwargs={"observation_space": observation_space, "action_space": action_space},
    )
gymnasium.register(id="NeverResets-v0", vector_entry_point=NeverResets)
