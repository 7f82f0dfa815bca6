"""Ray, an optional dependency: its import, and the connection to a cluster or to a private Ray."""

import contextlib
import logging
import os
import socket
import textwrap
from collections.abc import Iterator
from typing import Any

from anybatch.errors import ConfigError

WITHOUT_CLUSTERS = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
"""Environment variable that lets a Ray listen on 127.0.0.1 only, as it does where Ray has no clusters. On
Linux it would otherwise listen on an address that other machines can reach, even if 127.0.0.1 is requested.
Ray reads it when it is imported, and so do its processes."""
PRIVATE: dict[str, Any] = {"address": "local", "include_dashboard": False}
"""Options of a private Ray."""
QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
LOST_HEAD = ("RAY_gcs_rpc_server_reconnect_timeout_s", "15")
"""Seconds that Ray waits for a lost head before it ends this process. A private Ray's head never returns."""
CONNECT_SECONDS = 10.0


@contextlib.contextmanager
def needed_for(asked: str, *, address: str | None) -> Iterator[None]:
    """Refuse what was `asked` for if ray cannot be imported within. Call it before anything imports ray:
    without the `address` of a cluster, a private Ray is prepared."""
    if address is None:
        os.environ.setdefault(*WITHOUT_CLUSTERS)
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{asked} needs the package ray ({error}); pip install 'anybatch[ray]' installs it"
        ) from None


def validate_local_only() -> None:
    """Refuse to start a Ray that other machines could reach, since it has no authentication."""
    from ray.util import get_node_ip_address

    if get_node_ip_address() != "127.0.0.1":
        raise ConfigError(
            "a private Ray would be reachable from other machines, because this program imported ray before "
            f"anybatch could prevent it: set {'='.join(WITHOUT_CLUSTERS)} first, or call ray.init yourself"
        )


def validate_answers(address: str) -> None:
    """Raise OSError or ValueError if nothing answers; Ray itself would wait for minutes."""
    if address == "auto":  # Ray knows at once whether there is one on this machine
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise ValueError("it must be auto or host:port, such as 10.0.0.1:6379")
    socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def connect(address: str | None, cores: int) -> bool:
    """Connect to a cluster, or start a private Ray that offers `cores` cores to its actors.

    Returns whether this process has to end the connection.
    """
    import ray

    if ray.is_initialized():  # by the program that calls us
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        if address is None:
            os.environ.setdefault(*LOST_HEAD)
            validate_local_only()
            ray.init(**PRIVATE, **QUIET, num_cpus=cores)
        else:
            validate_answers(address)
            ray.init(address=address, **QUIET)
    except ConfigError:
        raise
    except Exception as error:  # Ray raises a plain Exception if its processes start too slowly
        where = "on this machine" if address is None else f"at ray-address = {address}"
        reason = textwrap.shorten(str(error), 300)
        raise ConfigError(f"no Ray of version {ray.__version__} could be used {where}: {reason}") from error
    return True
