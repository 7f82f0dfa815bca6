"""How good a policy is: a fixed number of episodes in each env slot, so that short ones do not count more."""

from dataclasses import dataclass

import numpy as np
import torch

from anybatch.config import EvaluationConfig
from anybatch.envs.episodes import Episode, EpisodeTracker
from anybatch.envs.protocol import BoxActions, VectorEnv
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.distributions import draw_noise
from anybatch.normalizers import ObservationNormalizer
from anybatch.rollout import action_width


@dataclass(frozen=True)
class Evaluation:
    """Scores of the episodes played, slot by slot."""

    episodes: tuple[Episode, ...]
    greedy: bool

    @property
    def mean_return(self) -> float:
        return float(np.mean([episode.episode_return for episode in self.episodes]))

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 for a single episode, which says nothing about it."""
        returns = [episode.episode_return for episode in self.episodes]
        return float(np.std(returns, ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else 0.0

    @property
    def mean_length(self) -> float:
        return float(np.mean([episode.length for episode in self.episodes]))

    def to_json(self) -> dict[str, object]:
        return {
            "mean_return": self.mean_return,
            "standard_error": self.standard_error,
            "mean_length": self.mean_length,
            "episodes": len(self.episodes),
            "greedy": self.greedy,
            "returns": [episode.episode_return for episode in self.episodes],
        }

    def sentence(self) -> str:
        how = "greedy" if self.greedy else "sampled"
        return (
            f"{self.mean_return:.6g} ± {self.standard_error:.3g} mean return over {len(self.episodes)} "
            f"episodes ({how} actions, mean length {self.mean_length:.4g})"
        )


@torch.inference_mode()
def evaluate(
    network: ActorCritic,
    env: VectorEnv,
    config: EvaluationConfig,
    *,
    normalizer: ObservationNormalizer | None,
    generator: torch.Generator,
    device: torch.device,
) -> Evaluation:
    """Play until every slot has finished `episodes_per_env` episodes. Statistics do not move."""
    spec = env.spec
    shape = (spec.num_envs, action_width(spec.actions))
    continuous = isinstance(spec.actions, BoxActions)
    tracker = EpisodeTracker(spec.num_envs)
    played: list[list[Episode]] = [[] for _ in range(spec.num_envs)]
    obs = env.reset()
    while any(len(slot) < config.episodes_per_env for slot in played):
        seen = obs if normalizer is None else normalizer.normalize(obs).astype(np.float32)
        policy = network.distribution(network.locate(torch.from_numpy(seen).to(device)))
        if config.greedy:
            action = policy.mode()
        else:
            action = policy.sample(draw_noise(shape, generator, continuous=continuous).to(device))
        step = env.step(action.cpu().numpy())
        tracker.update(step)
        for episode in tracker.take():
            played[episode.env].append(episode)
        obs = step.obs
    episodes = tuple(episode for slot in played for episode in slot[: config.episodes_per_env])
    return Evaluation(episodes, config.greedy)
