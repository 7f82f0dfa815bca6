"""Ranks are hardware: a run is the same on 1, 2 and 3 of them, and where their number changes on the way."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_runs import in_ranks
from toy_runs import cut_back
from traces import BASE, DIVERGENCE, EWMA, PHASE, STALE

from anybatch import training
from anybatch.backends.minibatches import imbalances
from anybatch.backends.torch_backend import give_up
from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.distributed import collectives, group
from anybatch.errors import EnvError, UserError
from anybatch.presets import overlaid
from anybatch.runs import log
from anybatch.runs.display import QUIET
from anybatch.runs.record import RunRecord
from anybatch.storage.checkpoint import Checkpoints

ENVS = 5  # no number of ranks can share them evenly
RANKS = (2, 3)
ELASTIC = (4, 1, 3, 2)
# What differs from run to run, or is of several ranks or of actors only.
OF_THE_PROCESS = ("wall_seconds", "charts/SPS", "time/", "charts/ranks", "batch/rank_imbalance", "actors/")
PER_ITERATION: dict[str, Any] = {"normalize": {"observations": "iteration", "rewards": "iteration"}}
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "ppo": (
        "ppo",
        [
            {"objective": {"value_clip": 0.2, "advantage_normalization": "minibatch"}},
            {
                "update": {"target_kl": 0.01, "epochs": 3},
                "evaluation": {"every_env_steps": 100, "num_envs": 4},
            },
        ],
    ),
    "stale_sequences": (
        "ppo",
        [
            STALE | PER_ITERATION,
            {"env": "toy:Target", "proximal": {"policy": "iteration_start"}},
            {"staleness": {"scale_learning_rate": True}, "update": {"minibatch_of": "sequences"}},
        ],
    ),
    "ewma_kl": (
        "ppo",
        [EWMA, PER_ITERATION, {"controller": DIVERGENCE | {"kind": "kl", "low": 1e-4, "high": 1e-2}}],
    ),
    "ewma_noise_limit": ("ppo", [EWMA, {"minibatch": "noise-scale", "native": "off"}]),
    "ppg": (
        "ppg",
        [
            EWMA,
            STALE,
            PHASE,
            {
                "phase": {"value_epochs": 2},
                "normalize": {"rewards": "step"},
                "update": {"draw": "stratified"},
            },
        ],
    ),
    "pqn": (
        "pqn",
        [
            {"env": "toy:Corridor", "controller": DIVERGENCE, "optimizer": {"name": "radam"}},
            {"evaluation": {"num_envs": 4, "episodes_per_env": 3, "max_episode_steps": 3}},
            {"update": {"draw": "stratified"}},
        ],
    ),
}
ITERATIONS = 6


def config_of(name: str, iterations: int = ITERATIONS) -> AnyConfig:
    algorithm, overlays = CASES[name]
    settings = config_to_dict(CONFIGS[algorithm]())
    size = {
        "num_envs": ENVS,
        "total_env_steps": iterations * ENVS * 6,
        "record": {"checkpoint_every_iterations": 1},
    }
    for overlay in (BASE, size, *overlays):
        settings = overlaid(settings, overlay)
    return config_from_dict(CONFIGS[algorithm], settings)


def train_all(base: Path, iterations: int = ITERATIONS) -> None:
    for name in CASES:
        training.train(
            config_of(name, iterations),
            preset="test",
            base=base,
            name=name,
            output=QUIET,
        )


def resume_all(base: Path) -> None:
    for name in CASES:
        record = RunRecord(base / name)
        training.resume(record, record.config, output=QUIET)


def train_then_resume(base: Path, others: Path) -> None:
    train_all(base)
    resume_all(others)


def all_refusals(base: Path) -> list[tuple[str, str]]:
    train_all(base)
    refusals = [reject_on_all_but_the_first, give_up_on_the_last, fail_on_all]
    return [error_of(refuse) for refuse in refusals]


def error_of(function: Callable[[], None]) -> tuple[str, str]:
    """The error that a function raises on this rank."""
    try:
        function()
    except UserError as error:
        return type(error).__name__, str(error)
    return "", ""


def reject_on_all_but_the_first() -> None:
    with group.failing_together():
        if collectives.rank() > 0:
            raise EnvError(f"rank {collectives.rank()} has no such environment")


def give_up_on_the_last() -> None:
    """As after gradients that are non-finite because of a sample that only the last rank has."""
    is_last = collectives.rank() == collectives.world_size() - 1
    give_up("the first is the advantage of environment 4" if is_last else None)


def fail_on_all() -> None:
    """As where the environments of each rank fail at the same step."""
    if collectives.world_size() > 1 and group.is_first_to_fail():
        raise EnvError("an environment returned a non-finite reward")


@dataclass
class Found:
    """The folders of the same runs on different numbers of ranks, and on numbers that changed on the way."""

    trained: dict[int, Path]
    elastic: Path
    refusals: list[list[tuple[str, str]]]
    """The errors of each of four ranks, and of one process."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    base = tmp_path_factory.mktemp("ranks")
    trained = {ranks: base / f"trained-{ranks}" for ranks in (1, *RANKS)}
    elastic = [base / f"elastic-{ranks}" for ranks in ELASTIC]
    refusals = in_ranks(4, all_refusals, elastic[0], meeting=base / "four")
    cut_back_all(elastic[0], elastic[1], 2)
    refusals.append(all_refusals(trained[1]))
    resume_all(elastic[1])
    cut_back_all(elastic[1], elastic[2], 3)
    in_ranks(3, train_then_resume, trained[3], elastic[2], meeting=base / "three")
    cut_back_all(elastic[2], elastic[3], 4)
    in_ranks(2, train_then_resume, trained[2], elastic[3], meeting=base / "two")
    return Found(trained, elastic[3], refusals)


