"""Ray actors, on this machine or others.

Ray transfers only bytes: tensors and JSON, packed by `storage/state_tree.py`.
"""

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError

from anybatch.acting.actors.transport import CHECK_SECONDS, START_SECONDS, ActorLost, Watch
from anybatch.acting.actors.worker import ActorWorker, packed_error
from anybatch.distributed.ray_connection import CONNECT_SECONDS, connect

OPTIONS: dict[str, Any] = {
    "num_cpus": 1,
    "max_restarts": -1,  # for ever
    "max_task_retries": 0,  # the learner repeats the request, with the state to continue from
    "concurrency_groups": {"signs": 1},
}


class RemoteActor:
    """An actor as Ray runs it. Signs of life have their own thread."""

    def __init__(self, build: Callable[[bytes], ActorWorker]) -> None:
        self._build = build
        self._worker: ActorWorker | None = None
        self._working = False

    def set_up(self, recipe: bytes) -> bytes:
        try:
            self._worker = self._build(recipe)
            return self._worker.first_answer()
        except Exception as error:
            return packed_error(error)

    def answer(self, request: bytes, weights: bytes) -> bytes:
        assert self._worker is not None
        self._working = True
        try:
            return self._worker.answer(request, weights)
        except Exception as error:
            return packed_error(error)
        finally:
            self._working = False

    @ray.method(concurrency_group="signs")
    def sign_of_life(self) -> tuple[str, bool]:
        return "" if self._worker is None else repr(self._worker.progress), self._working

    @ray.method(concurrency_group="signs")
    def place(self) -> tuple[str, int]:
        """Host and process."""
        return socket.gethostname(), os.getpid()


class RayTransport:
    """Ray actors, which Ray restarts by itself if their process or machine is lost."""

    def __init__(
        self,
        actors: int,
        build: Callable[[bytes], ActorWorker],
        *,
        address: str | None,
        timeout_seconds: float,
    ) -> None:
        """`build` makes, in an actor, the worker that a recipe describes."""
        self._build = build
        self._owns_connection = connect(address, actors)
        self._make: Any = ray.remote(**OPTIONS)(RemoteActor)
        self._timeout = timeout_seconds
        self._actors: list[_RayActor | None] = [None] * actors

    def set_up(self, actor: int, recipe: bytes) -> None:
        there = self._actors[actor]
        if there is None or there.hangs:
            there = self._actors[actor] = _RayActor(self._make.remote(self._build), self._timeout)
        there.set_up(recipe)

    def publish(self, weights: bytes) -> Any:
        return ray.put(weights)

    def request(self, actor: int, request: bytes, weights: Any) -> None:
        self._actor(actor).request(request, weights)

    def receive(self, actor: int) -> bytes:
        return self._actor(actor).receive()

    def process_ids(self) -> list[int]:
        return [actor.place()[1] for actor in self._actors if actor is not None]

    def close(self) -> None:
        if ray.is_initialized():
            for actor in self._actors:
                if actor is not None:
                    actor.kill()
            if self._owns_connection:
                ray.shutdown()
        self._actors = [None] * len(self._actors)
        self._owns_connection = False

    def _actor(self, actor: int) -> "_RayActor":
        there = self._actors[actor]
        assert there is not None
        return there


class _RayActor:
    """One actor as the learner sees it."""

    def __init__(self, handle: Any, timeout_seconds: float) -> None:
        self._handle = handle
        self._watch = Watch(timeout_seconds)
        self._answers: deque[Any] = deque()
        self._sign: Any = None
        self._place: Any = None
        self._recipe = b""
        self._is_starting = True
        self.hangs = False

    def set_up(self, recipe: bytes) -> None:
        self._recipe = recipe
        self._is_starting = True
        self._sign = None
        self._answers.clear()
        self._answers.append(self._handle.set_up.remote(recipe))
        self._place = self._handle.place.remote()

    def request(self, request: bytes, weights: Any) -> None:
        self._answers.append(self._handle.answer.remote(request, weights))

    def receive(self) -> bytes:
        """The next answer, checking for signs of life meanwhile."""
        self._watch.begin(START_SECONDS if self._is_starting else 0.0)
        self._sign = None
        try:
            answer = self._set_up_answer() if self._is_starting else self._next_answer()
            self._is_starting = False
            return answer
        except ActorLost:
            self.hangs = True
            self.kill()
            raise
        except RayActorError as error:
            raise ActorLost("has ended") from error

    def _set_up_answer(self) -> bytes:
        """The first answer. While Ray is still starting the actor again, it refuses every call at once."""
        while True:
            try:
                return self._next_answer()
            except ActorUnavailableError:
                self._watch.validate_responding()
                time.sleep(CHECK_SECONDS)
                self.set_up(self._recipe)

    def _next_answer(self) -> bytes:
        while not ray.wait([self._answers[0]], timeout=CHECK_SECONDS)[0]:
            self._look_for_sign()
            self._watch.validate_responding()
        return ray.get(self._answers.popleft())

    def _look_for_sign(self) -> None:
        if self._sign is None:
            self._sign = self._handle.sign_of_life.remote()
        if ray.wait([self._sign], timeout=0)[0]:
            progress, working = ray.get(self._sign)
            self._sign = None
            self._watch.hear(progress, working=working)

    def place(self) -> tuple[str, int]:
        return ray.get(self._place, timeout=CONNECT_SECONDS)

    def kill(self) -> None:
        """End it for good. Ray asks a process to end, but a suspended one does not react."""
        ray.kill(self._handle, no_restart=True)
        with contextlib.suppress(RayError, GetTimeoutError, ProcessLookupError):
            host, process_id = ray.get(self._place, timeout=CHECK_SECONDS)
            if self.hangs and host == socket.gethostname():
                os.kill(process_id, signal.SIGKILL)
