"""The connection to Ray: a cluster, or a Ray started for this process alone."""

import contextlib
import logging
import os
import socket
import textwrap
from collections.abc import Iterator
from typing import Any

import ray
from ray._private import ray_constants

from anybatch.errors import ConfigError

PRIVATE: dict[str, Any] = {"address": "local", "include_dashboard": False}
"""Options of a private Ray."""
QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
LOST_HEAD = ("RAY_gcs_rpc_server_reconnect_timeout_s", "15")
"""Seconds that Ray waits for a lost head before it ends this process. A private Ray's head never returns."""
CONNECT_SECONDS = 10.0


@contextlib.contextmanager
def on_loopback_only() -> Iterator[None]:
    """Let a Ray started here listen on 127.0.0.1 only, as it does on systems without Ray clusters.

    On Linux, Ray listens on an address that other machines can reach, even if 127.0.0.1 is requested. Its
    switch for other systems is a constant in this process, and an environment variable for its child
    processes.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        del os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR]


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
            with on_loopback_only():
                ray.init(**PRIVATE, **QUIET, num_cpus=cores)
        else:
            refuse_unreachable(address)
            ray.init(address=address, **QUIET)
    except Exception as error:  # Ray raises a plain Exception if its processes start too slowly
        where = "on this machine" if address is None else f"at ray-address = {address}"
        reason = textwrap.shorten(str(error), 300)
        raise ConfigError(f"no Ray of version {ray.__version__} could be used {where}: {reason}") from error
    return True
