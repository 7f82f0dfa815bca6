"""One iteration batch as it was collected."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from anybatch.envs.episodes import EPISODES, Episode, from_table, to_table
from anybatch.envs.protocol import EnvSpec


class Origin(NamedTuple):
    """The learner's progress when a rollout was collected."""

    iteration: int = 0
    gradient_steps: int = 0
    version: int = 0
    """Version of the weights that acted: the number of iterations trained before."""


START_OF_RUN = Origin()


@dataclass
class Rollout:
    """One iteration batch, time first, on the CPU. Rows with `valid` False are reset steps: not data."""

    obs: Tensor
    """[T + 1, N, …] as the network sees it; row t + 1 is what step t returned. Images stay uint8."""
    action: Tensor
    """[T, N] indices, [T, N, K] indices of K choices, or [T, N, A] as sampled, before they are clipped or
    scaled to the env's bounds."""
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    policy_params: Tensor
    """[T, N, A] logits, means or action values of the behavior policy."""
    log_std: Tensor | None
    """[A] of the behavior policy, for continuous actions."""
    behavior_logp: Tensor
    value: Tensor
    next_value: Tensor
    """[T, N] value of the observation that step t returned, which is the final one if an episode ended."""
    episodes: list[Episode]
    """Episodes that ended in this rollout, in the order of their ends."""
    origin: Origin = START_OF_RUN

    def tensors(self) -> dict[str, Tensor]:
        """Everything except the origin."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
        return tensors | {EPISODES: torch.from_numpy(to_table(self.episodes))}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], origin: Origin) -> "Rollout":
        rest = {name: tensor for name, tensor in tensors.items() if name not in ("log_std", EPISODES)}
        return cls(
            **rest,
            log_std=tensors.get("log_std"),
            episodes=from_table(tensors[EPISODES].numpy()),
            origin=origin,
        )

    @property
    def num_valid(self) -> int:
        return int(self.valid.sum())

    @property
    def episode_end(self) -> Tensor:
        return self.terminated | self.truncated


def rollout_bytes(spec: EnvSpec, num_steps: int) -> int:
    """Memory of one rollout, nearly all of which is observations."""
    return (num_steps + 1) * spec.num_envs * spec.obs_bytes
