"""How a network chooses actions while a rollout is collected: in torch, or in native code."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from anybatch.backends import native_rollout
from anybatch.backends.buffers import Buffers
from anybatch.backends.policy_kernel import PolicyKernel
from anybatch.backends.q_kernel import QKernel
from anybatch.envs.protocol import NativeEnv, VectorEnv
from anybatch.networks.actor_critic import ActorCritic
from anybatch.networks.q_network import QNetwork

Actor = ActorCritic | QNetwork
"""A network that acts and estimates values. A Q-network's locations are action values."""


class Acting(Protocol):
    """The half of a backend that acts, which is all that an actor needs."""

    def decisions(self, network: Actor, buffers: Buffers, noise: Tensor) -> Callable[[int], None]:
        """A function that decides the actions of row t and stores the policy's outputs."""
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
        obs, action, location = buffers.obs.unbind(), buffers.action.unbind(), buffers.location.unbind()
        values, noises = buffers.acting_value.unbind(), noise.to(self._device).unbind()

        def decide(t: int) -> None:
            seen = obs[t].to(self._device)
            if network.shares_encoder:
                policy, value = network(seen)
                values[t].copy_(value)
            else:
                policy = network.distribution(network.locate(seen))
            location[t].copy_(policy.location)
            action[t].copy_(policy.sample(noises[t]))

        return decide

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
        rows = [buffers.obs, noise, buffers.location, buffers.action]
        if network.shares_encoder:
            rows.append(buffers.acting_value)
        places = [(tensor.data_ptr(), tensor.stride(0) * tensor.element_size()) for tensor in rows]
        num_envs = buffers.reward.shape[1]

        def decide(t: int) -> None:
            self._kernel.act(num_envs, *(start + t * row for start, row in places))

        return decide

    def whole_rollout(
        self, network: Actor, env: VectorEnv, buffers: Buffers, noise: Tensor
    ) -> np.ndarray | None:
        fits = native_rollout.is_possible(env.spec, buffers.reward.dtype)
        if network is not self._kernel.network or not isinstance(env, NativeEnv) or not fits:
            return None
        return native_rollout.collect(self._kernel, env, buffers, noise, with_value=network.shares_encoder)
