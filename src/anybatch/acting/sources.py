"""Data that waits before it is trained on: a queue of whole iterations, as in arXiv:2110.00641, §5.1."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from anybatch.acting.rollout import Rollout
from anybatch.errors import ConfigError
from anybatch.machine import available_bytes, readable


@dataclass(frozen=True)
class Delayed:
    """A rollout, and how far the run was when it was collected."""

    rollout: Rollout
    iteration: int
    gradient_steps: int

    @property
    def name(self) -> str:
        return segment_name(self.iteration)


def segment_name(iteration: int) -> str:
    """Of the file that keeps the rollout of an iteration for as long as it waits."""
    return f"iteration_{iteration:09d}"


class DelayQueue:
    """Hands out the rollout of `delay` iterations ago. With a delay of 0 that is the fresh one."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self._waiting: deque[Delayed] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def exchange(self, fresh: Rollout, *, iteration: int, gradient_steps: int) -> Delayed | None:
        """Put in this iteration's rollout, take out the one that is due; None while the queue fills."""
        self._waiting.append(Delayed(fresh, iteration, gradient_steps))
        return self._waiting.popleft() if len(self._waiting) > self.delay else None

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return {waiting.name: waiting.rollout.tensors() for waiting in self._waiting}

    def state_dict(self) -> dict[str, object]:
        return {"waiting": [[waiting.iteration, waiting.gradient_steps] for waiting in self._waiting]}

    def load_state_dict(
        self,
        state: dict,
        segments: Mapping[str, dict[str, Tensor]],
        *,
        num_envs: int,
        num_steps: int | None,
        say: Callable[[str], None],
    ) -> None:
        """Take back what waited, as far as it fits the envs, the length and the delay of this run.

        `num_steps` is None where rollouts may differ in length.
        """
        self._waiting.clear()
        for iteration, gradient_steps in state["waiting"]:
            rollout = Rollout.from_tensors(segments[segment_name(iteration)])
            steps, envs = rollout.valid.shape
            if envs != num_envs or steps != (num_steps or steps):
                say("The batch has another shape than the data that wait: the queue is filled anew.")
                self._waiting.clear()
                return
            self._waiting.append(Delayed(rollout, iteration, gradient_steps))
        surplus = len(self._waiting) - self.delay
        if surplus > 0:
            say(f"staleness.iterations is {self.delay} now: the {surplus} oldest that waited are left out.")
            for _ in range(surplus):
                self._waiting.popleft()


def rollouts_in_memory(delay: int) -> int:
    """Those that wait, the one being collected, and the one trained on before it."""
    return delay + 2


def refuse_rollouts_beyond_memory(delay: int, rollout_bytes: int) -> None:
    """Before anything is computed: what cannot fit would end the run later, a queue perhaps after hours."""
    number = rollouts_in_memory(delay)
    needed, there = number * rollout_bytes, available_bytes()
    if needed > there:
        cause = f"staleness.iterations = {delay} needs" if delay else "num-envs and num-steps need"
        raise ConfigError(
            f"{cause} {number} rollouts of {readable(rollout_bytes)} in memory, "
            f"{readable(needed)} in all; {readable(there)} are available"
        )
