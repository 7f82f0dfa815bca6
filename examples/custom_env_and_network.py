"""Train PPO-EWMA on an environment and with a network of one's own.

    python examples/custom_env_and_network.py --num-envs 4

The environment is an ordinary Gymnasium environment, the network an ordinary torch module that encodes its
observations; anybatch adds the heads of policy and value.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from torch import Tensor, nn

import anybatch


class Ring(gymnasium.Env):
    """Places on a ring, one of them the goal: step left, stay or step right; 1 for every step at the goal."""

    PLACES, LENGTH = 12, 30
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,))
    """Cosine and sine of both places: the agent's and the goal."""
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.places = self.np_random.integers(self.PLACES, size=2)
        self.steps = 0
        return seen(self.places), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.places[0] = (self.places[0] + action - 1) % self.PLACES
        self.steps += 1
        reward = float(self.places[0] == self.places[1])
        return seen(self.places), reward, False, self.steps == self.LENGTH, {}


def seen(places: np.ndarray) -> np.ndarray:
    angles = 2 * np.pi * places / Ring.PLACES
    return np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)


class Encoder(nn.Module):
    """Observations [B, 4] to features [B, 64], with products of the inputs."""

    def __init__(self, spec: anybatch.EnvSpec):
        super().__init__()
        (inputs,) = spec.obs_layout.seen_shape
        self.layer, self.gate = nn.Linear(inputs, 64), nn.Linear(inputs, 64)

    def forward(self, obs: Tensor) -> Tensor:
        return nn.functional.silu(self.layer(obs)) * self.gate(obs)


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO-EWMA with your own environment and network.")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--total-env-steps", type=int, default=40_000)
    args = parser.parse_args()
    try:
        settings = {"optimizer": {"learning_rate": 3e-3}, **vars(args)}
        run = anybatch.train(env=Ring, network=Encoder, **settings)
    except anybatch.UserError as error:
        parser.error(str(error))
    print(f"return {run.evaluate(episodes=20, greedy=True).mean_return:.1f} of at most {Ring.LENGTH}")
    agent = anybatch.load(run.folder, env=Ring, network=Encoder)
    print("place 3, goal 5:", ("left", "stay", "right")[int(agent.act(seen(np.array([3, 5]))))])


if __name__ == "__main__":
    main()
