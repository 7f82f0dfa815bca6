"""Data from actors, as a loop sees it: rollout i acts with version i, and is handed over K iterations later.

Actors that are ahead wait for weights, a learner that is ahead waits for data, and nothing is discarded. A
request is kept with its weights until it is answered, and so is the actor's state after its last answer: a
lost actor is restarted from there and collects the same rollout again.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from anybatch.acting.actors import shards
from anybatch.acting.actors.transport import ActorLost, Transport
from anybatch.acting.actors.worker import raise_if_error
from anybatch.acting.collector import drop_episodes_unlike, example_rollout
from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.acting.rollout import Origin, Rollout
from anybatch.acting.sources import Segments, WaitingRollouts
from anybatch.backends import Actor
from anybatch.distributed.shard import Shard
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import TrainingError
from anybatch.storage import state_tree

logger = logging.getLogger(__name__)

MOST_LOSSES = 5
"""How often an actor is restarted for the same answer."""
NO_WEIGHTS = state_tree.pack({})

Recipe = Callable[[Shard, int], dict[str, Any]]
"""`recipe(shard, env_steps)`: what an actor builds. Env seeds depend on the env steps done."""


@dataclass(frozen=True)
class Job:
    """A request to an actor."""

    num_steps: int
    """0: only set a state to continue from, and collect nothing."""
    origin: Origin
    epsilon: float | None
    native: bool
    weights: Any
    """The weights, as published by the transport."""
    state: dict[str, Any] | None = None
    """State to continue from, if not the actor's current one."""

    def packed(self) -> bytes:
        return state_tree.pack(
            {
                "num_steps": self.num_steps,
                "origin": list(self.origin),
                "epsilon": self.epsilon,
                "native": self.native,
                "state": self.state,
            }
        )


class ActorPool:
    """Actors before their first request: their environments and first states are known."""

    def __init__(
        self,
        transport: Transport,
        spec: EnvSpec,
        shard: Shard,
        actors: int,
        recipe: Recipe,
        *,
        env_steps: int,
    ) -> None:
        """`spec` describes the envs of `shard`, which the actors divide among themselves."""
        self.transport, self.spec = transport, spec
        self.env_steps = env_steps
        """Env steps of all rollouts so far: they decide the seeds of a restarted actor."""
        self.shards = shards.shares(shard, actors)
        self.recipe = recipe
        self.restarts = 0
        self.states: list[dict[str, Any]] = []
        self.jobs: list[deque[Job]] = [deque() for _ in self.shards]
        try:
            for actor in range(actors):
                self._set_up(actor)
            self.states = [self._answer(actor)["state"] for actor in range(actors)]
        except BaseException:
            transport.close()
            raise

    def submit(self, actor: int, job: Job) -> None:
        self.jobs[actor].append(job)
        self.transport.request(actor, job.packed(), job.weights)

    def receive(self, actor: int) -> dict[str, Any]:
        """The answer to the oldest job of an actor, which is restarted as often as necessary."""
        answer = self._answer(actor)
        job = self.jobs[actor].popleft()
        assert answer["origin"] == list(job.origin)
        self.states[actor] = answer["state"]
        return answer

    def _answer(self, actor: int) -> dict[str, Any]:
        """An actor's next answer; the first, before any job, is its state."""
        is_lost = False
        for _ in range(MOST_LOSSES):
            try:
                if is_lost:
                    self._start_again(actor)
                return self._received(actor)
            except ActorLost as lost:
                jobs = self.jobs[actor]
                task = f"collects rollout {jobs[0].origin.iteration}" if jobs else "builds its environments"
                logger.warning(f"Actor {actor} {lost}: it is restarted, and {task} again.")
                is_lost = True
        if not self.jobs[actor]:
            raise TrainingError(f"actor {actor} was lost {MOST_LOSSES} times while it built its environments")
        raise TrainingError(
            f"actor {actor} was lost {MOST_LOSSES} times in the same rollout; `anybatch resume` continues "
            "from the newest checkpoint"
        )

    def _received(self, actor: int) -> dict[str, Any]:
        answer = state_tree.unpack(self.transport.receive(actor))
        raise_if_error(answer)
        return answer

    def _set_up(self, actor: int) -> None:
        self.transport.set_up(actor, state_tree.pack(self.recipe(self.shards[actor], self.env_steps)))

    def _start_again(self, actor: int) -> None:
        """Restart a lost actor from its state after its last answer, with all open requests."""
        self.restarts += 1
        self._set_up(actor)
        if not self.jobs[actor]:
            return
        self._received(actor)  # its first state, which the saved one replaces
        first, *rest = self.jobs[actor]
        for job in (replace(first, state=first.state or self.states[actor]), *rest):
            self.transport.request(actor, job.packed(), job.weights)


