"""What starts actors, brings them requests and brings back their answers."""

import time
from typing import Any, Protocol

CHECK_SECONDS = 0.5
"""How often actors give a sign of life, and how often the learner looks for it."""

START_SECONDS = 30.0
"""What an actor gets on top of the time-out until it has built its environments: importing torch takes a
while, in which a busy machine may hear nothing of it."""


class ActorLost(Exception):
    """An actor has ended or hangs. The message says how, as the rest of a sentence about it."""


class Engine(Protocol):
    """Some actors, numbered from 0. Each answers its requests in their order."""

    def set_up(self, actor: int, recipe: bytes) -> None:
        """Start an actor, or start it anew, and let it build what `recipe` says. Its answer is its state."""
        ...

    def publish(self, weights: bytes) -> Any:
        """Make a version of the weights available to all actors, once."""
        ...

    def request(self, actor: int, request: bytes, weights: Any) -> None:
        """Ask an actor for a rollout with published weights."""
        ...

    def receive(self, actor: int) -> bytes:
        """An actor's next answer. Raises ActorLost where there will be none."""
        ...

    def process_ids(self) -> list[int]:
        """Of the actors' processes."""
        ...

    def close(self) -> None:
        """End all actors."""
        ...


class Watch:
    """Tells when an actor has been silent, or has stood still in its work, for too long."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._progress: object = None
        self.begin()

    def begin(self, patience_seconds: float = 0.0) -> None:
        """Start anew: something is expected from now on, or after some more seconds."""
        self._heard_at = self._moved_at = time.monotonic() + patience_seconds

    def hear(self, progress: object, *, working: bool) -> None:
        """Take a sign of life; `progress` changes with every step, `working` says that it has to."""
        now = time.monotonic()
        self._heard_at = max(self._heard_at, now)  # later where patience was asked for
        if not working or progress != self._progress:
            self._progress, self._moved_at = progress, max(self._moved_at, now)

    def refuse_hanging(self) -> None:
        now = time.monotonic()
        if now - self._heard_at > self._timeout:
            raise ActorLost(f"gave no sign of life for {self._timeout:g} seconds")
        if now - self._moved_at > self._timeout:
            raise ActorLost(f"was stuck in one step for {self._timeout:g} seconds (--actor-timeout)")
