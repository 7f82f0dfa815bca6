"""Shared memory for a group of ranks that are all on one machine."""

import contextlib
import ctypes
import mmap
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import torch

from anybatch import native
from anybatch.distributed import collectives
from anybatch.distributed.shared_memory import SharedMemory, bytes_for

MEMORY_FOLDER = Path("/dev/shm")
"""Where Linux keeps files in memory. Elsewhere temporary files serve, which stay in the page cache."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@contextlib.contextmanager
def shared_by_ranks(timeout: timedelta) -> Iterator[SharedMemory | None]:
    """Memory that all ranks share; None if they are on several machines, or one has no native code."""
    with contextlib.ExitStack() as stack:
        file = _common_file(stack)
        if file is None:
            yield None
            return
        rank, ranks = collectives.rank(), collectives.world_size()
        content = stack.enter_context(mmap.mmap(file, bytes_for(ranks)))
        is_lost = _locked_bytes(file, rank)
        collectives.of_all_ranks(torch.tensor(0))  # all have their locks
        address = ctypes.addressof(ctypes.c_char.from_buffer(content))
        yield SharedMemory(address, rank, ranks, is_lost=is_lost, timeout=timeout)


def is_available() -> bool:
    """Whether ranks on this machine can share memory."""
    path = _new_file()
    if path:
        os.unlink(path)
    return bool(path)


def _common_file(stack: contextlib.ExitStack) -> int | None:
    """A file of zeros that all ranks have opened, without a name; None if one of them cannot."""
    path = _new_file() if collectives.rank() == 0 else ""
    machine, _, path = collectives.text_from_rank_0(f"{_machine()}\n{path}").partition("\n")
    file = _opened(path) if machine == _machine() and path else None
    if file is not None:
        stack.callback(os.close, file)
    is_common = bool(collectives.of_all_ranks(torch.tensor(file is not None)).all())
    if collectives.rank() == 0 and path:
        os.unlink(path)  # nothing is left behind, however the ranks end
    return file if is_common else None


def _machine() -> str:
    """The same text on all ranks of a machine, and on no other."""
    try:
        return f"{socket.gethostname()} {BOOT_ID.read_text().strip()}"
    except OSError:
        return socket.gethostname()


def _new_file() -> str:
    """The path of a new file for this group, readable by this user only; empty if there cannot be one."""
    folder = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
    try:
        size = bytes_for(collectives.world_size())
        file, path = tempfile.mkstemp(prefix="anybatch-", dir=folder)
    except (native.CompileError, OSError):
        return ""
    try:
        os.posix_fallocate(file, 0, size)  # an error now instead of a crash when the memory is used
    except OSError:
        os.unlink(path)
        return ""
    finally:
        os.close(file)
    return path


def _opened(path: str) -> int | None:
    try:
        native.library("float32")
        return os.open(path, os.O_RDWR)
    except (native.CompileError, OSError):
        return None


def _locked_bytes(file: int, rank: int) -> Callable[[int], bool]:
    """Lock this rank's byte of the file. Returns a function that says whether another rank has ended.

    The system removes a lock when its process ends, however it ends.
    """
    import fcntl  # missing on Windows

    fcntl.lockf(file, fcntl.LOCK_EX, 1, rank)

    def has_ended(other: int) -> bool:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, other)
        except OSError:
            return False
        fcntl.lockf(file, fcntl.LOCK_UN, 1, other)
        return True

    return has_ended
