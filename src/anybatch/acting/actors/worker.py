"""The work of an actor: receive weights, collect a rollout with them, and return the state after it.

Errors of its environments and networks are answers too, which the learner raises.
"""

import time
import traceback
from typing import Any

from anybatch import errors
from anybatch.acting.collector import Collector
from anybatch.acting.rollout import Origin
from anybatch.backends import Actor, TorchActing
from anybatch.errors import UserError, note_own_line
from anybatch.storage import state_tree


class ActorWorker:
    """One shard of the environments, and its own network to act with."""

    def __init__(self, collector: Collector, network: Actor) -> None:
        self.collector = collector
        self.network = network
        self._acting, self._in_torch = collector.acting, TorchActing(collector.device)
        self._rollouts = 0

    @property
    def progress(self) -> tuple[int, int]:
        """Changes with every step of the environments."""
        return self._rollouts, self.collector.episodes.steps

    def first_answer(self) -> bytes:
        """The state before the first request."""
        return state_tree.pack({"state": self.state_dict()})

    def answer(self, request: bytes, weights: bytes) -> bytes:
        """Collect the requested rollout, and answer with it and the state after it."""
        asked = state_tree.unpack(request)
        if asked["state"] is not None:
            self._restore(asked["state"])
        answer: dict[str, Any] = {"origin": asked["origin"], "seconds": 0.0, "rollout": None}
        if asked["num_steps"]:
            started = time.perf_counter()
            self._load(state_tree.unpack(weights), asked)
            rollout = self.collector.collect(self.network, asked["num_steps"], Origin(*asked["origin"]))
            answer["rollout"] = rollout.tensors()
            answer["seconds"] = time.perf_counter() - started
            self._rollouts += 1
        return state_tree.pack(answer | {"state": self.state_dict()})

    def state_dict(self) -> dict[str, Any]:
        normalizer = self.collector.normalizer
        return {
            "collector": self.collector.state_dict(),
            "normalizer": None if normalizer is None else normalizer.state_dict(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        # First, since the first observations of fresh episodes are normalized with these statistics.
        if self.collector.normalizer is not None and state["normalizer"] is not None:
            self.collector.normalizer.load_state_dict(state["normalizer"])
        self.collector.load_state_dict(state["collector"])

    def _load(self, weights: dict[str, Any], asked: dict[str, Any]) -> None:
        self.network.load_state_dict(weights)  # in place, where native code reads them
        self.network.epsilon = asked["epsilon"]
        self.collector.acting = self._acting if asked["native"] else self._in_torch


class ActorFailed(Exception):
    """An actor's environment or network raised an error, which a retry would raise again."""


def packed_error(error: Exception) -> bytes:
    """An answer that raises an actor's error in the learner."""
    if not getattr(error, "__notes__", ()):  # those of environments have been noted
        note_own_line(error)
    name = type(error).__name__ if isinstance(error, UserError) else None
    return state_tree.pack({"error": str(error), "name": name, "trace": traceback.format_exc()})


def raise_if_error(answer: dict[str, Any]) -> None:
    """Raise what `packed_error` packed: our own errors unchanged, any other with its traceback."""
    if "error" not in answer:
        return
    if answer["name"] is not None:
        raise getattr(errors, answer["name"], UserError)(answer["error"])
    raise ActorFailed(f"an environment or a network failed in an actor:\n{answer['trace']}")
