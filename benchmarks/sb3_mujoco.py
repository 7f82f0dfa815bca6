"""Stable-Baselines3's PPO on MuJoCo with the numbers of the `mujoco-ppo` preset, as a yardstick for ours.

    python benchmarks/sb3_mujoco.py --env HalfCheetah-v4 --seed 1 --out results/mujoco

Writes one JSON line per finished episode: env steps so far, return, length.
SB3 logs the mean squared error times vf_coef, where the preset has half of it times 0.5: hence 0.25.
The learning rate falls over 1M steps although the run stops at 300k, so that both are on one schedule.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

SCHEDULE_STEPS = 1_000_000


class WriteEpisodes(BaseCallback):
    """Writes finished episodes to a file and ends the run at `stop_at` env steps."""

    def __init__(self, path: Path, stop_at: int):
        super().__init__()
        self.file = path.open("w")
        self.stop_at = stop_at

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                row = {"env_steps": self.num_timesteps, "return": info["episode"]["r"]}
                self.file.write(json.dumps(row | {"length": info["episode"]["l"]}) + "\n")
                self.file.flush()
        return self.num_timesteps < self.stop_at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--env-steps", type=int, default=300_000)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    env = VecNormalize(make_vec_env(options.env, n_envs=1, seed=options.seed), gamma=0.99)
    model = PPO(
        "MlpPolicy",
        env,
        seed=options.seed,
        n_steps=2048,
        batch_size=64,
        n_epochs=10,
        learning_rate=lambda remaining: 3e-4 * remaining,
        clip_range=0.2,
        clip_range_vf=0.2,
        ent_coef=0.0,
        vf_coef=0.25,
        max_grad_norm=0.5,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"sb3__{options.env}__s{options.seed}.jsonl"
    start = time.perf_counter()
    model.learn(SCHEDULE_STEPS, callback=WriteEpisodes(path, options.env_steps))
    print(f"{path}: {options.env_steps / (time.perf_counter() - start):.0f} steps/s")


if __name__ == "__main__":
    main()
