"""Whether a run uses native code."""

from collections.abc import Callable
from typing import Literal

from anybatch.errors import ConfigError
from anybatch.kernels.policy import PolicyKernel, unsupported
from anybatch.native import CompileError
from anybatch.networks.actor_critic import ActorCritic, Policy

USED = "Native code: this network acts and learns without torch's overhead (--compile off turns it off)."


def policy_kernel(
    choice: Literal["auto", "on", "off"],
    network: ActorCritic,
    proximal: Policy | None,
    say: Callable[[str], None],
) -> PolicyKernel | None:
    """Native code for `network` and its averaged copy, if it is asked for or, with auto, if there is any."""
    if choice == "off":
        return None
    reason = unsupported(network)
    if reason is None:
        try:
            kernel = PolicyKernel(network, proximal)
        except CompileError as error:
            reason = str(error)
            if choice == "auto":
                say(f"Native code is not used, which makes small networks slower: {reason}.")
        else:
            say(USED)
            return kernel
    if choice == "on":
        raise ConfigError(f"compile = on: there is no native code for this run: {reason}")
    return None
