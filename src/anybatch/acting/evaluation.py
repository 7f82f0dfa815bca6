"""Evaluation: a fixed number of episodes in each env slot, so that short ones do not count more."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.backends import Actor
from anybatch.distributed.shard import Shard
from anybatch.envs.episodes import Episode, EpisodeTracker
from anybatch.envs.protocol import EnvStep, VectorEnv
from anybatch.envs.published import on_published_scale
from anybatch.errors import note_own_line
from anybatch.networks.distributions import draw_noise
from anybatch.text import counted, number_text


@dataclass(frozen=True)
class Evaluation:
    """Scores of the evaluated episodes, slot by slot."""

    env_id: str
    episodes: tuple[Episode, ...]
    greedy: bool
    protocol: str | None = None
    """The `evaluation.protocol` of an Atari game; None for environments with only one protocol."""
    cap: int | None = None
    """The evaluation's own cap on the decisions of an episode; None: no cap."""

    @property
    def mean_return(self) -> float:
        return float(np.mean([episode.episode_return for episode in self.episodes]))

    @property
    def normalized_return(self) -> float | None:
        """Mean return on the published scale of the game; None if there is none."""
        return on_published_scale(self.env_id, self.mean_return)

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; 0 for a single episode, which says nothing about it."""
        returns = [episode.episode_return for episode in self.episodes]
        return float(np.std(returns, ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else 0.0

    @property
    def mean_length(self) -> float:
        return float(np.mean([episode.length for episode in self.episodes]))

    @property
    def capped_share(self) -> float:
        """Share of the episodes that were cut, at the environment's step limit or at the evaluation's cap."""
        return float(np.mean([episode.truncated for episode in self.episodes]))

    def _cuts(self) -> str:
        """The shares of episodes that ended at each limit, if any did."""
        cut = [episode for episode in self.episodes if episode.truncated]
        # In Atari the engine itself cuts at the cap, and resets within a game count towards it.
        at_cap = [
            episode
            for episode in cut
            if self.cap is not None and (self.protocol or episode.length >= self.cap)
        ]
        shares = {
            "reached the environment's step limit": len(cut) - len(at_cap),
            f"cut at the step cap of {self.cap:,}" if self.cap else "": len(at_cap),
        }
        said = (f"{100 * count / len(self.episodes):.3g}% {what}" for what, count in shares.items() if count)
        return "".join(f", {part}" for part in said)

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

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self) -> str:
        how = "greedy" if self.greedy else "sampled"
        normalized = self.normalized_return
        scaled = "" if normalized is None else f", {normalized:.3f} on the game's published scale"
        protocol = "" if self.protocol is None else f", protocol {self.protocol}"
        return (
            f"{number_text(self.mean_return, 6)} ± {number_text(self.standard_error, 3)} (standard error) "
            f"mean return over {counted(len(self.episodes), 'episode')}{scaled} ({how} actions{protocol}, "
            f"mean length {number_text(self.mean_length, 4)}{self._cuts()})"
        )


@dataclass(frozen=True)
class InferencePolicy:
    """A trained policy that acts: its weights and its observation statistics do not change."""

    network: Actor
    normalizer: ObservationNormalizer | None
    device: torch.device
    generator: torch.Generator
    greedy: bool
    shard: Shard | None = None
    """The env slots it runs in; None: all of them."""

    @torch.inference_mode()
    def act(self, obs: np.ndarray, *, greedy: bool | None = None) -> np.ndarray:
        """An action for each of the observations [N, …]; `greedy` defaults to the policy's."""
        try:
            policy = self.network.distribution(self.network.policy_params(self.seen(obs)))
        except Exception as error:
            note_own_line(error)
            raise
        if self.greedy if greedy is None else greedy:
            return policy.mode().cpu().numpy()
        slots, width = policy.params.shape
        shard = self.shard or Shard.whole(slots)
        noise = draw_noise((shard.total, width), self.generator, continuous=policy.log_std is not None)
        return policy.sample(noise[shard.envs].to(self.device)).cpu().numpy()

    def seen(self, obs: np.ndarray) -> torch.Tensor:
        """Observations [N, …] as the network's input: normalized, in its precision, on its device."""
        seen = torch.from_numpy(obs if self.normalizer is None else self.normalizer.normalize(obs))
        if seen.is_floating_point():
            seen = seen.to(next(self.network.parameters()).dtype)
        return seen.to(self.device)


class Slots:
    """The episodes of each env slot, including episodes that were cut at the step cap but continue.

    An engine resets a slot by itself when its episode ends, and otherwise only all slots together.
    """

    def __init__(self, num_envs: int, *, episodes_per_env: int, max_episode_steps: int | None) -> None:
        self._num_envs, self._episodes_per_env, self._cap = num_envs, episodes_per_env, max_episode_steps
        self._finished: list[list[Episode]] = [[] for _ in range(num_envs)]
        self._lacking = np.full(num_envs, episodes_per_env)
        self.restart()

    def restart(self) -> None:
        """All slots begin an episode."""
        self._tracker = EpisodeTracker(self._num_envs)
        self._was_cut = np.zeros(self._num_envs, dtype=np.bool_)

    def update(self, step: EnvStep) -> None:
        self._tracker.update(step)
        self._take(cut=False)
        if self._cap is not None:
            self._tracker.cut(self._cap)
            self._take(cut=True)

    def _take(self, *, cut: bool) -> None:
        for episode in self._tracker.take():
            if not self._was_cut[episode.env] and self._lacking[episode.env]:
                self._finished[episode.env].append(episode)
                self._lacking[episode.env] -= 1
            self._was_cut[episode.env] = cut

    @property
    def are_done(self) -> bool:
        return not self._lacking.any()

    @property
    def must_restart(self) -> bool:
        """Whether every slot that still needs episodes is in the middle of one that was cut."""
        lacking = self._lacking > 0
        return bool(lacking.any() and self._was_cut[lacking].all())

    @property
    def num_finished(self) -> int:
        return self._num_envs * self._episodes_per_env - int(self._lacking.sum())

    def episodes(self) -> tuple[Episode, ...]:
        return tuple(episode for slot in self._finished for episode in slot)

    @property
    def longest_under_way(self) -> int:
        return self._tracker.longest


def evaluate(
    policy: InferencePolicy,
    env: VectorEnv,
    *,
    episodes_per_env: int,
    max_episode_steps: int | None = None,
    protocol: str | None = None,
    report: Callable[[Slots], None] = lambda _: None,
) -> Evaluation:
    """Run until every slot has finished `episodes_per_env` episodes. `report` is called at every step."""
    slots = Slots(env.spec.num_envs, episodes_per_env=episodes_per_env, max_episode_steps=max_episode_steps)
    obs = env.reset()
    while not slots.are_done:
        step = env.step(policy.act(obs))
        slots.update(step)
        report(slots)
        obs = step.obs
        if slots.must_restart:
            slots.restart()
            obs = env.reset()
    return Evaluation(env.spec.env_id, slots.episodes(), policy.greedy, protocol, max_episode_steps)
