"""The group of ranks that a process belongs to: joining it, and failing together.

torchrun or `--ranks` assigns ranks through environment variables; any other launcher can do the same.
"""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from anybatch.distributed import collectives
from anybatch.errors import RankError, UserError

MEETING_FILE = "ANYBATCH_MEETING_FILE"
"""Environment variable: ranks on one machine meet in this file instead of at a network address."""
LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
"""The network device that ranks on one machine exchange data over."""
TIMEOUT = timedelta(minutes=10)
"""The longest wait for another rank. A rank that has ended is noticed at once; this is for one that hangs."""
_FAILURE = "anybatch/failure"
_SECONDS_FOR_A_REASON = 2.0


def is_rank() -> bool:
    """Whether a launcher started this process as one of several ranks."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_under_torchrun() -> bool:
    """Whether torchrun started this process: it repeats signals that a terminal has sent to all processes."""
    return "TORCHELASTIC_RUN_ID" in os.environ and MEETING_FILE not in os.environ


@contextmanager
def joined() -> Iterator[None]:
    """Join the group that the launcher of this process has made, if any."""
    if not is_rank():
        yield
        return
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    path = os.environ.get(MEETING_FILE)
    if path is not None:
        # A file for each attempt: ranks must not meet in a file left by a killed group.
        path += f"-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(
            backend,
            init_method="env://" if path is None else f"file://{path}",
            rank=rank,
            world_size=ranks,
            timeout=TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        place = path or f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        reason = str(error).splitlines()[0]
        raise UserError(f"rank {rank} of {ranks} could not meet the others at {place}: {reason}") from None
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def failing_together() -> Iterator[None]:
    """A refusal on one rank is a refusal on all; the first rank that refuses reports why."""
    refused: UserError | None = None
    try:
        yield
    except UserError as error:
        refused = error
    told = collectives.of_all_ranks(torch.tensor(refused is not None)).flatten().tolist()
    if any(told):
        if refused is not None and told.index(True) == collectives.rank():
            raise refused
        raise RankError("") from refused


def check_exchange() -> list[str]:
    """Exchange a number within this process, as ranks on this machine would. Returns the usable backends."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        try:
            dist.all_reduce(torch.ones(1))
        finally:
            dist.destroy_process_group()
    return ["gloo", "nccl"] if torch.cuda.is_available() and dist.is_nccl_available() else ["gloo"]


def local_ranks() -> int:
    """The number of ranks on this machine, according to the launcher."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if is_rank() else 1


def name() -> str:
    """This process's rank, for messages; empty if it is alone."""
    ranks = collectives.world_size()
    return f"rank {collectives.rank()} of {ranks} on {socket.gethostname()}: " if ranks > 1 else ""


def is_first_to_fail() -> bool:
    """Register a failure with the other ranks. The first rank to do so reports the reason."""
    try:
        return dist.distributed_c10d._get_default_store().add(_FAILURE, 1) == 1
    except RuntimeError:  # the store ended with its rank; two reports are better than none
        return True


def failure_was_told() -> bool:
    """Whether another rank has reported why the run ends. Waits a moment: its connection may close first."""
    store = dist.distributed_c10d._get_default_store()
    until = time.monotonic() + _SECONDS_FOR_A_REASON
    try:
        while not store.check([_FAILURE]):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
    except RuntimeError:  # the store ended with the rank that hosted it
        return False
    return True
