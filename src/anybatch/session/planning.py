"""What a config determines before training: plan, encoder, threads."""

import torch

from anybatch.algorithms import AnyState
from anybatch.algorithms.actors import encoder_for
from anybatch.algorithms.arithmetic import own_cores
from anybatch.config import AnyConfig
from anybatch.planning import expected_encoder, plan

__all__ = ["encoder_for", "expected_encoder", "leave_cores_to_native_code", "plan", "set_threads"]


def set_threads(config: AnyConfig, encoder: str) -> None:
    """Threads of torch: one for small networks, which lose more to waking threads than they gain; all cores
    for convolutions."""
    torch.set_num_threads(config.threads or (own_cores() if encoder in ("nature", "impala") else 1))


def leave_cores_to_native_code(state: AnyState) -> None:
    """One thread of torch beside native code: further ones would keep the cores busy that it needs.

    PPG's auxiliary phase has those that were asked for (`torch_beside_native_code`).
    """
    if state.kernel is not None:
        torch.set_num_threads(1)
