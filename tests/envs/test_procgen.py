"""Procgen: plain names, the published scale of returns, and levels for training and testing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Make

from anybatch import envs
from anybatch.acting.evaluation import Evaluation
from anybatch.cli import main
from anybatch.config import EnvConfig
from anybatch.envs import envpool_adapter, published
from anybatch.envs.episodes import Episode
from anybatch.envs.ids import procgen_id
from anybatch.errors import EnvError
from anybatch.runs import log


def test_there_are_sixteen_games_and_the_engine_has_them_all():
    known = set(envpool_adapter.known_ids())
    assert [len(games) for games in published.PROCGEN.values()] == [16, 16]
    for game in published.PROCGEN["Hard"]:
        assert procgen_id(f"procgen:{game}") in known
        assert procgen_id(f"procgen-easy:{game}") in known


def test_plain_names_are_the_engines_ids(make: Make):
    assert make("procgen:coinrun").spec.env_id == "CoinrunHard-v0"
    spec = make("procgen-easy:bigfish").spec
    assert spec.env_id == "BigfishEasy-v0" and spec.engine.startswith("envpool")
    assert spec.obs_bytes == envs.PROCGEN_OBSERVATION_BYTES == 12_288
    assert procgen_id("CoinrunHard-v0") is None


@pytest.mark.parametrize(
    ("env_id", "near"),
    [("procgen:coinrum", "procgen:coinrun"), ("procgen-easy:Starpilots", "procgen-easy:starpilot")],
)
def test_a_game_that_does_not_exist_is_answered_with_the_nearest(env_id: str, near: str):
    with pytest.raises(EnvError, match=f"no environment {env_id}; the nearest names are .*{near}"):
        envs.make(env_id, EnvConfig(), seeds=[1])


def test_another_engine_than_the_games_own_is_refused():
    with pytest.raises(EnvError, match=r"procgen:coinrun names the engine envpool, but .*gymnasium"):
        envs.make("procgen:coinrun", EnvConfig(engine="gymnasium"), seeds=[1])


@pytest.mark.parametrize(
    ("env_id", "value", "normalized"),
    [
        ("procgen:bigfish", 20, 0.5),
        ("MazeHard-v0", 7, 0.5),
        ("procgen:starpilot", 35, 1.0),
        ("procgen:starpilot", 1.5, 0.0),
        ("StarpilotEasy-v0", 33.25, 0.5),
        ("procgen-easy:fruitbot", -1.5, 0.0),
        ("envpool:FruitbotHard-v0", 27.2, 1.0),
        ("procgen:coinrun", 4, -0.2),
    ],
)
def test_returns_on_the_published_scale(env_id: str, value: float, normalized: float):
    assert published.on_published_scale(env_id, value) == pytest.approx(normalized, abs=1e-12)


def test_the_published_ranges():
    assert tuple(published.PROCGEN["Hard"])[:8] == (
        "coinrun", "starpilot", "caveflyer", "dodgeball", "fruitbot", "chaser", "miner", "jumper",
    )  # fmt: skip
    hard, easy = published.PROCGEN["Hard"], published.PROCGEN["Easy"]
    # Sums over the games: a typing error in any of the 64 numbers shows.
    assert np.sum(list(hard.values()), axis=0) == pytest.approx([26.5, 284.4])
    assert np.sum(list(easy.values()), axis=0) == pytest.approx([35.5, 309.0])
    assert all(low < high for low, high in (*hard.values(), *easy.values()))
    assert [game for game in hard if hard[game] == easy[game]] == [
        "coinrun", "dodgeball", "jumper", "leaper", "bossfight",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "toy:Match", "CoinrunExtreme-v0", "BreakoutHard-v0", "gym:MazeHard-v0"]
)
def test_what_has_no_published_range_has_no_normalized_return(env_id: str):
    assert published.on_published_scale(env_id, 1.0) is None


def test_an_evaluation_tells_both_scales():
    episodes = tuple(Episode(value, 10, 0) for value in (15.0, 25.0))
    played = Evaluation("BigfishHard-v0", episodes, greedy=False)
    assert played.normalized_return == played.to_json()["normalized_return"] == 0.5
    said = played.sentence()
    assert "20 ± 5 (standard error)" in said and "2 episodes, 0.500 on the game's published scale" in said
    other = Evaluation("CartPole-v1", episodes, greedy=False)
    assert "normalized_return" not in other.to_json() and "scale" not in other.sentence()


def first_frames(make: Make, seeds: list[int], **options: str) -> set[bytes]:
    return {frame.tobytes() for frame in make("procgen:coinrun", seeds=seeds, options=options).reset()}


def test_levels_can_be_split_for_training_and_testing(make: Make):
    seeds = list(range(24))
    trained_on = first_frames(make, seeds, num_levels="2", start_level="0")
    assert len(trained_on) == 2
    assert len(first_frames(make, seeds, num_levels="0")) > 12
    assert not trained_on & first_frames(make, seeds, num_levels="2", start_level="2")
    assert trained_on == first_frames(make, seeds[:12], num_levels="2")


def test_a_step_limit_which_the_engine_does_not_keep_is_refused(make: Make):
    with pytest.raises(
        EnvError, match=r"^env-config.max-episode-steps = 20 cannot be enforced: StarpilotEasy-v0 has"
    ):
        make("procgen-easy:starpilot", seeds=[0], max_episode_steps=20)


def test_a_run_on_levels_logs_the_normalized_return(tmp_path: Path):
    flags = "--total-env-steps 1600 --num-envs 16 --num-steps 50 --threads 1 --evaluation.num-envs 1"
    options = "--env-config.options num_levels 2 start_level 7"
    network = "--network.encoder impala --network.impala-channels 2 --network.impala-features 7"
    words = ["train", "--preset=procgen-small-ppo", f"--run-dir={tmp_path}", "--record.no-tensorboard"]
    main([*words, *flags.split(), *options.split(), *network.split()])
    (folder,) = tmp_path.iterdir()
    table = [row for row in log.read(folder) if "charts/episodic_return" in row]
    assert table
    for row in table:
        expected = (row["charts/episodic_return"] - 2.5) / (64 - 2.5)
        assert row["charts/normalized_return"] == pytest.approx(expected)


def test_a_run_can_be_tested_on_other_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    network = "--network.encoder impala --network.impala-channels 2 --network.impala-features 7"
    flags = f"--total-env-steps 32 --num-envs 4 --num-steps 8 --update.minibatches-per-epoch 1 {network}"
    words = ["train", "--preset=procgen-small-ppo", f"--run-dir={tmp_path}", "--record.no-tensorboard"]
    words += ["--threads=1", "--env=procgen:coinrun", "--env-config.options", "num_levels", "2"]
    seen: list[dict[str, str]] = []

    def keep(_: str, config: EnvConfig, **__: Any) -> Any:
        seen.append(config.options)
        raise EnvError("enough")

    with monkeypatch.context() as patch:
        patch.setattr("anybatch.evaluating.evaluate_state", lambda *_, **__: None)
        main([*words, *flags.split()])
    monkeypatch.setattr("anybatch.envs.make", keep)
    for options in ("start_level 2", "num_levels 0", "num_levels 0 start_level 9"):
        with pytest.raises(SystemExit):
            main(["evaluate", str(tmp_path), "--env-config.options", *options.split()])
    assert seen == [
        {"num_levels": "2", "start_level": "2"},
        {"num_levels": "0"},
        {"num_levels": "0", "start_level": "9"},
    ]
