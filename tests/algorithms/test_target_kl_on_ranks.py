"""Ranks stop an iteration together: each sees the divergence over all samples, not over its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_runs import in_ranks
from toy_runs import newest_learner, toy_config

from anybatch import training
from anybatch.config import PPOConfig
from anybatch.runs import log
from anybatch.runs.display import QUIET

ITERATIONS = 8
CHECKS = ("epoch", "minibatch")
COUNTS = ("env_steps", "charts/gradient_steps", "losses/epochs_done")


def config_of(check: str, **changes: Any) -> PPOConfig:
    """A policy that moves about as far in an epoch as the limit allows, so that it stops now and then."""
    return toy_config(
        env="toy:Match",
        num_envs=4,
        num_steps=8,
        total_env_steps=ITERATIONS * 32,
        precision="float64",
        threads=1,
        optimizer={"learning_rate": 0.01, "anneal": "none"},
        update={
            "epochs": 4,
            "minibatches_per_epoch": 2,
            "noise_scale_every": 0,
            "target_kl": 0.01,
            "target_kl_check": check,
        },
        **changes,
    )


def train_all(base: Path) -> None:
    for check in CHECKS:
        training.train(config_of(check), preset="test", base=base, name=check, output=QUIET)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of the same runs in one process and on two ranks."""
    base = tmp_path_factory.mktemp("target-kl")
    train_all(base / "one")
    in_ranks(2, train_all, base / "two", meeting=base / "meeting", patience_seconds=120)
    return base / "one", base / "two"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", CHECKS)
def test_ranks_end_iterations_where_one_process_does(check: str, trained: tuple[Path, Path]):
    """If they disagreed, one rank would wait for ever for a gradient that the other does not compute."""
    alone, together = (folder / check for folder in trained)
    counts = [
        [tuple(row[name] for name in COUNTS) for row in log.read(folder)] for folder in (alone, together)
    ]
    assert counts[0] == counts[1] and len(counts[0]) >= ITERATIONS
    epochs = {done for *_, done in counts[0]}
    assert len(epochs) > 1  # some iterations were ended early, others later or not
    weights, others = (newest_learner(folder)["network"] for folder in (alone, together))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, rtol=1e-9, atol=1e-9)
