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
from typing import NamedTuple

import torch

from anybatch import native
from anybatch.distributed import collectives
from anybatch.distributed.shared_memory import SharedMemory, bytes_for

MEMORY_FOLDER = Path("/dev/shm")
"""Where Linux keeps files in memory. Elsewhere temporary files serve, which stay in the page cache."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class MappedFile(NamedTuple):
    """A file of this group as memory of this rank, whose byte of the file is locked."""

    file: int
    memory: mmap.mmap


@contextlib.contextmanager
def shared_by_ranks(timeout: timedelta) -> Iterator[SharedMemory | None]:
    """Memory that all ranks share; None if they are on several machines, or one cannot share it."""
    rank, ranks = collectives.rank(), collectives.world_size()
    with contextlib.ExitStack() as stack:
        mapped = _common_file(stack)
        if mapped is None:
            yield None
            return
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped.memory))
        yield SharedMemory(address, rank, ranks, is_lost=_has_ended(mapped.file), timeout=timeout)


def is_available() -> bool:
    """Whether ranks on this machine can share memory."""
    path = _new_file()
    if path:
        os.unlink(path)
    return bool(path)


def _common_file(stack: contextlib.ExitStack) -> MappedFile | None:
    """A file of zeros that all ranks have mapped, without a name; None if one of them cannot."""
    with contextlib.ExitStack() as naming, contextlib.ExitStack() as opening:
        path = _new_file() if collectives.rank() == 0 else ""
        if path:
            naming.callback(os.unlink, path)  # once all have opened it
        machine, _, path = collectives.text_from_rank_0(f"{_machine()}\n{path}").partition("\n")
        mapped = _mapped(path, opening) if machine == _machine() and path else None
        if not collectives.of_all_ranks(torch.tensor(mapped is not None)).all():
            return None
        stack.push(opening.pop_all())
        return mapped


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
        with os.fdopen(file, "wb") as zeros:  # written, so that too little memory is an error now
            zeros.write(bytes(size))
    except OSError:
        os.unlink(path)
        return ""
    return path


def _mapped(path: str, stack: contextlib.ExitStack) -> MappedFile | None:
    """Map the file, and lock this rank's byte of it; None if that is not possible."""
    import fcntl  # missing on Windows

    try:
        size = bytes_for(collectives.world_size())
        file = os.open(path, os.O_RDWR)
        stack.callback(os.close, file)
        fcntl.lockf(file, fcntl.LOCK_EX, 1, collectives.rank())
        return MappedFile(file, stack.enter_context(mmap.mmap(file, size)))
    except (native.CompileError, OSError):
        return None


def _has_ended(file: int) -> Callable[[int], bool]:
    """Whether another rank has ended: the system removes the lock of a process, however it ends."""
    import fcntl

    def has_ended(rank: int) -> bool:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        except OSError:
            return False
        fcntl.lockf(file, fcntl.LOCK_UN, 1, rank)
        return True

    return has_ended
