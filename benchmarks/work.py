"""The numbers of a case without anything of ours, so that a process of another trainer can be told them."""

import json
from dataclasses import asdict, dataclass
from typing import Literal, Self


@dataclass(frozen=True, kw_only=True)
class Work:
    """What every trainer is to do."""

    algorithm: Literal["ppo", "pqn"]
    env: str
    num_envs: int
    num_steps: int
    minibatches_per_epoch: int
    epochs: int
    encoder: str
    hidden_sizes: tuple[int, ...]
    """Of the dense layers, where the encoder leaves them open."""
    channels: int
    """Of the convolution of MinAtar's network."""
    threads: int
    """Of torch; JAX takes the cores that it finds."""
    learning_rate: float
    max_grad_norm: float
    discount: float
    trace_lambda: float
    """λ of advantages (PPO) or of targets (PQN)."""
    clip: float = 0.0
    entropy_coefficient: float = 0.0
    value_coefficient: float = 0.0
    normalizes: bool = False
    """Observations and rewards."""
    atari_training: bool = False
    """A lost life ends an episode, and rewards are clipped."""

    @property
    def iteration_batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def minibatch(self) -> int:
        return self.iteration_batch // self.minibatches_per_epoch

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        numbers = json.loads(text)
        return cls(**numbers | {"hidden_sizes": tuple(numbers["hidden_sizes"])})