class ActorSource:
    """Lets actors collect while the loop learns; every rollout is handed over `delay` iterations later."""

    def __init__(
        self,
        pool: ActorPool,
        delay: int,
        *,
        normalizer: ObservationNormalizer | None,
        native: bool,
        dtype: torch.dtype,
    ) -> None:
        self.pool = pool
        self.waiting = WaitingRollouts(delay)
        self._normalizer = normalizer
        self._native = native
        self._dtype = dtype
        self._pending = 0
        """Rollouts that were requested and have not been received from the actors."""
        self._since = time.perf_counter()
        self._waited = self._busy = 0.0

    @property
    def spec(self) -> EnvSpec:
        return self.pool.spec

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        if self._normalizer is not None:
            self._finish_pending()
        return self._normalizer

    def next(self, network: Actor, num_steps: int, origin: Origin) -> Rollout | None:
        job = Job(
            num_steps,
            origin,
            network.epsilon,
            self._native,
            self.pool.transport.publish(state_tree.pack(dict(network.state_dict()))),
        )
        for actor in range(len(self.pool.shards)):
            self.pool.submit(actor, job)
        self._pending += 1
        if len(self.waiting) == 0 and self._pending > self.waiting.delay:
            self._finish_one()
        return self.waiting.take_due(self._pending)

    def _finish_one(self) -> None:
        """Wait for the oldest rollout that the actors are collecting."""
        started = time.perf_counter()
        answers = [self.pool.receive(actor) for actor in range(len(self.pool.shards))]
        self._waited += time.perf_counter() - started
        self._busy += sum(answer["seconds"] for answer in answers)
        parts = [Rollout.from_tensors(answer["rollout"], Origin(*answer["origin"])) for answer in answers]
        rollout = shards.joined_rollout(parts, [shard.first - self._first_env for shard in self.pool.shards])
        self._take_normalizer()
        self.pool.env_steps += rollout.num_valid
        self._pending -= 1
        self.waiting.add(rollout)

    @property
    def _first_env(self) -> int:
        return self.pool.shards[0].first

    def _finish_pending(self) -> None:
        while self._pending:
            self._finish_one()

    def _take_normalizer(self) -> None:
        state = self.pool.states[0]["normalizer"]
        if self._normalizer is not None and state is not None:
            self._normalizer.load_state_dict(state)

    def example(self, num_steps: int) -> Rollout:
        return example_rollout(self.spec, num_steps, self._dtype)

    def metrics(self) -> dict[str, float | None]:
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        idle = {
            "actors/learner_idle": min(1.0, self._waited / seconds),
            "actors/idle": max(0.0, 1 - self._busy / (seconds * len(self.pool.shards))),
            "actors/restarts": self.pool.restarts,
        }
        self._waited = self._busy = 0.0
        return idle

    def segments(self) -> dict[str, dict[str, Tensor]]:
        self._finish_pending()
        return self.waiting.segments()

    def state_dict(self) -> dict[str, Any]:
        self._finish_pending()
        return {"collector": self._collector_state(), "waiting": self.waiting.origins()}

    def _collector_state(self) -> dict[str, Any]:
        return shards.joined_state([state["collector"] for state in self.pool.states])

    def drop_episodes_of_another_engine(self, saved: dict[str, Any]) -> None:
        drop_episodes_unlike(self._collector_state().get("env", {}), saved["collector"])

    def load_state_dict(self, state: dict[str, Any], segments: Segments, *, num_steps: int | None) -> bool:
        self.waiting.restore(state["waiting"], segments, self, num_steps=num_steps)
        here, saved = self._collector_state(), state["collector"]
        same_envs = saved["num_envs"] == self.pool.shards[0].total
        restorable = "env" in here and saved.get("env") is not None and same_envs
        normalizer = None if self._normalizer is None else self._normalizer.state_dict()
        for actor, shard in enumerate(self.pool.shards):
            within = replace(shard, first=shard.first - self._first_env)
            part = shards.part_of_state(saved, within, restorable=restorable)
            begin = Job(0, Origin(), None, False, NO_WEIGHTS, {"collector": part, "normalizer": normalizer})
            self.pool.submit(actor, begin)
        for actor in range(len(self.pool.shards)):
            self.pool.receive(actor)
        self._take_normalizer()
        return restorable

    def close(self) -> None:
        self.pool.transport.close()
