"""Stable-Baselines3's PPO with settings of RL Baselines3 Zoo, as a trainer of `learning.py`."""

import warnings
from typing import Any

import torch
from learning_process import Curve, Request, answer
from peer_sb3 import falling_from
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

LINEAR = "lin_"


class RecordEpisodes(BaseCallback):
    """Adds finished episodes to the curve, and ends the run at its length."""

    def __init__(self, curve: Curve):
        super().__init__()
        self._curve = curve

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self._curve.add(self.num_timesteps, float(info["episode"]["r"]))
        self._curve.reached(self.num_timesteps)
        return self.num_timesteps < self._curve.env_steps


def run(request: Request, curve: Curve) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    settings = {name: of_zoo(value) for name, value in request.settings.items()}
    env = make_vec_env(request.task, n_envs=settings.pop("n_envs", 1), seed=request.seed)
    if settings.pop("normalize", False):
        env = VecNormalize(env, gamma=settings.get("gamma", 0.99))  # as the Zoo does
    policy = settings.pop("policy_kwargs", {})
    if "activation_fn" in policy:
        policy["activation_fn"] = getattr(torch.nn, policy["activation_fn"])
    model = PPO("MlpPolicy", env, seed=request.seed, device="cpu", policy_kwargs=policy, **settings)
    model.learn(request.env_steps, RecordEpisodes(curve))
    return {}


def of_zoo(value: Any) -> Any:
    """The Zoo writes lin_0.001 for a value that falls to 0."""
    if isinstance(value, str) and value.startswith(LINEAR):
        return falling_from(float(value.removeprefix(LINEAR)))
    return value


if __name__ == "__main__":
    answer(run, ("stable-baselines3", "torch", "gymnasium", "mujoco"))