def cut_back_all(runs: Path, copies: Path, checkpoint: int) -> None:
    """Copies of all runs as if they had been killed after a checkpoint, counted from their first."""
    for name in CASES:
        saved = sorted((runs / name / "checkpoints").glob("step_*"))[checkpoint]
        cut_back(runs / name, copies / name, int(saved.name.removeprefix("step_")))


@pytest.mark.timeout(600)  # the first one trains all of them
@pytest.mark.parametrize("name", CASES)
def test_a_run_is_the_same_on_any_number_of_ranks(name: str, found: Found):
    alone = found.trained[1] / name
    assert len(log.read(alone)) >= ITERATIONS
    for ranks in RANKS:
        compare(found.trained[ranks] / name, alone)
        assert all(row["charts/ranks"] == ranks for row in log.read(found.trained[ranks] / name))


@pytest.mark.parametrize("name", CASES)
def test_a_run_whose_ranks_change_is_the_undisturbed_one(name: str, found: Found):
    """Also in the middle of a phase of PPG, and with data that wait."""
    compare(found.elastic / name, found.trained[1] / name)
    ranks = [int(row["charts/ranks"]) for row in log.read(found.elastic / name)]
    assert list(dict.fromkeys(ranks)) == list(ELASTIC)


def test_what_some_ranks_refuse_is_refused_by_all_and_said_by_the_first_of_them(found: Found):
    assert [refused for refused, *_ in found.refusals] == [
        ("RankError", ""),
        ("EnvError", "rank 1 has no such environment"),
        ("RankError", ""),
        ("RankError", ""),
        ("", ""),
    ]


def test_of_ranks_that_give_up_together_the_one_that_knows_the_cause_says_it(found: Found):
    *others, last, alone = [gave_up for _, gave_up, _ in found.refusals]
    assert others == [("RankError", "")] * 3 and last == alone
    assert last[0] == "TrainingError" and "the advantage of environment 4." in last[1]


def test_of_ranks_that_fail_on_their_own_the_first_says_why(found: Found):
    assert [failed for *_, (failed, _) in found.refusals].count("EnvError") == 1


def test_only_one_rank_writes(found: Found):
    """Two writers would double the rows, or leave their own checkpoints and event files behind."""
    for name in CASES:
        rows = {ranks: len(log.read(found.trained[ranks] / name)) for ranks in found.trained}
        assert len(set(rows.values())) == 1


