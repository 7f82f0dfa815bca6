"""A whole rollout in one native call, where both the network and the environments are native code.

With few environments, the program between two steps would take most of the time.
"""

import numpy as np
import torch
from torch import Tensor

from anybatch.backends.buffers import Buffers
from anybatch.backends.policy_kernel import PolicyKernel
from anybatch.backends.q_kernel import QKernel
from anybatch.backends.structs import pointer
from anybatch.envs.protocol import EnvSpec, NativeEnv
from anybatch.native.layout import FinalsStruct, RolloutStruct


def collect(
    kernel: PolicyKernel | QKernel, env: NativeEnv, buffers: Buffers, noise: Tensor, *, with_value: bool
) -> np.ndarray:
    """Fill the buffers, whose first observations are given. Returns where episodes ended, [T, N].

    `noise` may be a part of wider rows; everything else is contiguous and, where it is real, float32.
    """
    spec, (num_steps, num_envs) = env.spec, buffers.reward.shape
    ended = np.empty((num_steps, num_envs), dtype=np.bool_)
    # Room for an end at every step, of which only what is written to becomes memory.
    final_obs = np.empty((num_steps * num_envs, *spec.obs_shape), dtype=spec.obs_dtype)
    final_step, final_env = np.empty((2, num_steps * num_envs), dtype=np.int32)
    native = env.native_envs()
    rollout = RolloutStruct(
        step=native.step,
        envs=native.envs,
        num_envs=num_envs,
        num_steps=num_steps,
        obs_bytes=row_bytes(buffers.obs),
        action_bytes=row_bytes(buffers.action),
        location_width=buffers.location.shape[-1],
        noise_row=noise.stride(0),
        obs=pointer(buffers.obs),
        noise=pointer(noise),
        location=pointer(buffers.location),
        value=pointer(buffers.acting_value) if with_value else None,
        action=pointer(buffers.action),
        reward=pointer(buffers.reward),
        terminated=pointer(buffers.terminated),
        truncated=pointer(buffers.truncated),
        valid=pointer(buffers.valid),
        ended=ended.ctypes.data,
        finals=FinalsStruct(final_obs.ctypes.data, final_step.ctypes.data, final_env.ctypes.data),
    )
    kernel.collect(rollout)
    if count := rollout.finals.count:
        # Threads store them in any order; results must not depend on it.
        order = np.lexsort((final_env[:count], final_step[:count]))
        buffers.final_obs.append((final_step[order], final_env[order], final_obs[order]))
    return ended


def row_bytes(rows: Tensor) -> int:
    """Of one env at one step."""
    return rows[0, 0].numel() * rows.element_size()


def is_possible(spec: EnvSpec, dtype: torch.dtype) -> bool:
    """Whether the numbers of network and envs are the same ones: both are float32, or planes of bytes."""
    return dtype == torch.float32 and spec.obs_dtype in (np.float32, np.bool_)
