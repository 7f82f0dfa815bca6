"""Stable-Baselines3's PPO on the same work, on its own environments or on EnvPool."""

import torch
from cases import work_of
from sb3_model import Engine, TimedLearning, make_env, make_model
from stable_baselines3 import PPO
from stopwatch import Stopwatch

from anybatch.config import AnyConfig, PPOConfig

ENGINES: tuple[Engine, ...] = ("gymnasium", "envpool")


def engines(config: AnyConfig) -> tuple[Engine, ...]:
    """Its own environments and EnvPool's, or only these: Atari would need another emulator.

    It has neither PPG nor PQN nor the IMPALA network.
    """
    if config.algorithm != "ppo" or config.network.encoder == "impala":
        return ()
    return ENGINES[1:] if config.network.encoder == "nature" else ENGINES


def measure(config: PPOConfig, engine: Engine, seconds: float) -> float:
    """Env steps per second, as SB3 counts them."""
    work = work_of(config)
    torch.set_num_threads(work.threads)
    stopwatch = Stopwatch(seconds)
    model = make_model(work, make_env(work, engine), PPO)
    model.learn(config.total_env_steps, TimedLearning(stopwatch))
    return stopwatch.env_steps / stopwatch.elapsed