def test_the_imbalance_of_minibatches_is_measured(found: Found):
    """Five envs on two ranks: at best three of them on one, 1.2 times the mean."""
    rows = log.read(found.trained[2] / "pqn")
    shares = [row["batch/rank_imbalance"] for row in rows]
    assert all(1 <= share <= 2 for share in shares) and max(shares) > 1.1


def test_the_imbalance_of_a_minibatch_is_the_largest_number_of_samples_on_a_rank_divided_by_the_mean(
    monkeypatch: pytest.MonkeyPatch,
):
    """Two time steps of five envs, of which the first rank has three."""
    monkeypatch.setattr(collectives, "world_size", lambda: 2)
    parts = [torch.tensor(samples) for samples in ([0, 6, 2, 3], [3, 4, 8], [2, 8], [0, 1, 7, 8, 9])]
    assert imbalances(parts, 5) == pytest.approx([3 / 2, 3 / 1.5, 1, 1.2])
    assert imbalances([], 5) == []


def compare(here: Path, there: Path) -> None:
    """Metrics to 1e-6, and everything in the newest checkpoints to 1e-9."""
    rows, recorded = log.read(here), log.read(there)
    assert len(rows) == len(recorded)
    for row, other in zip(rows, recorded, strict=True):
        assert measured(row) == pytest.approx(measured(other), rel=1e-6, abs=1e-6, nan_ok=True)
    state, other = newest(here), newest(there)
    assert not unlike(state, other)
    result, other_result = RunRecord(here).result, RunRecord(there).result
    assert result is not None and other_result is not None
    assert result["evaluation"]["returns"] == pytest.approx(other_result["evaluation"]["returns"], abs=1e-6)


def measured(row: dict[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in row.items()
        if value is not None and not name.startswith(OF_THE_PROCESS)
    }


def newest(folder: Path) -> dict[str, Any]:
    loaded = Checkpoints(folder, keep=1).load_latest()
    assert loaded is not None
    tree = {key: value for key, value in loaded.tree.items() if key != "ranks"}
    return tree | {"segments": {name: loaded.segments[name] for name in loaded.segments}}


def unlike(here: Any, there: Any, path: str = "") -> list[str]:
    """Where two state trees differ by more than rounding."""
    if isinstance(here, dict):
        if here.keys() != there.keys():
            return [f"{path}: {here.keys() ^ there.keys()}"]
        return [found for key in here for found in unlike(here[key], there[key], f"{path}/{key}")]
    if isinstance(here, list | tuple):
        if len(here) != len(there):
            return [path]
        return [
            found
            for place, item in enumerate(here)
            for found in unlike(item, there[place], f"{path}/{place}")
        ]
    if here is None or isinstance(here, str | bool):
        return [] if here == there else [path]
    here, there = torch.as_tensor(here), torch.as_tensor(there)
    if here.shape != there.shape:
        return [f"{path}: {tuple(here.shape)} and {tuple(there.shape)}"]
    same = torch.allclose(here.double(), there.double(), rtol=1e-9, atol=1e-9, equal_nan=True)
    return [] if same else [f"{path}: {(here.double() - there.double()).abs().max()}"]


def actors_config(actors: str | None) -> AnyConfig:
    config = config_of("pqn")
    return replace(config, actors=actors, staleness=replace(config.staleness, iterations=1))


def train_with_actors(base: Path, actors: str | None) -> None:
    training.train(
        actors_config(actors),
        preset="test",
        base=base,
        name="run",
        output=QUIET,
    )


def test_two_ranks_with_two_actors_each_are_the_queue_of_one_process(tmp_path: Path):
    train_with_actors(tmp_path / "queue", None)
    in_ranks(2, train_with_actors, tmp_path / "actors", "local:2", meeting=tmp_path / "meeting")
    compare(tmp_path / "actors" / "run", tmp_path / "queue" / "run")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thirty_iterations_are_the_same_on_any_number_of_ranks(tmp_path: Path):
    train_all(tmp_path / "1", 30)
    for ranks in RANKS:
        in_ranks(ranks, train_all, tmp_path / str(ranks), 30, meeting=tmp_path / f"meeting-{ranks}")
        for name in CASES:
            compare(tmp_path / str(ranks) / name, tmp_path / "1" / name)
        shutil.rmtree(tmp_path / str(ranks))
