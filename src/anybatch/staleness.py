"""Data that waits before it is trained on: a queue of whole iterations, as in arXiv:2110.00641, §5.1."""

from collections import deque
from dataclasses import dataclass

from torch import Tensor

from anybatch.errors import ConfigError
from anybatch.rollout import Rollout
from anybatch.runs.memory import available_bytes, readable


@dataclass(frozen=True)
class Delayed:
    """A rollout, and how far the run was when it was collected."""

    rollout: Rollout
    iteration: int
    gradient_steps: int

    @property
    def name(self) -> str:
        return f"iteration_{self.iteration:09d}"


class DelayQueue:
    """Hands out the rollout of `delay` iterations ago. With a delay of 0 that is the fresh one."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self._waiting: deque[Delayed] = deque()

    def exchange(self, fresh: Rollout, *, iteration: int, gradient_steps: int) -> Delayed | None:
        """Put in this iteration's rollout, take out the one that is due; None while the queue fills."""
        self._waiting.append(Delayed(fresh, iteration, gradient_steps))
        return self._waiting.popleft() if len(self._waiting) > self.delay else None

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return {waiting.name: waiting.rollout.tensors() for waiting in self._waiting}

    def state_dict(self) -> dict[str, object]:
        return {"waiting": [[waiting.iteration, waiting.gradient_steps] for waiting in self._waiting]}

    def load_state_dict(self, state: dict, segments: dict[str, dict[str, Tensor]]) -> None:
        self._waiting.clear()
        for iteration, gradient_steps in state["waiting"]:
            segment = segments[f"iteration_{iteration:09d}"]
            self._waiting.append(Delayed(Rollout.from_tensors(segment), iteration, gradient_steps))


def refuse_beyond_memory(delay: int, rollout_bytes: int) -> None:
    """Before anything is computed: a queue that cannot fit would end the run after hours."""
    needed, there = (delay + 1) * rollout_bytes, available_bytes()
    if needed > there:
        raise ConfigError(
            f"staleness.iterations = {delay} keeps {delay + 1} rollouts of {readable(rollout_bytes)}, "
            f"{readable(needed)} in all; {readable(there)} of memory are available"
        )
