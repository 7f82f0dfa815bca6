"""The memory that a rollout is collected in."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from anybatch.envs.protocol import BoxActions, EnvSpec


@dataclass
class Buffers:
    """What is written at every step, and numpy views of it for the engine's side."""

    obs: Tensor
    action: Tensor
    location: Tensor
    acting_value: Tensor
    """Stays empty where the value network is not run while acting."""
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    final_obs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    """Same-step reset: rows, envs and the observations that ended their episodes."""

    @cached_property
    def views(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What the engine writes, as numpy sees it: made once, since a view costs more than a row."""
        return self.reward.numpy(), self.terminated.numpy(), self.truncated.numpy(), self.valid.numpy()

    @classmethod
    def allocate(cls, spec: EnvSpec, num_steps: int, dtype: torch.dtype) -> "Buffers":
        shape = (num_steps, spec.num_envs)
        continuous = isinstance(spec.actions, BoxActions)
        return cls(
            obs=torch.empty(
                num_steps + 1, spec.num_envs, *spec.obs_shape, dtype=observation_dtype(spec, dtype)
            ),
            action=torch.empty(*shape, *spec.action_shape, dtype=dtype if continuous else torch.int64),
            location=torch.empty(*shape, spec.action_width, dtype=dtype),
            acting_value=torch.empty(shape, dtype=dtype),
            reward=torch.empty(shape, dtype=dtype),
            terminated=torch.empty(shape, dtype=torch.bool),
            truncated=torch.empty(shape, dtype=torch.bool),
            valid=torch.empty(shape, dtype=torch.bool),
        )


def observation_dtype(spec: EnvSpec, dtype: torch.dtype) -> torch.dtype:
    """The type of stored observations: images and planes unchanged, numbers as `dtype`."""
    return {"uint8": torch.uint8, "bool": torch.bool}.get(spec.obs_dtype.name, dtype)
