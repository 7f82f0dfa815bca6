"""How a network acts and learns: readable torch, or native code with the same numbers. Chosen once, here."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from anybatch.backends import policy_kernel, q_kernel
from anybatch.backends.acting import Acting, Actor, NativeActing, TorchActing
from anybatch.backends.minibatches import Columns, Minibatch
from anybatch.backends.native_backend import NativeBackend
from anybatch.backends.policy_kernel import PolicyKernel
from anybatch.backends.q_kernel import QKernel
from anybatch.backends.threads import native_threads
from anybatch.backends.torch_backend import Loss, LossSteps, Seen, TorchBackend
from anybatch.config import RunConfig
from anybatch.dial import Plan
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError
from anybatch.native import CompileError
from anybatch.networks.actor_critic import Policy
from anybatch.networks.flat import FlatParameters
from anybatch.networks.q_network import QNetwork
from anybatch.networks.weight_average import WeightAverage

logger = logging.getLogger(__name__)

Network = TypeVar("Network", bound=Actor)
Same = TypeVar("Same", bound=Actor, covariant=True)


class Backend(Protocol[Same]):
    """How a network acts and learns. `TorchBackend` is the reference: the loop does not know which it has."""

    reason: str
    """Why it is this one, in one sentence."""
    is_native: bool
    microbatch: int

    @property
    def network(self) -> Same: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def average(self) -> WeightAverage | None:
        """The proximal policy's weights, which follow the network's after each step on the main loss."""
        ...

    @property
    def main(self) -> LossSteps:
        """The steps on the first loss: optimizer and counts."""
        ...

    @property
    def losses(self) -> Mapping[str, LossSteps]: ...

    @property
    def acting(self) -> Acting:
        """The half that acts."""
        ...

    def outputs(self, network: Callable[[Tensor], Tensor], obs: Tensor) -> Tensor:
        """`network` over any number of observations, without gradients."""
        ...

    def begin_iteration(self, learning_rate: float, plan: Plan, loss: str | None = None) -> None:
        """Set the hyperparameters of an iteration's steps."""
        ...

    def take_steps(
        self,
        samples: Columns,
        minibatches: Sequence[Minibatch],
        *,
        loss: str | None = None,
        stop: Callable[[list[Any]], bool] | None = None,
    ) -> Seen:
        """Take a gradient step on each minibatch, unless `stop` ends them."""
        ...

    def mean_gradients(self, samples: Columns, group: Minibatch) -> dict[str, Tensor]:
        """The mean gradients of the main loss over some samples of all ranks, by network, without a step."""
        ...

    def gradient_shapes(self) -> dict[str, Tensor]:
        """Zeros in the shapes of `mean_gradients`."""
        ...

    def torch_threads(self) -> AbstractContextManager[None]:
        """For a longer part of a run that torch computes whatever the backend."""
        ...


def choose(
    config: RunConfig,
    network: Network,
    losses: Mapping[str, Loss],
    spec: EnvSpec,
    *,
    average: type[WeightAverage] | None = None,
    noise_of: Mapping[str, slice],
    microbatch: int,
    device: torch.device,
    was_native: bool | None = None,
) -> Backend[Network]:
    """The backend of a run. Its `reason` says in one sentence why it is this one.

    `network` is on its device. `was_native` is the backend of the run that is resumed, which is kept unless
    the config makes the choice.
    """
    main = next(iter(losses.values()))
    why_torch = why_not_native(config, network, spec, main, was_native=was_native)
    parts = {
        "average": average,
        "noise_of": noise_of,
        "microbatch": microbatch,
        "device": device,
    }
    if why_torch is None:

        def make_kernel(backend: TorchBackend[Network]) -> PolicyKernel | QKernel:
            proximal = None if backend.average is None else backend.average.policy
            return kernel_for(network, proximal, spec, threads=native_threads(config))

        try:
            backend = NativeBackend(config, network, losses, make_kernel=make_kernel, **parts)
            backend.reason = "native code: there is some for this network, compiled for this processor"
            return backend
        except CompileError as error:
            why_torch = str(error)
            if config.native == "on":
                raise refused(why_torch) from None
            logger.warning(f"Native code is not used, which makes small networks slower: {why_torch}.")
    backend = TorchBackend(network, losses, **parts)
    backend.reason = f"torch: {why_torch}"
    if was_native is not None and config.native == "auto" and config.precision != "bf16":
        if was_native:
            logger.info(
                "This run has been trained with native code and continues with torch: rounding will differ."
            )
        elif main.is_native and unsupported(network, spec) is None:
            logger.info("This run has been trained with torch and continues with it; --native on is faster.")
    return backend


def acting_for(config: RunConfig, network: Actor, spec: EnvSpec, device: torch.device) -> Acting:
    """The half of a backend that acts, for an actor; the learner says whether native code is used."""
    if why_not_native(config, network, spec) is None:
        FlatParameters(network)  # native code reads parameters from there
        try:
            return NativeActing(kernel_for(network, None, spec, threads=native_threads(config)))
        except CompileError as error:
            if config.native == "on":
                raise refused(str(error)) from None
    return TorchActing(device)


def why_not_native(
    config: RunConfig,
    network: Actor,
    spec: EnvSpec,
    loss: Loss | None = None,
    *,
    was_native: bool | None = None,
) -> str | None:
    """Why a run does not use native code; None if it does, provided that there is a compiler.

    Without a `loss`, the network only acts.
    """
    if config.precision == "bf16":
        return "native code supports only float32 and float64"
    if config.native == "off":
        return "native = off"
    reason = unsupported(network, spec)
    if loss is not None and not loss.is_native:
        reason = "it computes only the losses of PPO and PQN"
    if reason is not None and config.native == "on":
        raise refused(reason)
    if reason is None and config.native == "auto" and was_native is False:
        return "the run that is resumed has been trained with torch"
    return None if reason is None else f"there is no native code for this run: {reason}"


def unsupported(network: Actor, spec: EnvSpec) -> str | None:
    """Why there is no native code for a network; None if there is."""
    if isinstance(network, QNetwork):
        return q_kernel.unsupported(network, spec)
    return policy_kernel.unsupported(network, spec)


def kernel_for(
    network: Actor, proximal: Policy | None, spec: EnvSpec, *, threads: int
) -> PolicyKernel | QKernel:
    if isinstance(network, QNetwork):
        return QKernel(network, spec, threads=threads)
    return PolicyKernel(network, proximal, spec, threads=threads)


def refused(reason: str) -> ConfigError:
    return ConfigError(f"native = on: there is no native code for this run: {reason}")


__all__ = [
    "Acting",
    "Actor",
    "Backend",
    "Columns",
    "Loss",
    "LossSteps",
    "Minibatch",
    "NativeBackend",
    "Seen",
    "TorchActing",
    "TorchBackend",
    "acting_for",
    "choose",
]
