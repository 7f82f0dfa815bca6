"""Exchanges between ranks on one machine, through memory that they share.

For the gradient of a small network, gloo's connections need a millisecond, as long as a gradient step.
"""

import ctypes
import time
from collections.abc import Callable
from datetime import timedelta

import torch
from torch import Tensor

from anybatch import native

SLOT_BYTES = 1 << 20
"""Bytes that a rank offers at a time; larger tensors are exchanged in parts."""


class _ExchangeStruct(ctypes.Structure):
    """`Exchange` in native/exchange.c."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("slot_bytes", ctypes.c_int64),
        ("rank", ctypes.c_int32),
        ("ranks", ctypes.c_int32),
    )


def bytes_for(ranks: int) -> int:
    """The size of the memory that so many ranks share. It must be zero at the beginning."""
    function = native.library("float32").exchange_bytes
    function.restype = ctypes.c_int64
    return function(ctypes.c_int32(ranks), ctypes.c_int64(SLOT_BYTES))


class SharedMemory:
    """One rank's access to the memory. All ranks have to make the same calls, in the same order."""

    def __init__(
        self, memory: int, rank: int, ranks: int, *, is_lost: Callable[[int], bool], timeout: timedelta
    ):
        """`memory` is an address; `is_lost` says whether another rank has ended."""
        self.rank, self.ranks = rank, ranks
        self._library = native.library("float32")
        self._struct = _ExchangeStruct(memory, SLOT_BYTES, rank, ranks)
        self._exchange = ctypes.byref(self._struct)
        self._add = {
            torch.float32: self._library.exchange_add_floats,
            torch.float64: self._library.exchange_add_doubles,
        }
        self._others = [other for other in range(ranks) if other != rank]
        self._is_lost = is_lost
        self._timeout = timeout
        self._halves = 0
        """Halves of exchanges that all ranks have to finish before this one goes on."""

    def sum(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all ranks, which is the same for all of them, bit for bit."""
        add = self._add.get(tensor.dtype)
        if add is None:
            tensor.copy_(self.of_all(tensor).sum(0))
            return
        flat = tensor.contiguous().view(-1)
        for part in flat.split(SLOT_BYTES // tensor.element_size()):
            self._write(part)
            add(self._exchange, ctypes.c_int64(part.numel()))
            self._finish_half()
            self._library.exchange_read_result(
                self._exchange, ctypes.c_void_p(part.data_ptr()), ctypes.c_int64(part.nbytes)
            )
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view_as(tensor))

    def of_all(self, tensor: Tensor) -> Tensor:
        """The tensors of all ranks, which have the same shape, along a new first axis."""
        content = tensor.contiguous().view(-1).view(torch.uint8)
        parts = [self._bytes_of_all(part) for part in content.split(SLOT_BYTES)]
        return torch.cat(parts, 1).view(-1).view(tensor.dtype).view(self.ranks, *tensor.shape)

    def _bytes_of_all(self, content: Tensor) -> Tensor:
        self._write(content)
        found = content.new_empty(self.ranks, content.numel())
        self._library.exchange_read_all(
            self._exchange, ctypes.c_void_p(found.data_ptr()), ctypes.c_int64(content.numel())
        )
        self._halves += 1  # waited for before the next exchange
        return found

    def _write(self, content: Tensor) -> None:
        self._wait()
        self._library.exchange_write(
            self._exchange, ctypes.c_void_p(content.data_ptr()), ctypes.c_int64(content.nbytes)
        )
        self._finish_half()

    def _finish_half(self) -> None:
        self._halves += 1
        self._wait()

    def _wait(self) -> None:
        """Wait for all ranks. RuntimeError, as from torch's own exchanges, if one does not come."""
        if self._library.exchange_wait(self._exchange, ctypes.c_int64(self._halves)):
            return
        until = time.monotonic() + self._timeout.total_seconds()
        while True:
            lost = [other for other in self._others if self._is_lost(other)]
            # A rank that has ended may have finished its part before.
            if self._library.exchange_wait(self._exchange, ctypes.c_int64(self._halves)):
                return
            if lost:
                raise RuntimeError(f"rank {lost[0]} has ended")
            if time.monotonic() > until:
                raise RuntimeError(f"no answer for {self._timeout.total_seconds() / 60:g} minutes")
