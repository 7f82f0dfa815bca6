"""Stable-Baselines3 at 8 times its envs: as it is, and with the numbers of `anybatch plan --from sb3`.

    python benchmarks/sb3_plan.py run --env CartPole-v1 --out results/foreign
    python benchmarks/sb3_plan.py report --out results/foreign

Runs that have their file are not repeated. One file per run: its settings and one row per finished episode,
[env steps, return]. `report` prints the table of results/foreign/README.md.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from anybatch.dial.other_plans import SCHEDULED, plan_for
from anybatch.dial.other_trainers import trainer_named

FACTOR = 8
VARIANTS = ("own batch", "8 x envs, as it is", "8 x envs, planned")
RESAMPLES = 10_000
STRETCHES = 50
"""Of a run, for the area under its curve."""


@dataclass(frozen=True)
class Case:
    """A configuration of SB3, and how long and how often it is run."""

    settings: dict[str, Any]
    env_steps: int
    seeds: tuple[int, ...]
    normalizes: bool = False
    """Whether observations and rewards are normalized, as SB3's wrapper does it."""


CASES = {
    # The RL Zoo's numbers for CartPole-v1.
    "CartPole-v1": Case(
        {
            "n_envs": 8,
            "n_steps": 32,
            "batch_size": 256,
            "n_epochs": 20,
            "learning_rate": "lin_0.001",
            "clip_range": "lin_0.2",
            "gamma": 0.98,
            "gae_lambda": 0.8,
        },
        env_steps=100_000,
        seeds=(1, 2, 3, 4, 5),
    ),
    # SB3's defaults, which are those of the PPO paper for MuJoCo.
    "HalfCheetah-v4": Case(
        {"n_envs": 1, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "learning_rate": 3e-4},
        env_steps=300_000,
        seeds=(1, 2, 3),
        normalizes=True,
    ),
}


def settings_of(case: Case, variant: str) -> dict[str, Any]:
    num_envs = case.settings["n_envs"] * FACTOR
    if variant == VARIANTS[0]:
        return case.settings
    if variant == VARIANTS[1]:
        return case.settings | {"n_envs": num_envs}
    return plan_for(trainer_named("sb3"), case.settings, num_envs=num_envs).settings


class KeepEpisodes(BaseCallback):
    """Keeps env steps and return of every finished episode."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.rows.append((self.num_timesteps, float(info["episode"]["r"])))
        return True


def scheduled(value: Any) -> float | Callable[[float], float]:
    """The RL Zoo's `lin_0.001` as SB3 takes it: a function of the share of the run that remains."""
    if not isinstance(value, str):
        return value
    start = float(value.removeprefix(SCHEDULED))
    return lambda remaining: start * remaining


def train(env_id: str, case: Case, variant: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    settings = settings_of(case, variant)
    env = make_vec_env(env_id, n_envs=settings["n_envs"], seed=seed)
    if case.normalizes:
        env = VecNormalize(env, gamma=settings.get("gamma", 0.99))
    model_settings = {key: value for key, value in settings.items() if key != "n_envs"}
    for key in ("learning_rate", "clip_range"):
        if key in model_settings:
            model_settings[key] = scheduled(model_settings[key])
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **model_settings)
    episodes, start = KeepEpisodes(), time.perf_counter()
    model.learn(case.env_steps, callback=episodes)
    seconds = round(time.perf_counter() - start, 1)
    facts = {"env": env_id, "variant": variant, "seed": seed, "settings": settings, "seconds": seconds}
    return facts | {"env_steps": case.env_steps, "episodes": episodes.rows}


def path_of(out: Path, env_id: str, variant: str, seed: int) -> Path:
    stem = variant.replace(",", "").replace(" ", "-")
    return out / f"{env_id}__{stem}__s{seed}.json"


def area(run: dict[str, Any]) -> float:
    """Mean over equal stretches of env steps of the mean return of the episodes that ended in each.

    A stretch without an end takes the mean of the one before; those before the first end do not count.
    """
    ends, returns = np.array(run["episodes"]).T
    stretch = np.minimum((ends - 1) * STRETCHES // run["env_steps"], STRETCHES - 1)
    means: list[float] = []
    for place in range(STRETCHES):
        inside = returns[stretch == place]
        if len(inside):
            means.append(float(inside.mean()))
        elif means:
            means.append(means[-1])
    return float(np.mean(means))


def last(run: dict[str, Any]) -> float:
    return float(np.mean([value for _, value in run["episodes"][-100:]]))


def farther(areas: dict[str, np.ndarray], generator: np.random.Generator) -> tuple[float, float, float]:
    """How much farther from the own batch's mean area SB3 is without the plan than with it.

    With the 95 % interval of resampled seeds, each variant's on its own.
    """

    def distance(pick: Callable[[np.ndarray], np.ndarray]) -> float:
        own, plain, planned = (pick(areas[variant]).mean() for variant in VARIANTS)
        return float(abs(plain - own) - abs(planned - own))

    drawn = [distance(lambda values: generator.choice(values, len(values))) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return distance(lambda values: values), float(low), float(high)


def report(out: Path) -> None:
    print("| env | variant | area under the curve, each seed | mean | last 100 episodes | seconds per run |")
    print("|---|---|---|---|---|---|")
    for env_id, case in CASES.items():
        paths = {v: [path_of(out, env_id, v, s) for s in case.seeds] for v in VARIANTS}
        if not all(path.exists() for group in paths.values() for path in group):
            print(f"| {env_id} | not all runs are there |||||")
            continue
        areas: dict[str, np.ndarray] = {}
        for variant, group in paths.items():
            runs = [json.loads(path.read_text()) for path in group]
            areas[variant] = np.array([area(run) for run in runs])
            each = ", ".join(f"{value:.4g}" for value in areas[variant])
            final = np.mean([last(run) for run in runs])
            seconds = np.mean([run["seconds"] for run in runs])
            mean = areas[variant].mean()
            print(f"| {env_id} | {variant} | {each} | {mean:.4g} | {final:.4g} | {seconds:.0f} |")
        much, low, high = farther(areas, np.random.default_rng(0))
        verdict = "closer" if low > 0 else "farther away" if high < 0 else "not decided"
        print(f"\n{env_id}: {much:.4g} [{low:.4g}, {high:.4g}]: {verdict}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("run", "report"))
    parser.add_argument("--env", choices=CASES, default="CartPole-v1")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=1_000, help="runs to make in this call")
    options = parser.parse_args()
    if options.action == "report":
        report(options.out)
        return
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
    options.out.mkdir(parents=True, exist_ok=True)
    case = CASES[options.env]
    cells = [(seed, variant) for seed in case.seeds for variant in VARIANTS]
    missing = [cell for cell in cells if not path_of(options.out, options.env, cell[1], cell[0]).exists()]
    for seed, variant in missing[: options.most]:
        path = path_of(options.out, options.env, variant, seed)
        run = train(options.env, case, variant, seed)
        path.write_text(json.dumps(run))
        print(f"{path.name}: {area(run):.4g} in {run['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
