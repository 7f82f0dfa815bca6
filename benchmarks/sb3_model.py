"""Environments and models of Stable-Baselines3, from the numbers of a case. Imports nothing of ours."""

from typing import Any, Literal

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize
from stopwatch import Stopwatch
from work import Work

Engine = Literal["gymnasium", "envpool"]


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


def make_env(work: Work, engine: Engine) -> VecEnv:
    if engine == "gymnasium":
        env = make_vec_env(work.env, n_envs=work.num_envs, seed=1)
    else:
        from envpool_engine import make_envpool

        own = make_envpool(work.env, work.num_envs, atari_training=work.atari_training)
        env = VecMonitor(EnvPoolVecEnv(own, work.num_envs))
    return VecNormalize(env, gamma=work.discount) if work.normalizes else env


def make_model(work: Work, env: VecEnv, ppo: type[OnPolicyAlgorithm]) -> OnPolicyAlgorithm:
    """Same networks, batches and optimizer. Advantages are normalized in each one's own way.

    `ppo` is SB3's class, or one with the same arguments.
    """
    images = work.encoder == "nature"
    return ppo(
        "CnnPolicy" if images else "MlpPolicy",
        env,
        n_steps=work.num_steps,
        batch_size=work.minibatch,
        n_epochs=work.epochs,
        learning_rate=work.learning_rate,
        gamma=work.discount,
        gae_lambda=work.trace_lambda,
        clip_range=work.clip,
        ent_coef=work.entropy_coefficient,
        vf_coef=work.value_coefficient,
        max_grad_norm=work.max_grad_norm,
        policy_kwargs={} if images else {"net_arch": list(work.hidden_sizes)},
        seed=1,
        device="cpu",
    )
