"""Stable-Baselines3's PPO, and that of sbx, which computes with JAX, as trainers of `peers.py`."""

from collections.abc import Callable
from typing import Any

import torch
from peer_process import RETURN_EPISODES, Rate, Reached, Request, answer, process_seconds, rate_of, versions
from sb3_model import TimedLearning, make_env, make_model
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stopwatch import Stopwatch

SBX = "sbx"
UNREACHED = 10**9
PUBLISHED_ENVS = 8
PUBLISHED_ENV_STEPS = 100_000


def published(seed: int) -> dict[str, Any]:
    """CartPole-v1 in hyperparams/ppo.yml of RL Baselines3 Zoo, which both libraries are tuned by."""
    return {
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": falling_from(0.001),
        "clip_range": falling_from(0.2),
        "seed": seed,
        "device": "cpu",
    }


def falling_from(start: float) -> Callable[[float], float]:
    """To 0 at the end of the training."""
    return lambda remaining: remaining * start


class StopAtReturn(BaseCallback):
    """Ends the run after the iteration in which the training return is reached."""

    def __init__(self, wanted_return: float):
        super().__init__()
        self._wanted_return = wanted_return
        self.seconds: float | None = None

    def _on_rollout_start(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        if len(returns) == RETURN_EPISODES and sum(returns) / len(returns) >= self._wanted_return:
            self.seconds = process_seconds()

    def _on_step(self) -> bool:
        return self.seconds is None


def ppo_of(trainer: str) -> Any:
    """The class, imported only in the venv that has it."""
    if trainer == SBX:
        from sbx import PPO
    else:
        from stable_baselines3 import PPO
    return PPO


def packages(trainer: str) -> tuple[str, ...]:
    return ("stable-baselines3", "torch", "gymnasium", *(("sbx-rl", "jax") if trainer == SBX else ()))


def rate(request: Request) -> Rate:
    work = request.work
    assert work is not None
    torch.set_num_threads(work.threads)
    stopwatch = Stopwatch(request.seconds)
    env = make_env(work, "envpool" if work.encoder == "nature" else "gymnasium")
    make_model(work, env, ppo_of(request.trainer)).learn(UNREACHED, TimedLearning(stopwatch))
    return rate_of(stopwatch, work, packages(request.trainer))


def reached(request: Request) -> Reached:
    torch.set_num_threads(1)
    env = make_vec_env("CartPole-v1", n_envs=PUBLISHED_ENVS, seed=request.seed)
    model = ppo_of(request.trainer)("MlpPolicy", env, **published(request.seed))
    watch = StopAtReturn(request.wanted_return)
    model.learn(PUBLISHED_ENV_STEPS, watch)
    if watch.seconds is None:
        watch.init_callback(model)
        watch.on_rollout_start()  # after the last update
    return Reached(watch.seconds, model.num_timesteps, versions(packages(request.trainer)))


if __name__ == "__main__":
    answer(rate, reached)
