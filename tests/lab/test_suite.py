"""Runs of several games put together: a suite's table, its medians and what is missing."""

import json
import shutil
from pathlib import Path

import pytest
from plain_commands import said
from toy_runs import toy_config, train

from anybatch.acting.evaluation import Evaluation
from anybatch.cli import main
from anybatch.envs import published
from anybatch.envs.episodes import Episode
from anybatch.evaluating import PlayedRun
from anybatch.lab import suites as suite
from anybatch.runs import log


def played(game: str, *percents: float, capped: bool = False) -> list[PlayedRun]:
    """Runs of a game that reached these percentages of a human's score, one episode each."""
    known = published.ATARI[game]
    scores = [known.low + percent / 100 * (known.high - known.low) for percent in percents]
    return [
        PlayedRun(
            f"runs/{game}-{number}",
            f"{game}-v5",
            1000,
            Evaluation(f"{game}-v5", (Episode(score, 10, 0, capped),), greedy=True, protocol="lives"),
        )
        for number, score in enumerate(scores)
    ]


def test_runs_of_a_game_are_averaged_and_games_count_the_same():
    runs = [*played("Qbert", 10, 30), *played("Phoenix", 50, capped=True), *played("Bowling", -10)]
    result = suite.summarize("atari-10", runs, ["CartPole-v1", "Pong-v5", "CartPole-v1"])
    assert [(game.game, len(game.runs)) for game in result.games] == [
        ("Bowling", 1),
        ("Phoenix", 1),
        ("Qbert", 2),
    ]
    assert [game.percent for game in result.games] == pytest.approx([-10, 50, 20])
    assert [game.capped_share for game in result.games] == [0, 1, 0]
    assert result.games[2].score == pytest.approx(163.9 + 0.2 * (13455.0 - 163.9))
    assert result.median_percent == pytest.approx(20) and result.mean_percent == pytest.approx(20)
    assert result.predicted_median_percent is None
    assert result.missing == (
        "Amidar", "BattleZone", "DoubleDunk", "Frostbite", "KungFuMaster", "NameThisGame", "Riverraid",
    )  # fmt: skip
    figures, absent = result.sentences()
    assert figures == ("Human-normalized over 3 of the 10 games: median 20%, mean 20% (protocol lives).")
    assert absent == (
        "No run of Amidar, BattleZone, DoubleDunk, Frostbite, KungFuMaster, NameThisGame, Riverraid; "
        "CartPole-v1, Pong-v5: not in atari-10, left out."
    )


@pytest.mark.parametrize(("name", "predicted"), [("atari-5", 85.0541), ("atari-10", 91.4781)])
def test_a_whole_suite_predicts_the_median_of_all_games(name: str, predicted: float):
    runs = [run for game in published.SUITES[name] for run in played(game, 50, 150)]
    result = suite.summarize(name, runs, [])
    assert result.predicted_median_percent == pytest.approx(predicted, abs=1e-4)
    assert result.to_json()["predicted_median_percent"] == result.predicted_median_percent
    assert result.sentences()[1] == f"Predicted median of all 57 games: {predicted:.4g}%."
    assert len(result.sentences()) == 2 and result.missing == ()


def test_of_all_57_games_the_median_is_the_median():
    runs = [run for number, game in enumerate(published.ATARI) for run in played(game, number**2)]
    result = suite.summarize("atari-57", runs, [])
    assert result.median_percent == pytest.approx(28**2) and result.predicted_median_percent is None
    assert result.mean_percent == pytest.approx(sum(n * n for n in range(57)) / 57)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four runs: Qbert with two seeds, Pong, and a game that is not Atari's."""
    base = tmp_path_factory.mktemp("runs")
    for env, seed in (("Qbert-v5", 1), ("envpool:Qbert-v5", 2), ("Pong-v5", 1)):
        train(
            toy_config(
                env=env,
                seed=seed,
                num_envs=2,
                num_steps=11,
                total_env_steps=22,
                threads=1,
                network={
                    "encoder": "impala",
                    "impala_channels": [2],
                    "impala_features": 3,
                    "heads": "shared",
                },
                env_config={"episodic_life": True, "reward_clip": True, "max_episode_steps": 11},
                evaluation={"num_envs": 1},
            ),
            base,
        )
    train(toy_config(), base)
    return base


def test_a_folder_of_runs_becomes_a_table(runs: Path, capsys: pytest.CaptureFixture[str]):
    out = said(capsys, "evaluate", "--suite", "atari-10", str(runs), "--evaluation.num-envs=2")
    table = [line.split() for line in out.splitlines()]
    assert ["game", "runs", "score", "human-normalized", "capped"] in table
    (row,) = [line for line in table if line[:2] == ["Qbert", "2"]]
    assert row[-1] == "100%"  # eleven decisions are no game: all are cut
    assert out.count("mean return over 2 episodes") == 2  # both runs are told on their way
    assert "over 1 of the 10 games" in out and "Predicted" not in out
    assert "Pong-v5, toy:Match: not in atari-10, left out." in out and "No run of Amidar, BattleZone" in out


