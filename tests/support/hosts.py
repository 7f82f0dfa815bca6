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
    bridge = f"ab{os.getpid() % 100_000}"
    hosts = [Host(f"{bridge}h{place}", f"{NETWORK}.{place + 1}") for place in range(number)]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for host in hosts:
            ip("netns", "add", host.name)
            ip("link", "add", outside(host), "type", "veth", "peer", "name", DEVICE, "netns", host.name)
            ip("link", "set", outside(host), "master", bridge, "up")
            ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", DEVICE)
            ip("-n", host.name, "link", "set", DEVICE, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            pids = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True).stdout
            for pid in map(int, pids.split()):
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, 9)
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()} (hosts need root and iproute2)"
