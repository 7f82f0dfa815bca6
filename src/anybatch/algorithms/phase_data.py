"""The data of a PPG phase, which its auxiliary epochs train on."""

import torch
from torch import Tensor

from anybatch.backends.acting import observation_dtype
from anybatch.envs.protocol import EnvSpec
from anybatch.storage.state_fit import validate_fit


class PhaseData:
    """Observations, value targets and masks of a phase's iterations, on the CPU. Images stay uint8."""

    def __init__(
        self,
        policy_iterations: int,
        num_steps: int,
        spec: EnvSpec,
        *,
        dtype: torch.dtype = torch.float32,
        is_saved: bool = True,
    ):
        shape = (policy_iterations, num_steps, spec.num_envs)
        self.obs = torch.empty(*shape, *spec.obs_shape, dtype=observation_dtype(spec, dtype))
        self.value_target = torch.empty(shape, dtype=dtype)
        self.valid = torch.empty(shape, dtype=torch.bool)
        self.iterations: list[int] = []
        """The iterations of the run in it, in order."""
        self.is_saved = is_saved
        """Whether checkpoints keep the data; otherwise there are checkpoints only between phases."""

    @property
    def is_full(self) -> bool:
        return len(self.iterations) == len(self.obs)

    @property
    def can_be_saved(self) -> bool:
        return self.is_saved or not self.iterations

    @property
    def flat_obs(self) -> Tensor:
        return self.obs.flatten(0, 2)

    @property
    def flat_value_target(self) -> Tensor:
        return self.value_target.flatten()

    def add(self, iteration: int, *, obs: Tensor, value_target: Tensor, valid: Tensor) -> None:
        """Add one iteration, flattened to [T · N] as in its optimization; `valid` is [T, N]."""
        position = len(self.iterations)
        self.obs[position] = obs.view_as(self.obs[position])
        self.value_target[position] = value_target.view_as(valid)
        self.valid[position] = valid
        self.iterations.append(iteration)

    def restore(self, iteration: int, segment: dict[str, Tensor]) -> None:
        """Add an iteration from a segment file."""
        position = len(self.iterations)
        like = {"obs": self.obs[position], "value_target": self.value_target[position]}
        like["valid"] = self.valid[position]
        validate_fit(segment, like, segment_name(iteration), finite=False)
        self.add(iteration, **segment)

    def fits(self, valid: Tensor, number: int, *, is_whole: bool) -> bool:
        """Whether this run can continue with `number` saved iterations like the one with `valid` [T, N]."""
        longest, *shape = self.valid.shape
        return list(valid.shape) == shape and (number == longest if is_whole else number <= longest)

    def clear(self) -> None:
        self.iterations.clear()

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return {
            segment_name(iteration): {
                "obs": self.obs[position],
                "value_target": self.value_target[position],
                "valid": self.valid[position],
            }
            for position, iteration in enumerate(self.iterations)
        }


def segment_name(iteration: int) -> str:
    """The name of the file that holds an iteration's data for the auxiliary phase."""
    return f"phase_{iteration:09d}"
