"""Atari's published scores, the small suites, and how games are played for evaluation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_runs import toy_config

from anybatch import evaluating
from anybatch.acting.evaluation import Evaluation
from anybatch.cli import main
from anybatch.config import EnvConfig
from anybatch.envs import envpool_adapter, is_atari, published
from anybatch.envs.published import on_published_scale
from anybatch.errors import ConfigError
from anybatch.runs import metrics as metric_names
from anybatch.runs.display import QUIET


def test_there_are_57_games_and_the_engine_has_them_all():
    assert len(published.ATARI) == len(set(published.ATARI)) == 57
    assert {f"{game}-v5" for game in published.ATARI} <= set(envpool_adapter.known_ids())


def test_the_published_scores():
    # Sums over the games: a typing error in any of the 114 numbers shows.
    scores = list(published.ATARI.values())
    assert np.sum(scores, axis=0) == pytest.approx([50_864.9, 606_494.2], abs=1e-6)
    assert all(known.low < known.high for known in scores)


@pytest.mark.parametrize("prefix", ["", "envpool:"])
def test_random_play_is_0_and_a_human_is_1(prefix: str):
    for game, known in published.ATARI.items():
        assert published.human_normalized(f"{prefix}{game}-v5", known.low) == 0
        assert published.human_normalized(f"{prefix}{game}-v5", known.high) == 1
    assert published.human_normalized(f"{prefix}Breakout-v5", 16.1) == pytest.approx(0.5)
    assert published.human_normalized(f"{prefix}FishingDerby-v5", -144.7) == pytest.approx(-1)


@pytest.mark.parametrize(
    "env_id",
    [
        "CartPole-v1",
        "toy:Match",
        "procgen:coinrun",
        "AirRaid-v5",
        "Breakout-v4",
        "gym:Breakout-v5",
        "Breakout",
    ],
)
def test_what_is_not_one_of_the_57_games_has_no_human_normalized_score(env_id: str):
    assert published.human_normalized(env_id, 1.0) is None


def test_the_published_scale_is_that_of_the_benchmark():
    assert on_published_scale("procgen:bigfish", 20) == 0.5
    assert on_published_scale("envpool:Boxing-v5", 6.1) == pytest.approx(0.5)
    assert on_published_scale("CartPole-v1", 500) is None
    assert "human-normalized" in metric_names.METRICS["charts/normalized_return"]


def test_the_small_suites():
    five, ten, all_ = (set(published.SUITES[name]) for name in ("atari-5", "atari-10", "atari-57"))
    assert five < ten < all_ == set(published.ATARI)
    assert five == {"BattleZone", "DoubleDunk", "NameThisGame", "Phoenix", "Qbert"}
    assert ten - five == {"Amidar", "Bowling", "Frostbite", "KungFuMaster", "Riverraid"}


def score_at(game: str, percent: float) -> float:
    known = published.ATARI[game]
    return known.low + percent / 100 * (known.high - known.low)


@pytest.mark.parametrize(
    ("suite", "predicted"),
    [("atari-5", 101**0.9653 - 1), ("atari-10", 101**0.9809 - 1)],  # the exponents are the coefficients' sums
)
def test_the_median_predicted_from_human_play_everywhere(suite: str, predicted: float):
    human = {game: known.high for game, known in published.ATARI.items()}
    assert published.predicted_median(suite, human) == pytest.approx(predicted, rel=1e-9)


def test_the_median_predicted_from_mixed_scores_takes_less_than_random_play_as_random():
    # 9, 99 and 999 % have the logarithms 1, 2 and 3; a negative percentage has 0.
    percents = {"BattleZone": 99, "DoubleDunk": -50, "NameThisGame": 9, "Phoenix": 999, "Qbert": 99}
    scores = {game: score_at(game, percent) for game, percent in percents.items()}
    exponent = 2 * 0.3820 + 0 * 0.0679 + 1 * 0.3108 + 3 * 0.1241 + 2 * 0.0805
    assert exponent == pytest.approx(1.6081)
    assert published.predicted_median("atari-5", scores) == pytest.approx(39.5602, abs=1e-4)


def test_nothing_is_predicted_from_a_suite_with_a_gap_or_from_all_games():
    human = {game: known.high for game, known in published.ATARI.items()}
    assert published.predicted_median("atari-57", human) is None
    del human["Bowling"]
    assert published.predicted_median("atari-10", human) is None
    assert published.predicted_median("atari-5", human) is not None


@dataclass(frozen=True)
class Acting:
    """A player whose actions come from a function of the number of envs."""

    choose: Callable[[int], np.ndarray]
    greedy: bool = True

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.choose(len(obs))


def never_fires(num_envs: int) -> np.ndarray:
    return np.zeros(num_envs, dtype=np.int64)


def evaluated(env: str, protocol: str, choose: Callable[[int], np.ndarray], **env_config: Any) -> Evaluation:
    """Two games as a run evaluates them that trains with lost lives and clipped rewards."""
    config = toy_config(
        env=env,
        env_config={"episodic_life": True, "reward_clip": True, **env_config},
        evaluation={"num_envs": 2, "protocol": protocol},
    )
    env_slots = evaluating.evaluation_env(config)
    try:
        return evaluating.play_episodes(config, Acting(choose), env_slots, QUIET)  # type: ignore[arg-type]
    finally:
        env_slots.close()


def test_under_lives_an_agent_that_never_fires_plays_all_its_balls():
    played = evaluated("Breakout-v5", "lives", never_fires, max_episode_steps=200)
    assert played.capped_share == 0 and played.protocol == "lives"
    assert [episode.length for episode in played.episodes] == [120, 120]  # five balls lost, 24 decisions each


def test_under_released_it_stands_still_until_the_step_cap():
    played = evaluated("Breakout-v5", "released", never_fires, max_episode_steps=200)
    assert played.capped_share == 1
    assert [episode.length for episode in played.episodes] == [200, 200]
    told = played.to_json()
    assert told["protocol"] == "released" and told["capped_share"] == 1
    assert "protocol released" in played.sentence() and "100% cut at the step cap" in played.sentence()


@pytest.mark.parametrize("protocol", ["lives", "released"])
def test_evaluated_scores_are_unclipped_although_training_clips(protocol: str):
    rng = np.random.default_rng(3)
    played = evaluated("Asterix-v5", protocol, lambda n: rng.integers(0, 9, n), max_episode_steps=60)
    returns = [episode.episode_return for episode in played.episodes]
    assert sum(returns) > 0 and all(score % 50 == 0 for score in returns)
    assert played.normalized_return == pytest.approx((played.mean_return - 210) / (8503.3 - 210))


def test_the_share_of_capped_episodes_is_known_of_every_environment():
    # Always to the right: the corridor's exit and its reward are reached, or the step limit cuts the episode.
    config = toy_config(env="toy:Corridor", env_config={"max_episode_steps": 3}, evaluation={"num_envs": 23})
    env = evaluating.evaluation_env(config)
    played = evaluating.play_episodes(config, Acting(lambda n: np.ones(n, dtype=np.int64)), env, QUIET)  # type: ignore[arg-type]
    assert 0 < played.mean_return < 1
    assert played.capped_share == pytest.approx(1 - played.mean_return)
    assert all(episode.truncated == (episode.episode_return == 0) for episode in played.episodes)
    assert played.protocol is None and "protocol" not in played.to_json()
    assert "protocol" not in played.sentence()
    assert "% reached the environment's step limit)" in played.sentence()


def test_the_released_protocol_is_for_atari_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert is_atari("AirRaid-v5", EnvConfig()) and is_atari("envpool:Pong-v5", EnvConfig())
    for env in ("CartPole-v1", "gym:CartPole-v1", "toy:Match", "procgen:coinrun"):
        assert not is_atari(env, EnvConfig())
        with pytest.raises(ConfigError, match=f"protocol = released needs .*Atari games, and {env} is not"):
            evaluating.evaluation_env(toy_config(env=env, evaluation={"protocol": "released"}))
    with pytest.raises(SystemExit) as stop:
        main(["train", "--env=toy:Match", "--evaluation.protocol=released", f"--run-dir={tmp_path}"])
    assert stop.value.code == 2 and "toy:Match is not one of them" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # before training, not after it
