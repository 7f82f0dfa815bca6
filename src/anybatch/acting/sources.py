"""The sources of a loop's data. The loop asks for what to train on; how it was collected is known here only.

Fresh and delayed data are two sources. Delayed data waits in a queue of whole iterations, as in
arXiv:2110.00641, §5.1.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from anybatch.acting.collector import Actor, Collector
from anybatch.acting.rollout import Origin, Rollout
from anybatch.errors import ConfigError
from anybatch.machine import available_bytes, readable
from anybatch.runs.state_fit import refuse_unlike


class Delivery(NamedTuple):
    """What a source hands over in one iteration."""

    collected: Rollout
    """The rollout of this iteration: its env steps and episodes count now."""
    due: Rollout | None
    """The rollout to train on; None while delayed data are still on their way."""


class Source(Protocol):
    """What hands a loop its data."""

    collector: Collector

    def next(self, network: Actor, num_steps: int, origin: Origin) -> Delivery:
        """Collect `num_steps` of every env; `origin` says how far the learner is."""
        ...

    def segments(self) -> dict[str, dict[str, Tensor]]:
        """Collected data that has not been trained on, in files of its own."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(
        self,
        state: dict[str, Any],
        segments: Mapping[str, dict[str, Tensor]],
        *,
        num_steps: int | None,
        say: Callable[[str], None],
    ) -> bool:
        """Continue from `state`. Returns whether the episodes in progress were restored.

        `num_steps` is the length of this run's rollouts, None where they may differ in length.
        """
        ...


class FreshSource:
    """Every rollout is trained on in the iteration that collects it."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector

    def next(self, network: Actor, num_steps: int, origin: Origin) -> Delivery:
        rollout = self.collector.collect(network, num_steps, origin)
        return Delivery(collected=rollout, due=rollout)

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"collector": self.collector.state_dict(), "waiting": []}

    def load_state_dict(
        self,
        state: dict[str, Any],
        segments: Mapping[str, dict[str, Tensor]],
        *,
        num_steps: int | None,
        say: Callable[[str], None],
    ) -> bool:
        del segments, num_steps
        say_left_out(len(state["waiting"]), 0, say)
        return self.collector.load_state_dict(state["collector"])


class DelayedSource:
    """Every rollout waits `delay` iterations before it is trained on."""

    def __init__(self, collector: Collector, delay: int) -> None:
        self.collector = collector
        self.delay = delay
        self._waiting: deque[Rollout] = deque()

    def next(self, network: Actor, num_steps: int, origin: Origin) -> Delivery:
        rollout = self.collector.collect(network, num_steps, origin)
        self._waiting.append(rollout)
        due = self._waiting.popleft() if len(self._waiting) > self.delay else None
        return Delivery(collected=rollout, due=due)

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return {segment_name(rollout.origin.iteration): rollout.tensors() for rollout in self._waiting}

    def state_dict(self) -> dict[str, Any]:
        return {
            "collector": self.collector.state_dict(),
            "waiting": [list(rollout.origin) for rollout in self._waiting],
        }

    def load_state_dict(
        self,
        state: dict[str, Any],
        segments: Mapping[str, dict[str, Tensor]],
        *,
        num_steps: int | None,
        say: Callable[[str], None],
    ) -> bool:
        self._waiting = self._restored(state["waiting"], segments, num_steps, say)
        return self.collector.load_state_dict(state["collector"])

    def _restored(
        self,
        origins: list[list[int]],
        segments: Mapping[str, dict[str, Tensor]],
        num_steps: int | None,
        say: Callable[[str], None],
    ) -> deque[Rollout]:
        """The saved rollouts, as far as they fit the envs, the length and the delay of this run."""
        waiting: deque[Rollout] = deque()
        for origin in origins:
            tensors = segments[segment_name(origin[0])]
            rollout = Rollout.from_tensors(tensors, Origin(*origin))
            steps, envs = rollout.valid.shape
            if envs != self.collector.env.spec.num_envs or steps != (num_steps or steps):
                say("The waiting data has another shape than this run's batch: the queue is filled anew.")
                return deque()
            like = self.collector.example(steps).tensors()
            refuse_unlike(tensors, like, segment_name(origin[0]), finite=False)
            waiting.append(rollout)
        surplus = max(0, len(waiting) - self.delay)
        say_left_out(surplus, self.delay, say)
        for _ in range(surplus):
            waiting.popleft()
        return waiting


def make_source(collector: Collector, delay: int) -> FreshSource | DelayedSource:
    """The source for data that is `delay` iterations old when it is trained on."""
    return DelayedSource(collector, delay) if delay else FreshSource(collector)


def segment_name(iteration: int) -> str:
    """The name of the file that keeps the rollout of an iteration for as long as it waits."""
    return f"iteration_{iteration:09d}"


def say_left_out(surplus: int, delay: int, say: Callable[[str], None]) -> None:
    if surplus:
        say(f"staleness.iterations is now {delay}: the {surplus} oldest waiting rollouts are left out.")


def rollouts_in_memory(delay: int) -> int:
    """The number of rollouts that wait, are being collected, or are being trained on."""
    return delay + 2


def refuse_rollouts_beyond_memory(delay: int, rollout_bytes: int) -> None:
    """Refuse before anything is computed: a queue that cannot fit would end the run after hours."""
    number = rollouts_in_memory(delay)
    needed, there = number * rollout_bytes, available_bytes()
    if needed > there:
        cause = f"staleness.iterations = {delay} needs" if delay else "num-envs and num-steps need"
        raise ConfigError(
            f"{cause} {number} rollouts of {readable(rollout_bytes)} in memory, "
            f"{readable(needed)} in all; {readable(there)} are available"
        )
