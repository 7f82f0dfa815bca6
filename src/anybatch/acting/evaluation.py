"""How good a policy is: a fixed number of episodes in each env slot, so that short ones do not count more."""

from dataclasses import dataclass

import numpy as np
import torch

from anybatch.acting.collector import Actor
from anybatch.acting.observation_normalizer import ObservationNormalizer
from anybatch.envs.episodes import Episode, EpisodeTracker
from anybatch.envs.protocol import VectorEnv
from anybatch.envs.published_scale import on_published_scale
from anybatch.networks.distributions import draw_noise


@dataclass(frozen=True)
class Evaluation:
    """Scores of the episodes played, slot by slot."""

    env_id: str
    episodes: tuple[Episode, ...]
    greedy: bool
    protocol: str | None = None
    """How an Atari game was played, `evaluation.protocol`; None for environments that know one way only."""

    @property
    def mean_return(self) -> float:
        return float(np.mean([episode.episode_return for episode in self.episodes]))

    @property
    def normalized_return(self) -> float | None:
        """On the published scale of the game; None where there is none."""
        return on_published_scale(self.env_id, self.mean_return)

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 for a single episode, which says nothing about it."""
        returns = [episode.episode_return for episode in self.episodes]
        return float(np.std(returns, ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else 0.0

    @property
    def mean_length(self) -> float:
        return float(np.mean([episode.length for episode in self.episodes]))

    @property
    def capped_share(self) -> float:
        """Share of the episodes that were cut by the step limit."""
        return float(np.mean([episode.truncated for episode in self.episodes]))

    def to_json(self) -> dict[str, object]:
        normalized = self.normalized_return
        return {
            "mean_return": self.mean_return,
            **({} if normalized is None else {"normalized_return": normalized}),
            "standard_error": self.standard_error,
            "mean_length": self.mean_length,
            "capped_share": self.capped_share,
            "episodes": len(self.episodes),
            "greedy": self.greedy,
            **({} if self.protocol is None else {"protocol": self.protocol}),
            "returns": [episode.episode_return for episode in self.episodes],
        }

    def sentence(self) -> str:
        how = "greedy" if self.greedy else "sampled"
        normalized = self.normalized_return
        scaled = "" if normalized is None else f", {normalized:.3f} on the game's published scale"
        protocol = "" if self.protocol is None else f", protocol {self.protocol}"
        return (
            f"{self.mean_return:.6g} ± {self.standard_error:.3g} mean return over {len(self.episodes)} "
            f"episodes{scaled} ({how} actions{protocol}, mean length {self.mean_length:.4g}, "
            f"{100 * self.capped_share:.3g} % cut at the step cap)"
        )


@dataclass(frozen=True)
class Player:
    """A policy at play. Statistics of observations do not move."""

    network: Actor
    normalizer: ObservationNormalizer | None
    device: torch.device
    generator: torch.Generator
    greedy: bool

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> np.ndarray:
        """An action for each of the observations [N, …]."""
        seen = obs if self.normalizer is None else self.normalizer.normalize(obs).astype(np.float32)
        policy = self.network.distribution(self.network.locate(torch.from_numpy(seen).to(self.device)))
        if self.greedy:
            return policy.mode().cpu().numpy()
        noise = draw_noise(
            tuple(policy.location.shape), self.generator, continuous=policy.log_std is not None
        )
        return policy.sample(noise.to(self.device)).cpu().numpy()


def evaluate(
    player: Player, env: VectorEnv, *, episodes_per_env: int, protocol: str | None = None
) -> Evaluation:
    """Play until every slot has finished `episodes_per_env` episodes."""
    tracker = EpisodeTracker(env.spec.num_envs)
    played: list[list[Episode]] = [[] for _ in range(env.spec.num_envs)]
    obs = env.reset()
    while any(len(slot) < episodes_per_env for slot in played):
        step = env.step(player.act(obs))
        tracker.update(step)
        for episode in tracker.take():
            played[episode.env].append(episode)
        obs = step.obs
    episodes = tuple(episode for slot in played for episode in slot[:episodes_per_env])
    return Evaluation(env.spec.env_id, episodes, player.greedy, protocol)
