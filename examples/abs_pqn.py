"""PQN with Adaptive Batch Scaling in one file, on MinAtar (arXiv:2407.04811 and arXiv:2605.21557).

    python examples/abs_pqn.py                        # Breakout with 32 environments: about a minute
    python examples/abs_pqn.py --fixed-steps 32       # the same with rollouts that keep their length
    python examples/abs_pqn.py --num-envs 64          # twice the batch: the learning rate follows

Copy this file and change it. It needs torch, MinAtar (`pip install minatar`), and two modules of anybatch:
`rules` and `equations`.
"""

import argparse
from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from minatar import Environment
from torch import Tensor, nn

from anybatch import rules
from anybatch.equations import divergence, returns, schedules

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


@dataclass(frozen=True)
class Hyperparameters:
    """What was chosen at `num_envs` environments and rollouts of `num_steps` steps."""

    num_envs: int = 32
    num_steps: int = 32
    """Rollout length per environment at the start: the iteration batch is 32 × 32 = 1,024 env steps."""
    minibatches: int = 8
    """Gradient steps per epoch: a minibatch has 1,024 ÷ 8 samples, and grows with the rollout."""
    epochs: int = 2
    """Passes over an iteration batch; more of them when the rollout is longer."""
    learning_rate: float = 1e-3
    max_grad_norm: float = 10.0
    discount: float = 0.99
    q_lambda: float = 0.65
    final_epsilon: float = 0.05
    """Share of random actions, reached after `exploration` of the run."""
    exploration: float = 0.2

    def rescaled(self, num_envs: int) -> "Hyperparameters":
        """The learning rate follows the minibatch, by the rule for Adam (arXiv:2110.00641, §3)."""
        ratio = num_envs / self.num_envs
        rate = rules.rescaled_learning_rate(self.learning_rate, ratio, "radam")
        return replace(self, num_envs=num_envs, learning_rate=rate)


class BatchScaling:
    """Adaptive Batch Scaling: short rollouts while the policy changes a lot, long ones once it has settled.

    The thresholds and the smoothing are the paper's. It measures every 50th of its iterations; a run of this
    example is shorter and measures more often.
    """

    SHORTEST, LONGEST, LOW, HIGH, SMOOTHING, EVERY, WARMUP = 16, 64, 0.05, 0.95, 0.1, 5, 10

    def __init__(self, num_steps: int, *, is_fixed: bool):
        self.length, self.is_fixed = float(num_steps), is_fixed
        self.measurements: deque[float] = deque(maxlen=20)
        self.iterations = 0

    @property
    def num_steps(self) -> int:
        return round(self.length)

    def follow(self, churn: float) -> None:
        """Move towards the length that belongs to the mean of the latest measurements of `churn`."""
        self.iterations += 1
        if self.iterations % self.EVERY:
            return
        self.measurements.append(churn)
        if len(self.measurements) < self.WARMUP or self.is_fixed:
            return
        mean = sum(self.measurements) / len(self.measurements)
        position = rules.divergence_position(mean, self.LOW, self.HIGH, "log")
        target = rules.steps_at_position(position, self.SHORTEST, self.LONGEST)
        self.length = rules.smoothed_steps(self.length, target, self.SMOOTHING)


class QNetwork(nn.Module):
    """Action values of a 10 × 10 image. Layer normalization replaces a target network (arXiv:2407.04811)."""

    def __init__(self, channels: int, num_actions: int, width: int = 128):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 3),
            nn.LayerNorm([16, 8, 8]),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 8 * 8, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, num_actions),
        )

    def forward(self, obs: Tensor) -> Tensor:
        """[B, channels, 10, 10] → [B, A]."""
        return self.layers(obs.float())


class Rollout(NamedTuple):
    """One iteration batch, time first: [T, N], observations [T, N, …], action values [T, N, A]."""

    obs: Tensor
    values: Tensor
    """Action values at the time of collection."""
    action: Tensor
    reward: Tensor
    terminated: Tensor
    next_value: Tensor
    """The best action's value of the observation that the step returned."""


