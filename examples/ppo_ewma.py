"""PPO-EWMA in one file, for environments with discrete actions (arXiv:2110.00641, Algorithm 2).

    python examples/ppo_ewma.py                    # CartPole-v1 with 8 environments, as it was tuned
    python examples/ppo_ewma.py --num-envs 2       # a quarter of the batch: the hyperparameters follow

Copy this file and change it. It needs torch, gymnasium, and two modules of anybatch: `rules` and `equations`.
"""

import argparse
import copy
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from anybatch import rules
from anybatch.equations import divergence, moments, objectives, returns


@dataclass(frozen=True)
class Hyperparameters:
    """Everything that was tuned, at `num_envs` environments."""

    num_envs: int = 8
    num_steps: int = 128
    """Rollout length per environment: the iteration batch is 8 × 128 = 1,024 env steps."""
    minibatches: int = 32
    """Gradient steps per iteration, in one epoch, as the rules assume: a minibatch has 1,024 ÷ 32 samples."""
    learning_rate: float = 1.5e-3
    proximal_decay: float = 64 / 65
    """Decay β of the proximal EWMA: a center of mass of 64 gradient steps, 2,048 env steps."""
    advantage_decay: float = 0.0
    """Decay of the advantages' mean and standard deviation from one iteration to the next."""
    clip: float = 0.2
    discount: float = 0.99
    gae_lambda: float = 0.95
    entropy_coefficient: float = 0.01
    value_coefficient: float = 0.5

    def rescaled(self, num_envs: int) -> "Hyperparameters":
        """Hyperparameters for the same learning curve with another number of envs (arXiv:2110.00641, §4).

        Rollout length and number of minibatches stay, so everything in env steps changes by one ratio.
        """
        ratio = num_envs / self.num_envs
        return replace(
            self,
            num_envs=num_envs,
            learning_rate=rules.rescaled_learning_rate(self.learning_rate, ratio, "adam"),
            proximal_decay=rules.rescaled_proximal_decay(self.proximal_decay, ratio),
            advantage_decay=rules.rescaled_advantage_decay(self.advantage_decay, ratio, floor=True),
        )


class ActorCritic(nn.Module):
    """A policy and a value function with an encoder each."""

    def __init__(self, obs_size: int, num_actions: int, width: int = 64):
        super().__init__()
        self.policy = mlp(obs_size, width, num_actions, gain=0.01)
        self.value = mlp(obs_size, width, 1, gain=1.0)


def mlp(inputs: int, width: int, outputs: int, *, gain: float) -> nn.Sequential:
    first, second, head = nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)
    for layer, size in ((first, math.sqrt(2)), (second, math.sqrt(2)), (head, gain)):
        nn.init.orthogonal_(layer.weight, size)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), head)


class ProximalAverage:
    """Bias-corrected EWMA of the policy's weights: w ← β w + 1,  θ_prox ← θ_prox + (θ - θ_prox) / w."""

    def __init__(self, policy: nn.Module):
        self.policy = copy.deepcopy(policy).requires_grad_(False)
        self.total_weight = 1.0

    def follow(self, policy: nn.Module, decay: float) -> None:
        """Add the weights after a gradient step."""
        self.total_weight = decay * self.total_weight + 1.0
        for average, weight in zip(self.policy.parameters(), policy.parameters(), strict=True):
            average.lerp_(weight.detach(), 1.0 / self.total_weight)


