"""The interface that starts actors, sends them requests and returns their answers."""

import time
from typing import Any, Protocol

from anybatch.runs import pace

CHECK_SECONDS = 0.5
"""Seconds between signs of life of actors, and between the learner's checks for them."""

START_SECONDS = 30.0
"""Seconds added to the timeout until an actor has built its environments: importing torch takes a while,
during which a busy machine may get no sign of life."""


class ActorLost(Exception):
    """An actor has ended or hangs. The message completes a sentence about the actor."""


class Transport(Protocol):
    """Some actors, numbered from 0. Each answers its requests in their order."""

    def set_up(self, actor: int, recipe: bytes) -> None:
        """Start or restart an actor, and let it build what `recipe` describes. Its answer is its state."""
        ...

    def publish(self, weights: bytes) -> Any:
        """Make a version of the weights available to all actors, once."""
        ...

    def request(self, actor: int, request: bytes, weights: Any) -> None:
        """Ask an actor for a rollout with published weights."""
        ...

    def receive(self, actor: int) -> bytes:
        """An actor's next answer. Raises ActorLost if there will be none."""
        ...

    def process_ids(self) -> list[int]:
        """Process ids of the actors."""
        ...

    def close(self) -> None:
        """End all actors."""
        ...


class Watch:
    """Detects that an actor has been silent, or stuck in its work, for too long."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._progress: object = None
        self.begin()

    def begin(self, patience_seconds: float = 0.0) -> None:
        """Reset: a sign of life is expected from now on, or after some more seconds."""
        self._heard_at = self._moved_at = time.monotonic() + patience_seconds

    def hear(self, progress: object, *, working: bool) -> None:
        """Record a sign of life; `progress` changes with every step, `working` says whether it must."""
        now = time.monotonic()
        self._heard_at = max(self._heard_at, now)  # later if patience was requested
        if not working or progress != self._progress:
            self._progress, self._moved_at = progress, max(self._moved_at, now)

    def validate_responding(self) -> None:
        """Called while the learner waits."""
        pace.current().check()
        now = time.monotonic()
        if now - self._heard_at > self._timeout:
            raise ActorLost(f"gave no sign of life for {self._timeout:g} seconds")
        if now - self._moved_at > self._timeout:
            raise ActorLost(f"was stuck in one step for {self._timeout:g} seconds (--actor-timeout)")
