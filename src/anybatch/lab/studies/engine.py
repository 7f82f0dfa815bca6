"""The interface of the places where cells run, and the choice among them."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from anybatch import machine, user_modules
from anybatch.distributed import ray_connection
from anybatch.user_modules import NETWORK_FACTORY

On = Literal["local", "ray"]

DONE, FAILED, STOPPED, ERROR, DIED, LOST = "done", "failed", "stopped", "error", "died", "lost"
"""Answers. done, failed: the cell's file is written, with or without a result. stopped: by the runner. error:
the study cannot continue. died: the cell's process ended without an answer. lost: the machine or actor that
it ran on is gone, or somebody else stopped its process, which need not be the cell's fault."""
FACTORY_FLAG = f"--{NETWORK_FACTORY}="
MOST_LOSSES = 5
"""Times that a cell is run whose worker was lost, before it counts as failed."""


def naming_words(envs: Sequence[str]) -> list[str]:
    """The arguments that tell a worker process which environments and network factories a person named."""
    return [*envs, *(f"{FACTORY_FLAG}{path}" for path in sorted(user_modules.named(NETWORK_FACTORY)))]


def always_lost(reason: str) -> str:
    """Why a cell counts as failed whose worker was lost every time."""
    return f"{reason}, {MOST_LOSSES} times in a row"


class CellWorker(Protocol):
    """Runs cells from the study's copy of the package, one after another. Its process ends with it."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def ask(self, **job: Any) -> dict[str, Any]:
        """Let it do a job, as described in `worker.py`, and wait for the answer."""
        ...

    def stop(self) -> None:
        """Ask it to save what it is training and to take no more jobs. From any thread, repeatedly."""
        ...

    def kill(self) -> None:
        """End it at once. From any thread."""
        ...


class Engine(Protocol):
    """A place for as many workers as there are jobs."""

    @property
    def jobs(self) -> int:
        """Cells that run side by side."""
        ...

    def worker(self, out: Path, *, threads: int, named_envs: Sequence[str]) -> CellWorker: ...

    def close(self) -> None:
        """End what was started for the workers."""
        ...


def start(on: On, *, ray_address: str | None, jobs: int | None, threads: int) -> Engine:
    """The requested engine. Without a number of jobs, it has as many as there are cores for."""
    own_jobs = jobs or max(1, machine.available_cores() // threads)
    if on == "local":
        from anybatch.lab.studies.processes import LocalEngine

        return LocalEngine(own_jobs)
    with ray_connection.needed_for("--on ray", address=ray_address):
        from anybatch.lab.studies.ray_engine import RayEngine
    return RayEngine(ray_address, jobs=jobs if ray_address else own_jobs, threads=threads)