class Rollout(NamedTuple):
    """One iteration batch, time first: [T, N], observations [T + 1, N, …]."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    """False where an environment was reset: its action was ignored, so that the row is not data."""


class Environments:
    """Vector environments that remember where they are between rollouts."""

    def __init__(self, env_id: str, num_envs: int, seed: int):
        self.envs = gymnasium.make_vec(env_id, num_envs)
        if not isinstance(self.envs.single_action_space, gymnasium.spaces.Discrete):
            raise ValueError(f"{env_id} has no discrete actions")
        self.obs, _ = self.envs.reset(seed=seed)
        self.was_done = np.zeros(num_envs, dtype=bool)
        self.episode_return = np.zeros(num_envs)
        self.returns: list[float] = []  # of all finished episodes

    @torch.no_grad()
    def collect(self, policy: nn.Module, num_steps: int) -> Rollout:
        observations, rows = [torch.as_tensor(self.obs, dtype=torch.float32)], []
        for _ in range(num_steps):
            distribution = torch.distributions.Categorical(logits=policy(observations[-1]))
            action = distribution.sample()
            self.obs, reward, terminated, truncated, _ = self.envs.step(action.numpy())
            valid = ~self.was_done
            self.was_done = terminated | truncated
            self.episode_return = np.where(valid, self.episode_return + reward, 0.0)
            self.returns += self.episode_return[self.was_done].tolist()
            observations.append(torch.as_tensor(self.obs, dtype=torch.float32))
            columns = (torch.as_tensor(column) for column in (reward, terminated, truncated, valid))
            rows.append((action, distribution.log_prob(action), *columns))
        action, logp, reward, *flags = (torch.stack(column) for column in zip(*rows, strict=True))
        return Rollout(torch.stack(observations), action, logp, reward.float(), *flags)


class Trainer:
    """The state of training and one method per line of the algorithm."""

    def __init__(self, network: ActorCritic, numbers: Hyperparameters, seed: int):
        self.network, self.numbers = network, numbers
        self.proximal = ProximalAverage(network.policy)
        self.optimizer = torch.optim.Adam(network.parameters(), lr=numbers.learning_rate, eps=1e-5)
        self.advantage_moments = moments.Moments(0.0, 0.0, 0.0)
        self.generator = torch.Generator().manual_seed(seed)

    def iterate(self, rollout: Rollout) -> dict[str, float]:
        """One iteration of PPO-EWMA."""
        advantage, value_target = self.advantages(rollout)
        valid = rollout.valid.flatten().nonzero().squeeze(1)
        order = valid[torch.randperm(len(valid), generator=self.generator)]
        seen = [
            self.gradient_step(
                rollout.obs[:-1].flatten(0, 1)[minibatch],
                rollout.action.flatten()[minibatch],
                rollout.behavior_logp.flatten()[minibatch],
                advantage.flatten()[minibatch],
                value_target.flatten()[minibatch],
            )
            for minibatch in order.tensor_split(self.numbers.minibatches)
        ]
        return {name: sum(step[name] for step in seen) / len(seen) for name in seen[0]}

    @torch.no_grad()
    def advantages(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Advantages, normalized once over the iteration, and value targets."""
        value = self.network.value(rollout.obs).squeeze(-1)
        # The row after an episode's end shows its final observation, from which a truncation bootstraps.
        advantage = returns.gae(
            rollout.reward,
            value[:-1],
            value[1:],
            rollout.terminated,
            rollout.terminated | rollout.truncated,
            discount=self.numbers.discount,
            gae_lambda=self.numbers.gae_lambda,
        )
        used = advantage[rollout.valid].double()
        self.advantage_moments = moments.ewma_moments(
            self.advantage_moments,
            len(used),
            used.mean().item(),
            used.square().mean().item(),
            decay=self.numbers.advantage_decay,
        )
        mean, std = moments.moments_mean_std(self.advantage_moments)
        return (advantage - mean) / (std + moments.EPSILON), advantage + value[:-1]

    def gradient_step(
        self, obs: Tensor, action: Tensor, behavior_logp: Tensor, advantage: Tensor, value_target: Tensor
    ) -> dict[str, float]:
        """The policy stays close to the proximal policy; importance weights refer to the behavior policy."""
        proximal_logp = self.proximal.policy(obs).log_softmax(1).gather(1, action[:, None]).squeeze(1)
        log_probabilities = self.network.policy(obs).log_softmax(1)
        logp = log_probabilities.gather(1, action[:, None]).squeeze(1)
        objective = objectives.decoupled_objective(
            logp, proximal_logp, behavior_logp, advantage, clip=self.numbers.clip
        )
        value_loss = objectives.value_loss(self.network.value(obs).squeeze(-1), value_target)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(1)
        loss = (
            self.numbers.value_coefficient * value_loss
            - objective
            - self.numbers.entropy_coefficient * entropy
        ).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.proximal.follow(self.network.policy, self.numbers.proximal_decay)
        clipped = divergence.is_clipped(logp - proximal_logp, self.numbers.clip)
        means = {"loss": loss, "entropy": entropy.mean(), "clipped": clipped.float().mean()}
        return {name: mean.item() for name, mean in means.items()}


def train(env_id: str, num_envs: int, total_env_steps: int, seed: int) -> float:
    """Mean return of the last 100 training episodes."""
    torch.manual_seed(seed)
    numbers = Hyperparameters().rescaled(num_envs)
    environments = Environments(env_id, num_envs, seed)
    spaces = environments.envs.single_observation_space, environments.envs.single_action_space
    trainer = Trainer(ActorCritic(math.prod(spaces[0].shape), int(spaces[1].n)), numbers, seed)
    env_steps, report = 0, total_env_steps / 10
    while env_steps < total_env_steps:
        rollout = environments.collect(trainer.network.policy, numbers.num_steps)
        seen = trainer.iterate(rollout)
        env_steps += int(rollout.valid.sum())
        if env_steps >= report:
            report += total_env_steps / 10
            recent = environments.returns[-100:]
            print(
                f"{env_steps:,} env steps, return {np.mean(recent or math.nan):.1f}, "
                f"entropy {seen['entropy']:.2f}, clipped {seen['clipped']:.1%}"
            )
    return float(np.mean(environments.returns[-100:] or math.nan))


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO-EWMA on an environment with discrete actions.")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=Hyperparameters.num_envs)
    parser.add_argument("--total-env-steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if min(args.num_envs, args.total_env_steps) < 1:
        parser.error("--num-envs and --total-env-steps must be positive")
    try:
        mean = train(args.env, args.num_envs, args.total_env_steps, args.seed)
    except (gymnasium.error.Error, ValueError) as error:
        parser.error(str(error))
    print(f"return {mean:.1f} over the last 100 episodes")


if __name__ == "__main__":
    main()
