"""Schedules in env steps: no resume lets the learning rate or the exploration jump up without a word."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from phase_runs import phase_config
from toy_runs import changed, cut_back, differences, newest_state, resume, toy_config, toy_pqn_config, train

from anybatch.algorithms.schedules import Schedule, Schedules
from anybatch.config import AnyConfig, ExplorationConfig, OptimizerConfig
from anybatch.dial import BatchControl, plan_table
from anybatch.errors import ConfigError
from anybatch.runs import log
from anybatch.runs.record import RunRecord

RATE = 1e-2
ANNEALED: dict[str, Any] = {
    "total_env_steps": 200,
    "optimizer": {"learning_rate": RATE, "anneal": "linear"},
    "record": {"checkpoint_every_iterations": 1, "keep_checkpoints": 100},
}
MAKES = [toy_config, toy_pqn_config, phase_config]


def column(folder: Path, name: str) -> dict[int, float]:
    """A metric by the env steps at which each iteration started."""
    rows = log.read(folder)
    starts = [0, *(row["env_steps"] for row in rows)]
    return {start: row[name] for start, row in zip(starts, rows, strict=False)}


def rates(folder: Path) -> dict[int, float]:
    return column(folder, "charts/learning_rate")


def stopped(config: AnyConfig, tmp_path: Path, share: float = 0.5) -> tuple[Path, int]:
    """A run that was killed after a part of its env steps, and the env steps it was saved at."""
    whole = train(config, tmp_path / "whole").folder
    saved = [int(path.name.removeprefix("step_")) for path in (whole / "checkpoints").iterdir()]
    env_steps = min(saved, key=lambda steps: abs(steps - share * config.total_env_steps))
    return cut_back(whole, tmp_path / "cut", env_steps), env_steps


def sentences(capsys: pytest.CaptureFixture[str], start: str) -> list[str]:
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line.startswith(start)]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("total", [400, 150])
def test_a_run_with_another_end_continues_from_its_learning_rate(
    make: Callable[..., AnyConfig], total: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = make(**ANNEALED)
    folder, middle = stopped(config, tmp_path)
    capsys.readouterr()
    resume(folder, replace(config, total_env_steps=total))
    there = RATE * (1 - middle / 200)
    (sentence,) = sentences(capsys, "The learning rate")
    assert sentence == (
        f"The learning rate continues from {there:.4g} and reaches 0 at {total} env steps; "
        "optimizer.anneal-until sets another end."
    )
    found = rates(folder)
    assert all(later <= earlier for earlier, later in pairwise(found.values()))
    for env_steps, rate in found.items():
        line = there * (total - env_steps) / (total - middle) if env_steps >= middle else None
        assert rate == pytest.approx(line if line is not None else RATE * (1 - env_steps / 200))


def test_an_extended_run_that_is_interrupted_ends_as_if_it_had_not_been(tmp_path: Path):
    config = toy_config(**ANNEALED)
    folder, _ = stopped(config, tmp_path)
    longer = replace(config, total_env_steps=400)
    resume(folder, longer)
    # The checkpoints of the second part hold its line: a resume of it needs no memory of the first.
    saved = sorted(int(path.name.removeprefix("step_")) for path in (folder / "checkpoints").iterdir())
    cut = cut_back(folder, tmp_path / "again", next(steps for steps in saved if steps > 300))
    resume(cut, RunRecord(cut).config)
    assert rates(cut) == rates(folder)
    assert differences(newest_state(folder)["shared"], newest_state(cut)["shared"]) == []


def test_a_run_that_had_reached_zero_takes_the_rate_of_a_run_of_its_new_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(**ANNEALED)
    outcome = train(config, tmp_path)
    capsys.readouterr()
    resume(outcome.folder, replace(config, total_env_steps=400))
    rises = RATE * (1 - outcome.env_steps / 400)
    (sentence,) = sentences(capsys, "The learning rate")
    assert sentence.startswith(
        f"The learning rate rises from 0 to {rises:.4g} and reaches 0 at 400 env steps;"
    )
    found = rates(outcome.folder)
    second = {env_steps: rate for env_steps, rate in found.items() if env_steps >= outcome.env_steps}
    assert second == pytest.approx({env_steps: RATE * (1 - env_steps / 400) for env_steps in second})


def test_an_end_beyond_the_run_keeps_its_line_when_the_run_is_extended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = changed(toy_config(**ANNEALED), optimizer={"anneal_until": 500})
    folder = train(config, tmp_path).folder
    capsys.readouterr()
    resume(folder, replace(config, total_env_steps=400))
    assert sentences(capsys, "The learning rate") == []
    found = rates(folder)
    assert found == pytest.approx({env_steps: RATE * (1 - env_steps / 500) for env_steps in found})


def test_an_end_stated_on_a_resume_is_that_of_a_line_from_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(**ANNEALED)
    folder, middle = stopped(config, tmp_path)
    capsys.readouterr()
    resume(folder, changed(config, total_env_steps=400, optimizer={"anneal_until": 800}))
    (sentence,) = sentences(capsys, "The learning rate")
    assert f"rises from {RATE * (1 - middle / 200):.4g} to {RATE * (1 - middle / 800):.4g}" in sentence
    assert rates(folder)[middle] == pytest.approx(RATE * (1 - middle / 800))


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("none", "linear", f"continues from {RATE} and reaches 0 at 200 env steps;"),
        ("linear", "none", f"to {RATE} and stays there."),
    ],
)
def test_annealing_that_a_resume_turns_on_or_off_is_said(
    first: str, then: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = changed(toy_config(**ANNEALED), optimizer={"anneal": first})
    folder, middle = stopped(config, tmp_path)
    capsys.readouterr()
    resume(folder, changed(config, optimizer={"anneal": then}))
    (sentence,) = sentences(capsys, "The learning rate")
    assert said in sentence
    assert rates(folder)[middle] == pytest.approx(RATE)  # its full value, with or without annealing


def test_a_resume_at_another_batch_keeps_the_place_on_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = toy_config(**ANNEALED)
    folder, middle = stopped(config, tmp_path)
    capsys.readouterr()
    resume(folder, replace(config, num_envs=12))
    assert sentences(capsys, "The learning rate") == []
    assert rates(folder)[middle] == pytest.approx(2 * RATE * (1 - middle / 200))


@pytest.mark.parametrize(("share", "continues"), [(0.3, True), (0.7, False)])
def test_exploration_never_rises_when_a_run_is_extended(
    share: float, continues: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    exploration = {"start": 1.0, "end": 0.1, "fraction": 0.5}
    config = toy_pqn_config(**ANNEALED | {"exploration": exploration})
    folder, middle = stopped(config, tmp_path, share)
    capsys.readouterr()
    resume(folder, replace(config, total_env_steps=400))
    there = max(1 - 0.9 * middle / 100, 0.1)
    expected = f"Exploration continues from ε = {there:.4g} and reaches 0.1 at 200 env steps."
    assert sentences(capsys, "Exploration") == ([expected] if continues else [])
    found = column(folder, "charts/epsilon")
    assert all(later <= earlier for earlier, later in pairwise(found.values()))
    for env_steps, epsilon in found.items():
        if env_steps >= middle and continues:
            line = there - (there - 0.1) * min((env_steps - middle) / (200 - middle), 1)
            assert epsilon == pytest.approx(line)


@pytest.mark.parametrize("make", MAKES)
def test_a_run_ends_at_the_share_of_its_learning_rate_that_is_stated(
    make: Callable[..., AnyConfig], tmp_path: Path
):
    config = changed(make(**ANNEALED), optimizer={"anneal_to": 0.5})
    found = rates(train(config, tmp_path).folder)
    assert found == pytest.approx({steps: RATE * (1 - 0.5 * min(steps / 200, 1)) for steps in found})
    assert 0.5 * RATE < min(found.values()) < 0.7 * RATE


def test_an_interrupted_run_continues_to_the_share_it_ends_at(tmp_path: Path):
    config = changed(toy_config(**ANNEALED), optimizer={"anneal_to": 0.5})
    folder, _ = stopped(config, tmp_path)
    resume(folder, config)
    (whole,) = (tmp_path / "whole").iterdir()
    assert rates(folder) == rates(whole)
    assert differences(newest_state(whole), newest_state(folder)) == []


def test_an_extended_run_continues_to_the_share_it_ends_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = changed(toy_config(**ANNEALED), optimizer={"anneal_to": 0.5})
    folder, middle = stopped(config, tmp_path)
    capsys.readouterr()
    resume(folder, replace(config, total_env_steps=400))
    there = RATE * (1 - 0.5 * middle / 200)
    (sentence,) = sentences(capsys, "The learning rate")
    assert f"continues from {there:.4g} and reaches {0.5 * RATE:g} at 400 env steps" in sentence
    last, rate = max(rates(folder).items())
    assert rate == pytest.approx(there - (there - 0.5 * RATE) * (last - middle) / (400 - middle))


def test_an_extended_run_that_has_reached_its_share_stays_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = changed(toy_config(**ANNEALED), optimizer={"anneal_to": 0.5})
    outcome = train(config, tmp_path)
    capsys.readouterr()
    resume(outcome.folder, replace(config, total_env_steps=400))
    assert sentences(capsys, "The learning rate") == [
        f"The learning rate continues from {0.5 * RATE:g} and stays there."
    ]
    assert rates(outcome.folder)[outcome.env_steps] == pytest.approx(0.5 * RATE)


@pytest.mark.parametrize(
    ("first", "then", "moves"),
    [
        (0.0, 0.25, "continues from {before:.4g} and reaches 0.0025 at 200 env steps"),
        (0.5, 0.0, "continues from {before:.4g} and reaches 0 at 200 env steps"),
        (0.0, 0.9, "rises from {before:.4g} to 0.009 and stays there."),
    ],
)
def test_another_share_on_a_resume_is_reached_from_the_current_learning_rate(
    first: float, then: float, moves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = changed(toy_config(**ANNEALED), optimizer={"anneal_to": first})
    folder, middle = stopped(config, tmp_path)
    capsys.readouterr()
    resume(folder, changed(config, optimizer={"anneal_to": then}))
    before = RATE * (1 - (1 - first) * middle / 200)
    (sentence,) = sentences(capsys, "The learning rate")
    assert moves.format(before=before) in sentence
    start, (last, rate) = max(before, then * RATE), max(rates(folder).items())
    assert rate == pytest.approx(start - (start - then * RATE) * (last - middle) / (200 - middle))


def test_schedules_go_through_their_record():
    exploration = ExplorationConfig(fraction=0.3)
    config = replace(toy_pqn_config(**ANNEALED), exploration=exploration, total_env_steps=17)
    for schedules in (Schedules.of(config), Schedules(learning_rate=None, exploration=None)):
        assert Schedules.from_dict(schedules.to_dict()) == schedules
    moved = Schedules.of(config).continued(replace(config, total_env_steps=170), env_steps=5)
    assert moved.learning_rate == Schedule(until=170, since=5, start=5 / 17)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"anneal": "linear", "anneal_until": 0}, "optimizer.anneal-until = 0: "),
        ({"anneal_until": 5}, "optimizer.anneal-until = 5: must be None unless optimizer.anneal = linear"),
        ({"anneal_to": 0.5}, "optimizer.anneal-to = 0.5: must be 0 unless optimizer.anneal = linear"),
        ({"anneal": "linear", "anneal_to": 1.0}, "optimizer.anneal-to = 1.0: must be in"),
        ({"anneal": "linear", "anneal_to": -0.1}, "optimizer.anneal-to = -0.1: must be in"),
        ({"anneal": "linear", "anneal_to": float("nan")}, "optimizer.anneal-to = nan: must be in"),
    ],
)
def test_an_end_that_cannot_be_is_refused(settings: dict[str, Any], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        OptimizerConfig(**settings)


@pytest.mark.parametrize(
    ("until", "end", "noted"), [(150, 0.0, True), (150, 0.5, False), (200, 0.0, False), (None, 0.0, False)]
)
def test_the_plan_notes_a_run_that_ends_at_a_rate_of_zero(until: int | None, end: float, noted: bool):
    config = changed(toy_config(**ANNEALED), optimizer={"anneal_until": until, "anneal_to": end})
    warnings = plan_table(config, BatchControl(config, encoder="mlp").plan).warnings
    assert (
        any("learning rate reaches 0 at optimizer.anneal-until = 150" in text for text in warnings) == noted
    )
