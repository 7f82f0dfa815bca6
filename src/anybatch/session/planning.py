"""What a config determines before training: plan, encoder, threads."""

import torch

from anybatch import envs, machine, native
from anybatch.algorithms import AnyState, algorithm_of
from anybatch.backends import why_not_native
from anybatch.backends.threads import cores_of_this_rank
from anybatch.config import AnyConfig
from anybatch.errors import UserError
from anybatch.planning import expected_encoder, plan
from anybatch.session.custom import NOTHING_OWN

__all__ = ["expected_encoder", "leave_cores_to_native_code", "plan", "set_threads"]


def notes_on_ranks(config: AnyConfig, ranks: int) -> list[str]:
    """A note if so many ranks on this machine would be slower than threads: a single process takes many steps
    of a small network in one call of native code, while ranks exchange gradients at every step."""
    if ranks == 1 or not runs_natively(config):
        return []
    per_rank = config.envs_per_rank
    ranked = f"--ranks {ranks}" + (f" --envs-per-rank {per_rank}" if per_rank else "")
    threaded = f"--threads {ranks}" + (f" --num-envs {config.num_envs}" if per_rank else "")
    return [
        "Native code runs this network, and on one machine it is faster with threads than with ranks: use "
        f"{threaded} instead of {ranked}."
    ]


def runs_natively(config: AnyConfig) -> bool:
    """Whether native code would run the network of a config; one env is built to know."""
    spec = envs.spec_of_one(config.env, config.env_config)
    if spec is None or machine.device_name(config.device) != "cpu" or not native.available():
        return False
    try:
        factory = NOTHING_OWN.network_factory(config)
        network = algorithm_of(config).make_network(config, spec, factory)
        return why_not_native(config, network, spec) is None
    except UserError:  # the run will be refused with the reason
        return False


def set_threads(config: AnyConfig, encoder: str) -> None:
    """Threads of torch: one for small networks, which lose more to waking threads than they gain; all cores
    for convolutions."""
    torch.set_num_threads(config.threads or (cores_of_this_rank() if encoder in ("nature", "impala") else 1))


def leave_cores_to_native_code(state: AnyState) -> None:
    """One thread of torch beside native code: further ones would keep the cores busy that it needs.

    PPG's auxiliary phase has those that were asked for (`NativeBackend.torch_threads`).
    """
    if state.backend.is_native:
        torch.set_num_threads(1)
