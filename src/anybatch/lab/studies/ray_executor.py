"""Cells on Ray: each worker is an actor, on any machine, that holds the process of a local worker.

So the same code, from the same copy of the package, runs a cell everywhere. If an actor is lost, its process
ends with its input, and another actor runs the cell again.
"""

import json
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError

from anybatch.distributed.ray_connection import connect
from anybatch.lab.studies.cells import SOURCE
from anybatch.lab.studies.executor import ERROR, LOST, STOPPED, LocalWorker, naming_words

OPTIONS: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {"control": 1}}
"""The runner repeats the request for a cell whose actor was lost. A stop must not wait for the cell's end."""
CHECK_SECONDS = 0.5


class RemoteWorker:
    """A worker as Ray runs it. Its arguments and answers are JSON."""

    def __init__(self, place: str) -> None:
        known = json.loads(place)
        self._out = Path(known["out"])
        folder = known["folder"] if Path(known["folder"]).is_dir() else None
        self._worker = LocalWorker(
            self._out, threads=known["threads"], named_envs=known["named"], folder=folder
        )

    def ask(self, job: str) -> str:
        if not (self._out / SOURCE).exists():
            reason = (
                f"{self._out} is not there on {socket.gethostname()}: a study on Ray needs a folder that all "
                "machines of the cluster share; choose one with --out"
            )
            return json.dumps({"answer": ERROR, "reason": reason})
        return json.dumps(self._worker.ask(**json.loads(job)))

    @ray.method(concurrency_group="control")
    def stop(self) -> None:
        self._worker.stop()

    @ray.method(concurrency_group="control")
    def give_up(self, cell: str) -> None:
        self._worker.give_up(cell)

    @ray.method(concurrency_group="control")
    def process_id(self) -> int:
        return os.getpid()


class RayExecutor:
    """Actors on a cluster, or on a private Ray of this study."""

    def __init__(self, address: str | None, *, jobs: int | None, threads: int) -> None:
        """Without a number of jobs, there are as many as the cluster has cores for."""
        self._owns_connection = connect(address, (jobs or 1) * threads)
        self.jobs = jobs or max(1, int(ray.cluster_resources().get("CPU", 0)) // threads)

    def worker(self, out: Path, *, threads: int, named_envs: Sequence[str]) -> "RayWorker":
        place = {
            "out": str(out.resolve()),
            "folder": os.getcwd(),  # where modules of the user are found
            "threads": threads,
            "named": naming_words(named_envs),
        }
        return RayWorker(json.dumps(place), cores=threads)

    def close(self) -> None:
        if self._owns_connection and ray.is_initialized():
            ray.shutdown()


class RayWorker:
    """A worker as the runner sees it. Its actor is started when it gets a job."""

    def __init__(self, place: str, *, cores: int) -> None:
        self._place = place
        self._make: Any = ray.remote(num_cpus=cores, **OPTIONS)(RemoteWorker)
        self._actor: Any = None
        self._process_id: Any = None
        """A pending answer that arrives when the actor has started, which may take long."""
        self._stopping = False
        self._lock = threading.Lock()
        """An actor is either started before a stop, and told about it, or not started."""

    def ask(self, **job: Any) -> dict[str, Any]:
        """Let it do a job. If its actor is lost meanwhile, the next job gets a new one."""
        with self._lock:
            if self._stopping:
                return {"answer": STOPPED}
            actor = self._actor or self._start()
        answer = actor.ask.remote(json.dumps(job))
        try:
            while not ray.wait([answer], timeout=CHECK_SECONDS)[0]:
                if self._stopping and not self._has_started():
                    return {"answer": STOPPED}
            return json.loads(ray.get(answer))
        except (RayActorError, NodeDiedError, OutOfMemoryError) as error:
            self.close()
            if self._stopping:
                return {"answer": STOPPED}
            if isinstance(error, RayActorError) and error.actor_init_failed:
                reason = str(error).strip().splitlines()[-1]
                return {"answer": ERROR, "reason": f"Ray cannot start a worker: {reason}"}
            return {"answer": LOST, "reason": "its Ray worker has ended"}

    def stop(self) -> None:
        with self._lock:
            if not self._stopping and self._actor is not None:
                self._actor.stop.remote()
            self._stopping = True

    def give_up(self, cell: str) -> None:
        with self._lock:
            if self._actor is not None:
                self._actor.give_up.remote(cell)

    def kill(self) -> None:
        with self._lock:
            self._stopping = True
        self.close()

    def close(self) -> None:
        with self._lock:
            actor, self._actor = self._actor, None
        if actor is not None:
            ray.kill(actor)

    def process_id(self) -> int:
        """The id of the actor's process."""
        return ray.get(self._process_id)

    def _start(self) -> Any:
        self._actor = self._make.remote(self._place)
        self._process_id = self._actor.process_id.remote()
        return self._actor

    def _has_started(self) -> bool:
        return bool(ray.wait([self._process_id], timeout=0)[0])
