"""`benchmarks/learning.py`: its curves, its tables, and the settings it runs with."""

import importlib
import json
from statistics import fmean
from types import ModuleType

import pytest

from benchmarks import learning_summary
from benchmarks.learning_summary import comparisons, scores, seconds_to, sentences

TITLES = {"ours": "ours", "sb3": "SB3"}
TASKS = {
    "Won": {"env_steps": 100, "ours": {}, "sb3": {}},
    "Lost": {"env_steps": 100, "ours": {}, "sb3": {}},
    "Open": {"env_steps": 100, "ours": {}, "sb3": {}},
}


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch):
    """A module of the benchmarks, imported as its scripts import each other."""

    def imported(name: str) -> ModuleType:
        monkeypatch.syspath_prepend("benchmarks")
        return importlib.import_module(name)

    return imported


def row(task: str, trainer: str, seed: int, level: float) -> dict:
    """A run whose return rises evenly to `level`, in ten parts of a second each."""
    return {
        "task": task,
        "trainer": trainer,
        "seed": seed,
        "curve": [level * part / 10 for part in range(1, 11)],
        "seconds": [float(part) for part in range(1, 11)],
    }


def made_rows() -> list[dict]:
    levels = {
        ("Won", "ours"): (10.0, 11.0, 12.0),
        ("Won", "sb3"): (5.0, 6.0, 7.0),
        ("Lost", "ours"): (1.0, 1.5, 2.0),
        ("Lost", "sb3"): (5.0, 6.0, 7.0),
        ("Open", "ours"): (1.0, 9.0, 5.0),
        ("Open", "sb3"): (2.0, 8.0, 6.0),
    }
    return [
        row(task, trainer, seed, level)
        for (task, trainer), by_seed in levels.items()
        for seed, level in enumerate(by_seed)
    ]


def test_final_is_the_last_tenth_and_area_the_mean():
    rows = made_rows()
    assert scores(rows, "Won", "ours", "final") == [10.0, 11.0, 12.0]
    assert scores(rows, "Won", "ours", "area") == pytest.approx([5.5, 6.05, 6.6])


def test_scores_are_in_the_order_of_the_seeds():
    assert scores(made_rows()[::-1], "Won", "ours", "final") == [10.0, 11.0, 12.0]


def test_losses_are_named_as_losses():
    found = comparisons(made_rows(), list(TASKS))
    verdicts = {(one.task, one.metric): one.verdict for one in found}
    assert verdicts["Won", "final"] == verdicts["Won", "area"] == "better"
    assert verdicts["Lost", "final"] == verdicts["Lost", "area"] == "worse"
    assert verdicts["Open", "final"] == "open"
    text = sentences(found, TITLES)
    assert "- Better than SB3 in final return (ours): Won." in text
    assert "- **Worse** than SB3 in final return (ours): Lost." in text
    assert "- **Worse** than SB3 in area (ours): Lost." in text
    assert "- No difference from SB3 shown in final return (ours): Open." in text


def test_a_single_seed_is_not_compared_and_has_no_interval():
    rows = [one for one in made_rows() if one["seed"] == 0]
    assert comparisons(rows, list(TASKS)) == []
    assert "| Won | 100 | ours | 1 | 10 | 5.5 |" in learning_summary.returns_table(rows, TASKS, TITLES)


def test_what_was_not_run_is_named():
    rows = [
        one for one in made_rows() if one["trainer"] == "ours" or (one["task"], one["seed"]) == ("Won", 0)
    ]
    text = learning_summary.missing(rows, TASKS, TITLES, seeds=[0, 1, 2])
    assert text.splitlines()[2:] == ["- SB3: Won 1, Lost 0, Open 0"]
    assert "Lost | 100 | SB3" not in learning_summary.returns_table(rows, TASKS, TITLES)
    assert learning_summary.missing(made_rows(), TASKS, TITLES, seeds=[0, 1, 2]) == ""


def test_a_return_is_reached_when_the_mean_over_a_tenth_of_the_run_is_there():
    assert seconds_to(row("Won", "ours", 0, 10.0), wanted=5.0) == 5.0
    assert seconds_to(row("Won", "ours", 0, 10.0), wanted=10.5) is None


def test_times_are_until_the_return_that_the_peer_ends_with():
    rows = made_rows()
    timed = [one for one in rows if one["task"] == "Won" and one["seed"] == 0]
    table = learning_summary.times_table(rows, timed, TITLES)
    assert "| Won | SB3 | 6 | 10.0 | 6.0 |" in table  # ours rises to 10 in 10 s
    assert learning_summary.times_table(rows, [], TITLES).count("\n") == 1


def test_a_curve_counts_every_episode_once(benchmark_module):
    curve = benchmark_module("learning_process").Curve(env_steps=100, bins=4)
    curve.add(1, 1.0)
    curve.add(25, 3.0)  # the end of a part belongs to it
    curve.add(26, 5.0, episodes=3)
    curve.add(26, 9.0)
    curve.add(130, 7.0)  # beyond the end
    made = curve.to_json()
    assert made["curve"] == [2.0, fmean([5.0, 5.0, 5.0, 9.0]), None, 7.0]
    assert made["episodes"] == 7


def test_settings_name_what_exists(benchmark_module):
    learning = benchmark_module("learning")
    trainers = set(learning.TITLES)
    for task, settings in learning.PLAN["tasks"].items():
        assert settings.keys() - {"env_steps"} <= trainers, task
        assert "ours" in settings, task
    for name, trainer in learning.PLAN["trainers"].items():
        assert (learning.HERE / trainer["script"]).exists(), name
        assert trainer.get("venv", "sb3") in benchmark_module("peer_venvs").PEERS


def test_a_run_with_changed_settings_is_another_run(benchmark_module):
    learning = benchmark_module("learning")
    options = learning.argparse.Namespace(seeds=[701], tasks=["CartPole-v1"], trainers=["ours", "sb3"])
    ours, sb3 = (vars(request) for request in learning.requests(options))
    stored = json.loads(json.dumps(sb3))
    assert learning.key_of(stored) == learning.key_of(sb3) != learning.key_of(ours)
    stored["settings"]["gamma"] = 0.5
    assert learning.key_of(stored) != learning.key_of(sb3)
