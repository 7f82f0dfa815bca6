"""Short runs of every algorithm in float64, each setting stated, and what is kept of them as traces.

`python tests/traces.py` records them anew. A change of a trace belongs into a commit of its own, which says
why the numbers changed.
"""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import torch

from anybatch import training
from anybatch.config import CONFIGS, AnyConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.presets import overlaid
from anybatch.runs import log
from anybatch.runs.display import QUIET
from anybatch.storage.checkpoint import Checkpoints

TRACES = Path(__file__).with_name("traces.json")
# Differs from run to run.
WALL_CLOCK = ("wall_seconds", "charts/SPS", "time/")

BASE: dict[str, Any] = {
    "env": "toy:Match",
    "num_envs": 3,
    "num_steps": 7,
    "seed": 5,
    "threads": 1,
    "precision": "float64",
    "total_env_steps": 360,
    "update": {"epochs": 2, "minibatches_per_epoch": 3, "noise_scale_every": 3},
    "optimizer": {"learning_rate": 3e-3, "max_grad_norm": 0.5, "anneal": "linear"},
    "network": {"hidden_sizes": [13]},
    "evaluation": {"num_envs": 2},
    "record": {
        "tensorboard": False,
        "log_every": 1,
        "checkpoint_every_iterations": 1,
        "keep_checkpoints": 50,
    },
    "tuned_at": {"num_envs": 6, "num_steps": 7, "minibatches_per_epoch": 3, "epochs": 2},
}
EWMA: dict[str, Any] = {
    "proximal": {"policy": "ewma", "ewma_decay": 0.8},
    "objective": {"kl_penalty": 0.5, "entropy_coefficient": 0.01, "advantage_decay": 0.3},
}
STALE: dict[str, Any] = {"staleness": {"iterations": 2}}
DIVERGENCE: dict[str, Any] = {
    "kind": "divergence",
    "min_steps": 4,
    "max_steps": 12,
    "every": 2,
    "window": 3,
    "warmup": 2,
    "smoothing": 0.5,
    "states": 16,
    "low": 0.01,
    "high": 0.5,
}
PHASE: dict[str, Any] = {
    "update": {"epochs": 1},
    "phase": {"policy_iterations": 2, "auxiliary_epochs": 2, "auxiliary_minibatch": 16},
}
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "ppo": ("ppo", [{"update": {"target_kl": 0.05}, "objective": {"value_clip": 0.2}}]),
    "ppo_cartpole": ("ppo", [{"env": "envpool:CartPole-v1"}]),
    "decoupled_stale": (
        "ppo",
        [STALE, {"env": "toy:Target", "proximal": {"policy": "iteration_start"}}],
    ),
    "ewma": ("ppo", [EWMA]),
    "ewma_stale": ("ppo", [EWMA, STALE, {"normalize": {"rewards": "iteration"}}]),
    "ewma_cartpole": ("ppo", [EWMA, {"env": "envpool:CartPole-v1"}]),
    "ewma_cartpole_stale": ("ppo", [EWMA, STALE, {"env": "envpool:CartPole-v1"}]),
    "ewma_continuous": (
        "ppo",
        [
            EWMA,
            {
                "env": "toy:Target",
                "objective": {"kl": "exact", "clip": None},
                "normalize": {"observations": "step", "rewards": "step"},
                "network": {"heads": "shared"},
            },
        ],
    ),
    "ewma_kl_controller": (
        "ppo",
        [EWMA, {"controller": DIVERGENCE | {"kind": "kl", "low": 1e-4, "high": 1e-2}}],
    ),
    "ewma_masked": ("ppo", [EWMA, {"env": "toy:Masked"}]),
    "pqn": ("pqn", [{"env": "toy:Corridor", "optimizer": {"name": "radam"}}]),
    "pqn_divergence": (
        "pqn",
        [{"env": "envpool:CartPole-v1", "controller": DIVERGENCE | {"epochs": "at_least"}}],
    ),
    "ppg": ("ppg", [EWMA, PHASE]),
    "ppg_stale": (
        "ppg",
        [EWMA, STALE, PHASE, {"env": "toy:Target", "network": {"heads": "detached"}}],
    ),
}


def config_of(name: str, compiled: str = "auto") -> AnyConfig:
    algorithm, overlays = CASES[name]
    settings = config_to_dict(CONFIGS[algorithm]())
    for overlay in (BASE, *overlays, {"native": compiled}):
        settings = overlaid(settings, overlay)
    return config_from_dict(CONFIGS[algorithm], settings)


def trace(name: str, base: Path, compiled: str = "auto") -> dict[str, Any]:
    """Metrics of some iterations, and two numbers of the weights after each of them."""
    outcome = training.train(config_of(name, compiled), preset=name, base=base, output=QUIET)
    rows = [
        {key: value for key, value in row.items() if not key.startswith(WALL_CLOCK)}
        for row in log.read(outcome.folder)
    ]
    return {"rows": rows[::5], "weights": weights(outcome.folder)}


def weights(folder: Path) -> list[list[float]]:
    """The norm of all weights, and a sum in which each has a factor of its own, for each checkpoint."""
    found: list[list[float]] = []
    checkpoints = Checkpoints(folder, keep=1)
    for path in sorted((folder / "checkpoints").iterdir()):
        tree = checkpoints._load(path, with_segments=False).tree
        tensors: dict[str, torch.Tensor] = tree["shared"]["learner"]["network"]
        flat = torch.cat([tensor.flatten() for _, tensor in sorted(tensors.items())])
        assert flat.dtype == torch.float64
        factors = torch.cos(torch.arange(len(flat), dtype=torch.float64))
        found.append([float(flat.norm()), float(flat @ factors)])
    return found


def rounded(value: Any) -> Any:
    """Twelve digits: more would only differ from machine to machine."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.12g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


def record() -> None:
    with tempfile.TemporaryDirectory() as base:
        traces = {name: rounded(trace(name, Path(base))) for name in CASES}
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in traces.items()]
    TRACES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