class Games:
    """Copies of a game that remember where they are between rollouts."""

    def __init__(self, name: str, num_envs: int, seed: int):
        self.games = [Environment(name) for _ in range(num_envs)]
        for number, game in enumerate(self.games):
            game.seed(seed * num_envs + number)
            game.reset()
        self.random = np.random.default_rng(seed)
        self.episode_return = np.zeros(num_envs)
        self.returns: list[float] = []  # of all finished episodes

    def observe(self) -> Tensor:
        return torch.from_numpy(np.stack([game.state() for game in self.games])).permute(0, 3, 1, 2)

    @torch.no_grad()
    def collect(self, network: QNetwork, num_steps: int, epsilon: float) -> Rollout:
        rows = []
        obs = self.observe()
        values = network(obs)
        for _ in range(num_steps):
            is_random = self.random.random(len(self.games)) < epsilon
            any_action = self.random.integers(values.shape[1], size=len(self.games))
            action = np.where(is_random, any_action, values.argmax(1).numpy())
            reward, terminated = self.step(action)
            row = (obs, values, *(torch.as_tensor(column) for column in (action, reward, terminated)))
            obs = self.observe()
            values = network(obs)
            rows.append((*row, values.amax(1)))
        return Rollout(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards, and where an episode ended; its game starts again, and needs no value of what follows."""
        pairs = [game.act(chosen) for game, chosen in zip(self.games, action, strict=True)]
        reward, terminated = (np.array(column) for column in zip(*pairs, strict=True))
        self.episode_return += reward
        for number in terminated.nonzero()[0]:
            self.returns.append(float(self.episode_return[number]))
            self.episode_return[number] = 0.0
            self.games[number].reset()
        return reward.astype(np.float32), terminated.astype(bool)


class Trainer:
    """The state of training and one method per line of the algorithm."""

    def __init__(self, network: QNetwork, numbers: Hyperparameters, seed: int):
        self.network, self.numbers = network, numbers
        self.optimizer = torch.optim.RAdam(network.parameters(), lr=numbers.learning_rate)
        self.generator = torch.Generator().manual_seed(seed)

    def iterate(self, rollout: Rollout, learning_rate: float) -> float:
        """One iteration of PQN. Returns the share of states whose best action it changed."""
        self.optimizer.param_groups[0]["lr"] = learning_rate
        target = returns.q_lambda(
            rollout.reward,
            rollout.next_value,
            rollout.terminated,
            rollout.terminated,
            discount=self.numbers.discount,
            q_lambda=self.numbers.q_lambda,
        )
        obs, action = rollout.obs.flatten(0, 1), rollout.action.flatten()
        epochs = rules.growing_epochs(self.numbers.epochs, len(rollout.reward), self.numbers.num_steps)
        for _ in range(epochs):
            order = torch.randperm(len(action), generator=self.generator)
            for minibatch in order.tensor_split(self.numbers.minibatches):
                self.gradient_step(obs[minibatch], action[minibatch], target.flatten()[minibatch])
        with torch.no_grad():
            return divergence.greedy_action_churn(rollout.values.flatten(0, 1), self.network(obs)).item()

    def gradient_step(self, obs: Tensor, action: Tensor, target: Tensor) -> None:
        value = self.network(obs).gather(1, action[:, None]).squeeze(1)
        loss = 0.5 * (value - target).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.numbers.max_grad_norm)
        self.optimizer.step()


def train(game: str, num_envs: int, total_env_steps: int, fixed_steps: int | None, seed: int) -> float:
    """Mean return of the last 100 training episodes."""
    torch.manual_seed(seed)
    numbers = Hyperparameters().rescaled(num_envs)
    games = Games(game, num_envs, seed)
    trainer = Trainer(QNetwork(games.observe().shape[1], games.games[0].num_actions()), numbers, seed)
    scaling = BatchScaling(fixed_steps or numbers.num_steps, is_fixed=fixed_steps is not None)
    env_steps, report = 0, total_env_steps / 10
    while env_steps < total_env_steps:
        done = env_steps / total_env_steps
        epsilon = schedules.linear(1.0, numbers.final_epsilon, done / numbers.exploration)
        rollout = games.collect(trainer.network, scaling.num_steps, epsilon)
        churn = trainer.iterate(rollout, schedules.linear(numbers.learning_rate, 0.0, done))
        scaling.follow(churn)
        env_steps += rollout.reward.numel()
        if env_steps >= report:
            report += total_env_steps / 10
            print(
                f"{env_steps:,} env steps, return {np.mean(games.returns[-100:] or np.nan):.1f}, "
                f"best actions changed {churn:.0%}, rollouts of {scaling.num_steps} steps"
            )
    return float(np.mean(games.returns[-100:] or np.nan))


def main() -> None:
    parser = argparse.ArgumentParser(description="PQN with Adaptive Batch Scaling on MinAtar.")
    parser.add_argument("--game", choices=GAMES, default="breakout")
    parser.add_argument("--num-envs", type=int, default=Hyperparameters.num_envs)
    parser.add_argument("--total-env-steps", type=int, default=500_000)
    parser.add_argument("--fixed-steps", type=int, help="rollouts of this length, without a controller")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if min(args.num_envs, args.total_env_steps, args.fixed_steps or 1) < 1 or args.fixed_steps == 0:
        parser.error("--num-envs, --total-env-steps and --fixed-steps must be positive")
    mean = train(args.game, args.num_envs, args.total_env_steps, args.fixed_steps, args.seed)
    print(f"return {mean:.1f} over the last 100 episodes")


if __name__ == "__main__":
    main()
