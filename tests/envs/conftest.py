"""Making environments, and reading the transitions out of them that a learner would see."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs.protocol import DiscreteActions, MultiDiscreteActions, VectorEnv

Make = Callable[..., VectorEnv]


class Transition(NamedTuple):
    obs: list[float]
    reward: float
    terminated: bool
    truncated: bool
    next_obs: list[float]


def _action(env: VectorEnv, decisions: list[int]) -> np.ndarray:
    """A fixed irregular sequence per env, by the number of decisions it has taken."""
    chosen = [(3 * n * n + 5 * n + i) % 7 for i, n in enumerate(decisions)]
    if isinstance(env.spec.actions, DiscreteActions):
        return np.array([number % env.spec.actions.count for number in chosen])
    if isinstance(env.spec.actions, MultiDiscreteActions):
        return np.array([[number % count for count in env.spec.actions.counts] for number in chosen])
    return np.outer(np.array(chosen) / 3 - 1, np.ones(len(env.spec.actions.low))).astype(np.float32)


def valid_transitions(env: VectorEnv, count: int) -> list[list[Transition]]:
    """The first `count` transitions of each env, whichever way it resets."""
    obs = env.reset()
    collected: list[list[Transition]] = [[] for _ in obs]
    while min(map(len, collected)) < count:
        step = env.step(_action(env, [len(part) for part in collected]))
        successor = step.obs if step.final_obs is None else step.final_obs
        done = step.terminated | step.truncated
        for i in np.flatnonzero(step.valid):
            next_obs = successor[i] if done[i] else step.obs[i]
            collected[i].append(
                Transition(
                    obs[i].tolist(),
                    float(step.reward[i]),
                    bool(step.terminated[i]),
                    bool(step.truncated[i]),
                    next_obs.tolist(),
                )
            )
        obs = step.obs
    return [part[:count] for part in collected]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """`envs.make` with config fields as keywords. `custom_envs:…` can be imported; all envs get closed."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "support"))
    made: list[VectorEnv] = []

    def make_env(env_id: str, seeds: Sequence[int] = (5, 11, 17), **config: Any) -> VectorEnv:
        made.append(envs.make(env_id, EnvConfig(**config), seeds=seeds))
        return made[-1]

    yield make_env
    for env in made:
        env.close()


@pytest.fixture(scope="session")
def transitions() -> Callable[[VectorEnv, int], list[list[Transition]]]:
    return valid_transitions
