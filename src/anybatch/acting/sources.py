"""The sources of a loop's data. The loop asks for a rollout to train on; only the source knows how it was
collected.

Rollout i acts with the weights after i iterations, and iteration i trains on rollout i - K; K is the lag.
Everything that iteration i counts and decides comes from the rollouts up to that one, so that a source that
collects while the loop learns gives the same run as one that collects first and lets its data wait in a queue
(arXiv:2110.00641, §5.1). Fresh data is a queue of length 0.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from anybatch.acting.collector import Collector
from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.acting.rollout import Origin, Rollout
from anybatch.backends import Actor
from anybatch.envs.episodes import EPISODES
from anybatch.envs.protocol import Actions, BoxActions, DiscreteActions, EnvSpec, InfoEnv
from anybatch.errors import CheckpointError, ConfigError
from anybatch.machine import available_bytes
from anybatch.runs.metrics import CUSTOM
from anybatch.storage.state_fit import validate_fit
from anybatch.text import readable

logger = logging.getLogger(__name__)

Segments = Mapping[str, dict[str, Tensor]]


class Source(Protocol):
    """Provides the data of a loop."""

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """The observation normalizer after the newest rollout."""
        ...

    def next(self, network: Actor, num_steps: int, origin: Origin) -> Rollout | None:
        """Collect `num_steps` of every env, now or in parallel, and return the rollout to train on.

        None until the first rollout is due. `origin` is the learner's progress.
        """
        ...

    def example(self, num_steps: int) -> Rollout:
        """A rollout of this length without data: its parts, shapes and types."""
        ...

    def metrics(self) -> dict[str, float | None]:
        """Metrics of collection since the last call."""
        ...

    def segments(self) -> dict[str, dict[str, Tensor]]:
        """Collected data that has not been trained on, each rollout in its own file."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def drop_episodes_of_another_engine(self, saved: dict[str, Any]) -> None:
        """Remove from a saved state the episodes in progress that this run's engine cannot continue."""
        ...

    def load_state_dict(self, state: dict[str, Any], segments: Segments, *, num_steps: int | None) -> bool:
        """Continue from `state`. Returns whether the episodes in progress were restored.

        `num_steps` is the length of this run's rollouts, None if they may differ in length.
        """
        ...

    def close(self) -> None:
        """End collection. The environments of this process are closed by whoever made them."""
        ...


class QueueSource:
    """Collects in this process; every rollout waits `delay` iterations before it is trained on."""

    def __init__(self, collector: Collector, delay: int = 0) -> None:
        self.collector = collector
        self.waiting = WaitingRollouts(delay)
        self._info_env = collector.env if isinstance(collector.env, InfoEnv) else None

    @property
    def spec(self) -> EnvSpec:
        return self.collector.env.spec

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        return self.collector.normalizer

    def next(self, network: Actor, num_steps: int, origin: Origin) -> Rollout | None:
        self.waiting.add(self.collector.collect(network, num_steps, origin))
        return self.waiting.take_due()

    def example(self, num_steps: int) -> Rollout:
        return self.collector.example(num_steps)

    def metrics(self) -> dict[str, float | None]:
        means = self._info_env.take_info_means() if self._info_env is not None else {}
        return {f"{CUSTOM}{name}": mean for name, mean in means.items()}

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return self.waiting.segments()

    def state_dict(self) -> dict[str, Any]:
        return {"collector": self.collector.state_dict(), "waiting": self.waiting.origins()}

    def drop_episodes_of_another_engine(self, saved: dict[str, Any]) -> None:
        self.collector.drop_episodes_of_another_engine(saved["collector"])

    def load_state_dict(self, state: dict[str, Any], segments: Segments, *, num_steps: int | None) -> bool:
        self.waiting.restore(state["waiting"], segments, self, num_steps=num_steps)
        return self.collector.load_state_dict(state["collector"])

    def close(self) -> None:
        pass


class WaitingRollouts:
    """Rollouts waiting to be trained on, the oldest first."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self._rollouts: deque[Rollout] = deque()

    def __len__(self) -> int:
        return len(self._rollouts)

    def add(self, rollout: Rollout) -> None:
        self._rollouts.append(rollout)

    def take_due(self, on_their_way: int = 0) -> Rollout | None:
        """The oldest rollout, if there are more than `delay`, counting those `on_their_way`."""
        is_due = len(self._rollouts) + on_their_way > self.delay
        return self._rollouts.popleft() if is_due else None

    def segments(self) -> dict[str, dict[str, Tensor]]:
        return {segment_name(rollout.origin.iteration): rollout.tensors() for rollout in self._rollouts}

    def origins(self) -> list[list[int]]:
        return [list(rollout.origin) for rollout in self._rollouts]

    def restore(
        self, origins: list[list[int]], segments: Segments, source: Source, *, num_steps: int | None
    ) -> None:
        """Use the saved rollouts, as far as they fit the envs, the length and the delay of this run."""
        self._rollouts.clear()
        surplus = max(0, len(origins) - self.delay)
        if surplus:
            oldest = f"{surplus} oldest waiting rollouts are" if surplus > 1 else "oldest waiting rollout is"
            logger.info(f"staleness.iterations is now {self.delay}: the {oldest} dropped.")
        for origin in origins[surplus:]:
            tensors = segments[segment_name(origin[0])]
            rollout = Rollout.from_tensors(tensors, Origin(*origin))
            steps, envs = rollout.valid.shape
            if envs != source.spec.num_envs or steps != (num_steps or steps):
                logger.info(
                    "The waiting data has another shape than this run's batch: the queue is filled again."
                )
                self._rollouts.clear()
                return
            validate_segment(tensors, source.example(steps).tensors(), segment_name(origin[0]))
            validate_actions(rollout.action, source.spec.actions, segment_name(origin[0]))
            self.add(rollout)


def validate_segment(tensors: dict[str, Tensor], like: dict[str, Tensor], name: str) -> None:
    """Refuse a segment whose parts are not those of a rollout; the number of episodes may differ."""
    tensors, like = dict(tensors), dict(like)
    validate_fit(tensors.pop(EPISODES), like.pop(EPISODES), f"{name}/{EPISODES}", any_length=True)
    validate_fit(tensors, like, name, finite=False)


def validate_actions(action: Tensor, actions: Actions, name: str) -> None:
    """Refuse actions that are not among those of the env: they index memory when a run learns from them."""
    if isinstance(actions, BoxActions):
        return
    counts = actions.count if isinstance(actions, DiscreteActions) else torch.tensor(actions.counts)
    if ((action < 0) | (action >= counts)).any():
        raise CheckpointError(f"{name}: an action is not one of {actions}")


def segment_name(iteration: int) -> str:
    """The name of the file that holds an iteration's rollout while it waits."""
    return f"iteration_{iteration:09d}"


def rollouts_in_memory(delay: int) -> int:
    """The number of rollouts that are waiting, being collected, or being trained on."""
    return delay + 2


def validate_queue_memory(delay: int, rollout_bytes: int) -> None:
    """Refuse a queue that does not fit into memory, which would end the run after hours."""
    number = rollouts_in_memory(delay)
    needed, there = number * rollout_bytes, available_bytes()
    if needed > there:
        cause = f"staleness.iterations = {delay} needs" if delay else "num-envs and num-steps need"
        raise ConfigError(
            f"{cause} {number} rollouts of {readable(rollout_bytes)} in memory, "
            f"{readable(needed)} in all; {readable(there)} are available"
        )
