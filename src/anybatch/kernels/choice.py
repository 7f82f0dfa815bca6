"""Whether a run uses native code."""

from collections.abc import Callable
from typing import Literal, TypeVar

from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError
from anybatch.kernels import policy, q
from anybatch.kernels.policy import PolicyKernel
from anybatch.kernels.q import QKernel
from anybatch.native import CompileError
from anybatch.networks.actor_critic import ActorCritic, Policy
from anybatch.networks.q_network import QNetwork

Choice = Literal["auto", "on", "off"]
Kernel = TypeVar("Kernel", PolicyKernel, QKernel)


def policy_kernel(
    choice: Choice,
    network: ActorCritic,
    proximal: Policy | None,
    spec: EnvSpec,
    *,
    threads: int,
    say: Callable[[str], None],
) -> PolicyKernel | None:
    """Native code for a policy and its averaged copy."""
    unsupported = policy.unsupported(network, spec)
    return _chosen(choice, unsupported, lambda: PolicyKernel(network, proximal, spec, threads=threads), say)


def q_kernel(
    choice: Choice, network: QNetwork, spec: EnvSpec, *, threads: int, say: Callable[[str], None]
) -> QKernel | None:
    """Native code for action values."""
    return _chosen(choice, q.unsupported(network, spec), lambda: QKernel(network, spec, threads=threads), say)


def _chosen(
    choice: Choice, unsupported: str | None, make: Callable[[], Kernel], say: Callable[[str], None]
) -> Kernel | None:
    """A kernel if requested or, with auto, if there is one."""
    if choice == "off":
        return None
    reason = unsupported
    if reason is None:
        try:
            return make()
        except CompileError as error:
            reason = str(error)
            if choice == "auto":
                say(f"Native code is not used, which makes small networks slower: {reason}.")
    if choice == "on":
        raise ConfigError(f"compile = on: there is no native code for this run: {reason}")
    return None
