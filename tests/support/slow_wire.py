"""A network between hosts whose every packet is late, for kernels without a network emulator.

Each host's device is a tap: what the host sends is read here, and written to the other one some time later.
"""

import fcntl
import os
import select
import struct
import threading
import time
from collections import deque
from typing import Self

TUNSETIFF = 0x400454CA  # of linux/if_tun.h
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
LARGEST_FRAME = 65_536


class SlowWire:
    """Two taps, and a thread that carries frames between them. Closing it removes both."""

    def __init__(self, names: tuple[str, str], delay_seconds: float) -> None:
        """`delay_seconds`: in each direction."""
        self._delay = delay_seconds
        self._taps = [_tap(name) for name in names]
        self._stop, self._wake = os.pipe()
        self._carrier = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self) -> Self:
        self._carrier.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._wake)
        self._carrier.join()
        for descriptor in (*self._taps, self._stop):
            os.close(descriptor)

    def _carry(self) -> None:
        waiting: deque[tuple[float, int, bytes]] = (
            deque()
        )  # due, to, frame; in this order, as all wait as long
        while True:
            patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            ready, _, _ = select.select([*self._taps, self._stop], [], [], patience)
            if self._stop in ready:
                return
            for place, tap in enumerate(self._taps):
                if tap in ready:
                    frame = os.read(tap, LARGEST_FRAME)
                    waiting.append((time.monotonic() + self._delay, self._taps[1 - place], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, to, frame = waiting.popleft()
                try:
                    os.write(to, frame)
                except OSError:  # a device that is not up yet loses what it is sent
                    continue


def _tap(name: str) -> int:
    """A new tap device, which exists as long as its descriptor is open."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor
