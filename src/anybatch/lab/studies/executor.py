"""Executors: where cells run, in processes of this machine or on Ray. Each has several workers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from anybatch import machine, user_modules
from anybatch.distributed import ray_connection
from anybatch.lab.studies.cells import SOURCE
from anybatch.storage.safe_files import Folder
from anybatch.user_modules import NETWORK_FACTORY

On = Literal["local", "ray"]

DONE, FAILED, STOPPED, ERROR, DIED, LOST = "done", "failed", "stopped", "error", "died", "lost"
"""Answers. done, failed: the cell's file is written, with or without a result. stopped: by the runner. error:
the study cannot continue. died: the cell's process ended without an answer. lost: the machine or actor that
it ran on is gone, or somebody else stopped its process, which need not be the cell's fault."""
FACTORY_FLAG = f"--{NETWORK_FACTORY}="
LOG_FILE = "log.txt"
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from anybatch.lab.studies.worker import main
main()
"""
"""Ctrl-C and a closed terminal reach the whole process group, even during imports. Workers ignore them, and
the runner forwards them as SIGTERM, so that a cell is saved and does not count as one whose process died."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class CellWorker(Protocol):
    """Runs cells from the study's copy of the package, one after another. All but `ask` from any thread."""

    def ask(self, **job: Any) -> dict[str, Any]:
        """Let it do a job, as described in `worker.py`, and wait for the answer."""
        ...

    def stop(self) -> None:
        """Ask it to save what it is training and to take no more jobs. May be repeated."""
        ...

    def give_up(self, cell: str) -> None:
        """Ask it to stop training a cell, and to be ready for the next job. May be repeated."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def close(self) -> None:
        """End its process, which has no job. May be repeated."""
        ...


class Executor(Protocol):
    """A place for as many workers as there are jobs."""

    @property
    def jobs(self) -> int:
        """Cells that run side by side."""
        ...

    def worker(self, out: Path, *, threads: int, named_envs: Sequence[str]) -> CellWorker: ...

    def close(self) -> None:
        """End what was started for the workers."""
        ...


def start(on: On, *, ray_address: str | None, jobs: int | None, threads: int) -> Executor:
    """The requested executor. Without a number of jobs, it has as many as there are cores for."""
    own_jobs = jobs or max(1, machine.available_cores() // threads)
    if on == "local":
        return LocalExecutor(own_jobs)
    with ray_connection.needed_for("--on ray", address=ray_address):
        from anybatch.lab.studies.ray_executor import RayExecutor
    return RayExecutor(ray_address, jobs=jobs if ray_address else own_jobs, threads=threads)


def naming_words(envs: Sequence[str]) -> list[str]:
    """The arguments that tell a worker process which environments and network factories a person named."""
    return [*envs, *(f"{FACTORY_FLAG}{path}" for path in sorted(user_modules.named(NETWORK_FACTORY)))]


class LocalExecutor:
    """Processes of this machine."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def worker(self, out: Path, *, threads: int, named_envs: Sequence[str]) -> "LocalWorker":
        return LocalWorker(out, threads=threads, named_envs=named_envs)

    def close(self) -> None:
        """Each worker ends its own process."""


class LocalWorker:
    """A process that runs cells from the study's copy of the package. It is started when it gets a job."""

    def __init__(
        self, out: Path, *, threads: int, named_envs: Sequence[str] = (), folder: str | None = None
    ) -> None:
        """`folder` is the working folder of the process; None: that of this one."""
        self._out, self._threads, self._named, self._folder = out.resolve(), threads, named_envs, folder
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] | None = None
        self._stopping = False
        self._given_up: str | None = None
        """The cell that it was last asked to stop training."""
        self._lock = threading.Lock()
        """A process is either started before a stop, and told about it, or not started."""

    def ask(self, **job: Any) -> dict[str, Any]:
        """Let it do a job. If the process dies, the job has failed; the next job gets a new process.

        If somebody else stops the process, as `kill` does, the job can be repeated.
        """
        with self._lock:
            if self._stopping:
                return {"answer": STOPPED}
            self._given_up = None
            process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            print(json.dumps(job), file=process.stdin, flush=True)
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            answer = json.loads(line)
            if answer["answer"] == STOPPED and not self._has_asked_to_stop(job):
                return {"answer": LOST, "reason": "its process was stopped from outside"}
            return answer
        self.close()
        return {"answer": STOPPED if self._stopping else DIED, "reason": ended(process.returncode)}

    def stop(self) -> None:
        with self._lock:
            # A second signal would end it at once, before it has saved.
            if not self._stopping and self._process is not None:
                self._process.send_signal(signal.SIGTERM)
            self._stopping = True

    def give_up(self, cell: str) -> None:
        """Ask it to stop training a cell. If it trains another one or none, nothing happens."""
        with self._lock:
            if self._process is None:
                return
            self._given_up = cell
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps({"give_up": cell}), file=self._process.stdin, flush=True)

    def kill(self) -> None:
        with self._lock:
            self._stopping = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _has_asked_to_stop(self, job: Mapping[str, Any]) -> bool:
        with self._lock:
            given_up = self._given_up is not None and self._given_up == job.get("cell", {}).get("name")
            return self._stopping or given_up

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(self._out / SOURCE), os.environ.get("PYTHONPATH")]))
        threads = dict.fromkeys(THREAD_VARIABLES, str(self._threads))
        with Folder.opened(self._out) as place:
            self._log = place.append(LOG_FILE)
        # -P: a package of that name in the working folder must not replace the copy.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND, str(self._out), *naming_words(self._named)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self._folder,
            env=os.environ | threads | {"PYTHONPATH": path},
            text=True,
        )
        return self._process


def ended(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}, from outside or out of memory"
    return f"its process ended with code {code}; see the end of {LOG_FILE}"