def test_a_suite_as_json(runs: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--evaluation.num-envs=3", "--evaluation.greedy", "--evaluation.protocol=released", "--json"]
    first, *others = sorted(runs.iterdir())
    result = json.loads(said(capsys, "evaluate", str(first), str(runs), "--suite=atari-57", *flags))
    assert result["suite"] == "atari-57" and result["left_out"] == ["toy:Match"]
    assert len(result["missing"]) == 55 and result["predicted_median_percent"] is None
    pong, qbert = result["games"]
    assert (pong["game"], qbert["game"]) == ("Pong", "Qbert")
    assert len(pong["runs"]) == 1 and len(qbert["runs"]) == 2  # a run named twice counts once
    assert {run["run"] for game in result["games"] for run in game["runs"]} < {
        str(folder) for folder in (first, *others)
    }
    for run in (*pong["runs"], *qbert["runs"]):
        assert run["episodes"] == 3 and run["greedy"] and run["protocol"] == "released"
        assert run["env_steps"] == 22
    assert qbert["score"] == pytest.approx(sum(run["mean_return"] for run in qbert["runs"]) / 2)
    percents = [pong["human_normalized_percent"], qbert["human_normalized_percent"]]
    assert percents[1] == pytest.approx(100 * (qbert["score"] - 163.9) / (13455.0 - 163.9))
    assert result["median_percent"] == result["mean_percent"] == pytest.approx(sum(percents) / 2)


def test_a_run_without_a_checkpoint_is_left_out_and_named(
    runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (pong,) = runs.glob("Pong*")
    started = tmp_path / "Pong-v5__just__begun"
    started.mkdir()
    shutil.copy(pong / "config.json", started)
    main(["evaluate", str(started), str(pong), "--suite=atari-57", "--json"])
    captured = capsys.readouterr()
    assert [len(game["runs"]) for game in json.loads(captured.out)["games"]] == [1]
    assert captured.err == f"{started} has no checkpoint yet and is left out\n"


def test_settings_of_another_version_are_refused_with_the_name_of_the_run(
    runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (pong,) = runs.glob("Pong*")
    other = tmp_path / "other"
    shutil.copytree(pong, other)
    config = json.loads((other / "config.json").read_text())
    config["evaluation"]["of_later"] = 1
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit):
        main(["evaluate", str(other), "--suite=atari-57"])
    assert "other.evaluation do not fit this version: unknown of_later" in capsys.readouterr().err


def test_without_a_suite_one_run_is_evaluated(runs: Path, capsys: pytest.CaptureFixture[str]):
    (pong,) = runs.glob("Pong*")
    result = json.loads(said(capsys, "evaluate", str(pong), "--json"))
    assert (result["env"], result["protocol"], result["capped_share"]) == ("Pong-v5", "lives", 1)
    recorded = json.loads((pong / "result.json").read_text())["evaluation"]
    assert result == {"run": str(pong), "env": "Pong-v5", "env_steps": 22} | recorded
    rows = [row for row in log.read(pong) if "charts/episodic_return" in row]
    assert rows
    for row in rows:
        expected = (row["charts/episodic_return"] + 20.7) / (14.6 + 20.7)
        assert row["charts/normalized_return"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--suite=atari-9", "{runs}"], ["no suite atari-9", "atari-5, atari-10, atari-57"]),
        (["--suite", "atari-5", "{runs}/nothing"], ["no folder"]),
        (["--suite", "atari-5"], ["name the run folders"]),
        (["--suite", "atari-5", "--json", "{runs}"], ["name the run folders before"]),
        (["{toy}", "--suite", "atari-5"], ["none of the named runs is on a game of atari-5: toy:Match"]),
        (["{runs}", "--suite", "atari-10", "--evaluation.num-env=3"], ["--evaluation.num-envs"]),
        (["{runs}", "--suite"], ["--suite"]),
    ],
)
def test_what_cannot_be_put_together_is_one_sentence_and_code_2(
    words: list[str], parts: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
):
    (toy,) = runs.glob("toy*")
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", *(word.format(runs=runs, toy=toy) for word in words)])
    lines = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and len(lines) == 1
    assert all(part in lines[0] for part in parts), lines


def test_runs_without_a_checkpoint_cannot_be_put_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = train(toy_config(), tmp_path).folder
    shutil.rmtree(folder / "checkpoints")
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", str(tmp_path), "--suite", "atari-5"])
    left_out, reason = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and left_out == f"{folder} has no checkpoint yet and is left out"
    assert reason.endswith("none of the named runs has a checkpoint to evaluate")


def test_a_folder_with_the_name_of_the_suite_is_a_folder(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (pong,) = runs.glob("Pong*")
    (tmp_path / "atari-57").symlink_to(pong)
    monkeypatch.chdir(tmp_path)
    result = json.loads(said(capsys, "evaluate", "--suite", "atari-57", "atari-57", "--json"))
    assert [game["game"] for game in result["games"]] == ["Pong"]
