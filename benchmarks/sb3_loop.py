"""Stable-Baselines3's PPO on the same work, on its own environments or on EnvPool."""

from typing import Any, Literal

import numpy as np
from serial_limit import make_engine
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize
from stopwatch import Stopwatch

from anybatch.config import PPOConfig
from anybatch.session.planning import expected_encoder, set_threads

Engine = Literal["gymnasium", "envpool"]
ENGINES: tuple[Engine, ...] = ("gymnasium", "envpool")


def engines(config: PPOConfig) -> tuple[Engine, ...]:
    """Its own environments and EnvPool's, or only these: Atari would need another emulator.

    It has neither PPG nor PQN nor the IMPALA network.
    """
    if config.algorithm != "ppo" or config.network.encoder == "impala":
        return ()
    return ENGINES[1:] if config.network.encoder == "nature" else ENGINES


class EnvPoolVecEnv(VecEnv):
    """EnvPool as SB3 sees an env. The step after an episode's end goes in as if it were data: speed only."""

    def __init__(self, engine: Any, num_envs: int):
        super().__init__(num_envs, engine.observation_space, engine.action_space)
        self._engine = engine
        self._infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]

    def reset(self) -> np.ndarray:
        return self._engine.reset()[0]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions.astype(self.action_space.dtype)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, reward, terminated, truncated, _ = self._engine.step(self._actions)
        return obs, reward, terminated | truncated, self._infos

    def close(self) -> None:
        self._engine.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self._engine, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [isinstance(self._engine, wrapper_class) for _ in self._get_indices(indices)]


class TimedLearning(BaseCallback):
    """Ticks a stopwatch between iterations, and ends the run when it is done."""

    def __init__(self, stopwatch: Stopwatch):
        super().__init__()
        self._stopwatch = stopwatch

    def _on_rollout_start(self) -> None:
        self._stopwatch.tick(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self._stopwatch.is_done


def measure(config: PPOConfig, engine: Engine, seconds: float) -> float:
    """Env steps per second, as SB3 counts them."""
    set_threads(config, expected_encoder(config))
    stopwatch = Stopwatch(seconds)
    make_model(config, make_env(config, engine)).learn(config.total_env_steps, TimedLearning(stopwatch))
    return stopwatch.env_steps / stopwatch.elapsed


def make_env(config: PPOConfig, engine: Engine) -> VecEnv:
    if engine == "gymnasium":
        env = make_vec_env(config.env, n_envs=config.num_envs, seed=1)
    else:
        own, _ = make_engine(config)
        env = VecMonitor(EnvPoolVecEnv(own, config.num_envs))
    if config.normalize.observations:
        env = VecNormalize(env, gamma=config.objective.discount)
    return env


def make_model(config: PPOConfig, env: VecEnv) -> PPO:
    """Same networks, batches and optimizer. Advantages are normalized in each one's own way."""
    assert config.optimizer.max_grad_norm is not None and config.objective.clip is not None
    return PPO(
        "CnnPolicy" if config.network.encoder == "nature" else "MlpPolicy",
        env,
        n_steps=config.num_steps,
        batch_size=config.num_envs * config.num_steps // config.update.minibatches_per_epoch,
        n_epochs=config.update.epochs,
        learning_rate=config.optimizer.learning_rate,
        clip_range=config.objective.clip,
        ent_coef=config.objective.entropy_coefficient,
        vf_coef=config.objective.value_coefficient,
        max_grad_norm=config.optimizer.max_grad_norm,
        seed=1,
        device="cpu",
    )
