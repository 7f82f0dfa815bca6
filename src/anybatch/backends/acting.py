"""How a network chooses actions while a rollout is collected: in torch, or in native code.

Where both the network and the environments are native code, a whole rollout is one call: with few
environments, the program between two steps would take most of the time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from anybatch.backends.policy_kernel import PolicyKernel
from anybatch.backends.q_kernel import QKernel
from anybatch.backends.structs import pointer
from anybatch.envs.protocol import EnvSpec, NativeEnvs, VectorEnv
from anybatch.native.layout import FinalsStruct, RolloutStruct
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.q_network import QNetwork
from anybatch.runs import pace


@dataclass
class Buffers:
    """What is written at every step, and numpy views of it for the engine's side."""

    obs: Tensor
    action: Tensor
    policy_params: Tensor
    acting_value: Tensor
    """Stays empty where the value network is not run while acting."""
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    final_obs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    """Same-step reset: rows, envs and the observations that ended their episodes."""

    @cached_property
    def views(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What the engine writes, as numpy sees it: made once, since a view costs more than a row."""
        return self.reward.numpy(), self.terminated.numpy(), self.truncated.numpy(), self.valid.numpy()

    @classmethod
    def allocate(cls, spec: EnvSpec, num_steps: int, dtype: torch.dtype) -> "Buffers":
        shape = (num_steps, spec.num_envs)
        return cls(
            obs=torch.empty(
                num_steps + 1, spec.num_envs, *spec.obs_shape, dtype=observation_dtype(spec, dtype)
            ),
            action=torch.empty(
                *shape, *spec.action_shape, dtype=dtype if spec.is_continuous else torch.int64
            ),
            policy_params=torch.empty(*shape, spec.action_width, dtype=dtype),
            acting_value=torch.empty(shape, dtype=dtype),
            reward=torch.empty(shape, dtype=dtype),
            terminated=torch.empty(shape, dtype=torch.bool),
            truncated=torch.empty(shape, dtype=torch.bool),
            valid=torch.empty(shape, dtype=torch.bool),
        )


def observation_dtype(spec: EnvSpec, dtype: torch.dtype) -> torch.dtype:
    """The type of stored observations: images and planes unchanged, numbers as `dtype`."""
    return {"uint8": torch.uint8, "bool": torch.bool}.get(spec.obs_dtype.name, dtype)


Actor = ActorCritic | QNetwork
"""A network that acts and estimates values. The policy params of a Q-network are action values."""


class Acting(Protocol):
    """The half of a backend that acts, which is all that an actor needs."""

    def decisions(self, network: Actor, buffers: Buffers, noise: Tensor) -> Callable[[int], None]:
        """A function that decides the actions of row t and stores the policy's outputs."""
        ...

    def values(self, network: Actor, obs: Tensor, chunk: int) -> Tensor:
        """Values of any number of observations, without gradients; torch computes `chunk` at a time."""
        ...

    def whole_rollout(
        self, network: Actor, env: VectorEnv, buffers: Buffers, noise: Tensor
    ) -> np.ndarray | None:
        """Fill the buffers, whose first observations are given, in one call, if that is possible here.

        Returns where episodes ended, [T, N].
        """
        ...


class TorchActing:
    """Actions chosen in torch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def decisions(self, network: Actor, buffers: Buffers, noise: Tensor) -> Callable[[int], None]:
        obs, action, policy_params = (
            buffers.obs.unbind(),
            buffers.action.unbind(),
            buffers.policy_params.unbind(),
        )
        values, noises = buffers.acting_value.unbind(), noise.to(self._device).unbind()

        def decide(t: int) -> None:
            seen = obs[t].to(self._device)
            if network.shares_encoder:
                policy, value = network(seen)
                values[t].copy_(value)
            else:
                policy = network.distribution(network.policy_params(seen))
            policy_params[t].copy_(policy.params)
            action[t].copy_(policy.sample(noises[t]))

        return decide

    @torch.no_grad()
    def values(self, network: Actor, obs: Tensor, chunk: int) -> Tensor:
        return in_chunks(network.value, obs, chunk=chunk, device=self._device)

    def whole_rollout(
        self, network: Actor, env: VectorEnv, buffers: Buffers, noise: Tensor
    ) -> np.ndarray | None:
        """Torch does not step environments."""
        del network, env, buffers, noise
        return None


class NativeActing(TorchActing):
    """The same in native code, which reads and writes the rows in place. Another network acts in torch."""

    def __init__(self, kernel: PolicyKernel | QKernel) -> None:
        super().__init__(torch.device("cpu"))
        self._kernel = kernel

    def decisions(self, network: Actor, buffers: Buffers, noise: Tensor) -> Callable[[int], None]:
        if network is not self._kernel.network:
            return super().decisions(network, buffers, noise)
        rows = [buffers.obs, noise, buffers.policy_params, buffers.action]
        if network.shares_encoder:
            rows.append(buffers.acting_value)
        places = [(tensor.data_ptr(), tensor.stride(0) * tensor.element_size()) for tensor in rows]
        num_envs = buffers.reward.shape[1]

        def decide(t: int) -> None:
            self._kernel.act(num_envs, *(start + t * row for start, row in places))

        return decide

    def values(self, network: Actor, obs: Tensor, chunk: int) -> Tensor:
        if network is not self._kernel.network:
            return super().values(network, obs, chunk)
        return self._kernel.values(obs)

    def whole_rollout(
        self, network: Actor, env: VectorEnv, buffers: Buffers, noise: Tensor
    ) -> np.ndarray | None:
        native_envs: Callable[[], NativeEnvs] | None = getattr(env, "native_envs", None)
        fits = rollout_is_possible(env.spec, buffers.reward.dtype)
        if network is not self._kernel.network or native_envs is None or not fits:
            return None
        return native_rollout(
            self._kernel, env.spec, native_envs(), buffers, noise, with_value=network.shares_encoder
        )


def native_rollout(
    kernel: PolicyKernel | QKernel,
    spec: EnvSpec,
    native: NativeEnvs,
    buffers: Buffers,
    noise: Tensor,
    *,
    with_value: bool,
) -> np.ndarray:
    """Fill the buffers, whose first observations are given. Returns where episodes ended, [T, N].

    `noise` may be a part of wider rows; everything else is contiguous and, where it is real, float32.
    """
    num_steps, num_envs = buffers.reward.shape
    ended = np.empty((num_steps, num_envs), dtype=np.bool_)
    # Room for an end at every step, of which only what is written to becomes memory.
    final_obs = np.empty((num_steps * num_envs, *spec.obs_shape), dtype=spec.obs_dtype)
    final_step, final_env = np.empty((2, num_steps * num_envs), dtype=np.int32)
    rollout = RolloutStruct(
        step=native.step,
        envs=native.envs,
        num_envs=num_envs,
        num_steps=num_steps,
        obs_bytes=row_bytes(buffers.obs),
        action_bytes=row_bytes(buffers.action),
        params_width=buffers.policy_params.shape[-1],
        noise_row=noise.stride(0),
        obs=pointer(buffers.obs),
        noise=pointer(noise),
        params=pointer(buffers.policy_params),
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


def rollout_is_possible(spec: EnvSpec, dtype: torch.dtype) -> bool:
    """Whether the numbers of network and envs are the same ones: both are float32, or planes of bytes."""
    return dtype == torch.float32 and spec.obs_dtype in (np.float32, np.bool_)


def in_chunks(
    network: Callable[[Tensor], Tensor], obs: Tensor, *, chunk: int, device: torch.device
) -> Tensor:
    """`network` over [B, …] observations in parts of at most `chunk`, gathered on the CPU."""
    outputs: list[Tensor] = []
    for part in obs.split(chunk):
        outputs.append(network(part.to(device)).cpu())
        pace.current().check()
    return torch.cat(outputs)
