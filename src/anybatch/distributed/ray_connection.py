"""The connection to Ray: a cluster, or a Ray started for this process alone."""

import logging
import os
import socket
import textwrap
from typing import Any

import ray
from ray.util import get_node_ip_address

from anybatch.distributed.ray_package import WITHOUT_CLUSTERS
from anybatch.errors import ConfigError

PRIVATE: dict[str, Any] = {"address": "local", "include_dashboard": False}
"""Options of a private Ray."""
QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
LOST_HEAD = ("RAY_gcs_rpc_server_reconnect_timeout_s", "15")
"""Seconds that Ray waits for a lost head before it ends this process. A private Ray's head never returns."""
CONNECT_SECONDS = 10.0


def refuse_reachable() -> None:
    """Refuse to start a Ray that other machines could reach, since it has no authentication."""
    if get_node_ip_address() != "127.0.0.1":
        raise ConfigError(
            "a private Ray would be reachable from other machines, because this program imported ray before "
            f"anybatch could prevent it: set {'='.join(WITHOUT_CLUSTERS)} first, or call ray.init yourself"
        )


def refuse_unreachable(address: str) -> None:
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
    if ray.is_initialized():  # by the program that calls us
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        if address is None:
            os.environ.setdefault(*LOST_HEAD)
            refuse_reachable()
            ray.init(**PRIVATE, **QUIET, num_cpus=cores)
        else:
            refuse_unreachable(address)
            ray.init(address=address, **QUIET)
    except ConfigError:
        raise
    except Exception as error:  # Ray raises a plain Exception if its processes start too slowly
        where = "on this machine" if address is None else f"at ray-address = {address}"
        reason = textwrap.shorten(str(error), 300)
        raise ConfigError(f"no Ray of version {ray.__version__} could be used {where}: {reason}") from error
    return True
