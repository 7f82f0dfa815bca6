"""EnvPool itself, without our adapter."""

import os
from typing import Any

import envpool


def make_envpool(env: str, num_envs: int, *, atari_training: bool = False) -> Any:
    """With as many threads as there are cores to run envs on."""
    options: dict[str, Any] = {"episodic_life": True, "reward_clip": True} if atari_training else {}
    threads = min(len(os.sched_getaffinity(0)), num_envs)
    return envpool.make(env, env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=1, **options)
