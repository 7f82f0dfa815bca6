"""Hosts for tests: network namespaces of this machine, joined by a bridge, each with an address of its own.

The namespaces and their addresses exist only while a test runs, and nothing outside them can reach them.
Making them needs root and iproute2.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slow_wire import SlowWire

DEVICE = "eth0"
"""The network device of every host."""
NETWORK = "10.213.0"


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    name: str
    address: str

    def command(self, words: Sequence[str]) -> list[str]:
        """The words of a command that runs on this host."""
        return ["ip", "netns", "exec", self.name, *words]

    def set_link(self, state: str) -> None:
        """Plug the network cable in (up) or pull it out (down)."""
        ip("link", "set", outside(self), state)

    def bytes_sent(self) -> int:
        counter = f"/sys/class/net/{DEVICE}/statistics/tx_bytes"
        return int(subprocess.check_output(self.command(["cat", counter]), text=True))


def outside(host: Host) -> str:
    """The other end of a host's cable, at the bridge."""
    return f"{host.name}-c"


@contextmanager
def opened(number: int) -> Iterator[list[Host]]:
    """So many hosts on one network, removed at the end with whatever still runs on them."""
    bridge = bridge_name()
    with removed_at_the_end(number) as hosts:
        try:
            ip("link", "add", bridge, "type", "bridge")
            ip("link", "set", bridge, "up")
            for host in hosts:
                ip("link", "add", outside(host), "type", "veth", "peer", "name", DEVICE, "netns", host.name)
                ip("link", "set", outside(host), "master", bridge, "up")
                set_up(host)
            yield hosts
        finally:
            subprocess.run(["ip", "link", "delete", bridge], capture_output=True)


@contextmanager
def far_apart(delay_seconds: float) -> Iterator[list[Host]]:
    """Two hosts; what one sends arrives so many seconds later at the other."""
    with removed_at_the_end(2) as hosts, SlowWire((outside(hosts[0]), outside(hosts[1])), delay_seconds):
        for host in hosts:
            ip("link", "set", outside(host), "netns", host.name, "name", DEVICE)
            set_up(host)
        yield hosts


def bridge_name() -> str:
    return f"ab{os.getpid() % 100_000}"


def set_up(host: Host) -> None:
    """Give the device of a host its address."""
    ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", DEVICE)
    ip("-n", host.name, "link", "set", DEVICE, "up")
    ip("-n", host.name, "link", "set", "lo", "up")


@contextmanager
def removed_at_the_end(number: int) -> Iterator[list[Host]]:
    """New hosts without a network."""
    hosts = [Host(f"{bridge_name()}h{place}", f"{NETWORK}.{place + 1}") for place in range(number)]
    try:
        for host in hosts:
            ip("netns", "add", host.name)
        yield hosts
    finally:
        for host in hosts:
            pids = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True).stdout
            for pid in map(int, pids.split()):
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, 9)
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()} (hosts need root and iproute2)"
