"""Our games beside the original's, the package minatar: every step, from states that both are put into."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from drawn_minatar import DRAWS, Game, crowded_seaquest
from original_minatar import Original, Outcome, Row, Stream

from anybatch import envs
from anybatch.config import EnvConfig
from anybatch.envs.minatar import GAMES
from anybatch.envs.protocol import RestorableEnv

SEEDS = (11, 12, 13)
N = len(SEEDS)

every_game = pytest.mark.parametrize("name", GAMES)


class Seen(NamedTuple):
    """What a step or a start of ours came to."""

    reward: float
    terminated: bool
    obs: np.ndarray
    game: Row | None
    """None at the end of an episode, when the next has begun."""

    def differences(self, outcome: Outcome) -> list[str]:
        found = [] if np.array_equal(self.obs, outcome.obs) else ["observation"]
        found += [] if self.reward == outcome.reward else [f"reward {self.reward}, not {outcome.reward}"]
        found += [] if self.terminated == outcome.terminated else [f"terminated {self.terminated}"]
        if self.game is not None:
            for field, array in outcome.original.row(self.game).items():
                if not np.array_equal(self.game[field], array):
                    found.append(f"{field} {self.game[field].tolist()}, not {array.tolist()}")
        return found

    def agrees(self, outcome: Outcome) -> bool:
        return np.array_equal(self.obs, outcome.obs) and not self.differences(outcome)


class Pair:
    """Our envs of a game, and the original."""

    def __init__(self, name: str, *, sticky: float = 0.0, edges: Sequence[float] = (0.0, 0.5)) -> None:
        env = envs.make(f"minatar:{name}", EnvConfig(sticky=sticky), seeds=SEEDS)
        assert isinstance(env, RestorableEnv)
        self.env = env
        self.env.reset()
        self.original = Original(name, sticky=sticky, edges=edges)

    def game(self) -> Game:
        """The original's fields, with an underscore before."""
        state = self.env.state_dict()
        others = {"_last_action": state["last_action"], "_terminal": np.zeros(N, dtype=np.bool_)}
        return {f"_{name}": array for name, array in state["game"].items()} | others

    def rows(self) -> list[Row]:
        """The fields that both have, env by env."""
        game = self.game()
        return [
            {field: game[field][i] for field in (*self.original.fields, "_last_action")} for i in range(N)
        ]

    def put(self, fields: Game) -> None:
        """Change some fields of our games; the random streams continue."""
        state = self.env.state_dict()
        for field, array in fields.items():
            name = field[1:]
            part = state if name in state else state["game"]
            if name in part:  # ours has no field for a game that is over
                part[name] = array
        self.env.load_state_dict(state)

    def random_actions(self, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(len(self.original.actions), size=N)

    def compare_step(self, action: np.ndarray) -> int:
        """Assert that the original can make the same step from the same state. Returns the number of ends."""
        before = self.rows()
        step = self.env.step(action)
        after = self.rows()
        for i in range(N):
            ended, drawn = bool(step.terminated[i]), cars(step.final_obs[i])
            seen = Seen(step.reward[i], ended, step.final_obs[i], None if ended else after[i])
            if not any(map(seen.agrees, self.original.steps(before[i], int(action[i]), drawn))):
                others = map(seen.differences, self.original.steps(before[i], int(action[i]), drawn))
                pytest.fail(f"{min(others, key=len)} after action {action[i]} in {before[i]}")
            if ended:
                first = Seen(0.0, False, step.obs[i], after[i])
                assert any(map(first.agrees, self.original.starts(cars(step.obs[i]))))
        return int(step.terminated.sum())


def cars(obs: np.ndarray) -> np.ndarray | None:
    """What Freeway has drawn, speed times direction, read from where the cars and their trails are."""
    if len(obs) != 7:
        return None
    car, trails = obs[1, 1:9], obs[2:, 1:9]
    speed = 1 + trails.any(axis=2).argmax(axis=0)
    heads_right = (car.argmax(axis=1) - trails.any(axis=0).argmax(axis=1)) % 10 == 1
    return np.where(heads_right, speed, -speed)


@every_game
def test_whole_episodes_are_those_of_the_original_with_the_same_random_numbers(name: str):
    """Our games draw in the original's order."""
    env = envs.make(f"minatar:{name}", EnvConfig(sticky=0.1), seeds=SEEDS)
    assert isinstance(env, RestorableEnv)
    originals = [Stream(int(seed)).play(name, sticky=0.1) for seed in env.state_dict()["seed"]]
    assert np.array_equal(env.reset(), [original.reset() for original in originals])
    rng, ends = np.random.default_rng(4), 0
    for _ in range(3000):
        actions = rng.integers(env.spec.action_width, size=N)
        step = env.step(actions)
        assert step.final_obs is not None
        for i, original in enumerate(originals):
            reward, terminated = original.act(int(actions[i]))
            assert (step.reward[i], step.terminated[i]) == (reward, terminated)
            assert np.array_equal(step.final_obs[i], original.obs())
            if terminated:
                ends += 1
                assert np.array_equal(step.obs[i], original.reset())
    assert ends > 100 or (name == "Freeway" and ends == N)  # whose episodes have 2,501 steps


@every_game
def test_steps_from_anywhere_are_those_of_the_original_and_leave_out_no_rule(name: str):
    pair, rng = Pair(name), np.random.default_rng(2)
    for _ in range(60):
        pair.put(DRAWS[name](pair.game(), rng))
        for step in range(30):
            # The sea fills before those at the surface go down.
            waits = name == "Seaquest" and step < 15
            pair.compare_step(np.zeros(N, dtype=int) if waits else pair.random_actions(rng))
    # A game that is over is not played on, and there is always an alien.
    assert pair.original.lines_not_run() <= {"return r, self.terminal", "return None"}


def test_steps_in_a_crowd_are_those_of_the_original():
    """Who of several is hit or comes aboard, and who still shoots."""
    pair, rng = Pair("Seaquest"), np.random.default_rng(3)
    for _ in range(500):
        pair.put(crowded_seaquest(pair.game(), rng))
        for _ in range(2):
            pair.compare_step(pair.random_actions(rng))


def test_the_fullest_sea_has_room():
    """An enemy in every step at the fastest speed, the eldest about to leave: fish, submarines, and both."""
    pair = Pair("Seaquest")
    age = np.arange(28, -1, -1)
    fish = np.stack([(age + 1) // 3, 1 + age % 8, np.ones(29, int), np.array([1, 0, 2])[age % 3]], axis=1)
    subs = np.column_stack([fish, 10 - (age + 1) % 11])
    game = pair.game()
    game["_e_fish"][0, :29], game["_e_subs"][1, :29] = fish, subs
    game["_e_fish"][2, :15], game["_e_subs"][2, :14] = fish[::2], subs[1::2]
    pair.put(
        game | {"_e_spawn_timer": np.zeros(N), "_e_spawn_speed": np.ones(N), "_move_speed": np.full(N, 2)}
    )
    for _ in range(30):
        pair.compare_step(np.zeros(N, dtype=int))  # at the surface, where nothing hits


ABOUT_TO_DRAW = {
    "Asterix": {"_spawn_timer": 0, "_entities": [[99] * 4] * 3 + [[4, 4, 1, 0]] + [[99] * 4] * 4},
    "Seaquest": {"_e_spawn_timer": 0, "_d_spawn_timer": 0, "_e_fish": [[4, 3, 1, 2]] + [[-1] * 4] * 29},
}


@pytest.mark.parametrize("name", ABOUT_TO_DRAW)
def test_newcomers_are_as_likely_as_in_the_original(name: str):
    pair = Pair(name, edges=(0, 1 / 3, 1 / 2))
    start = pair.rows()[0] | {field: np.array(value) for field, value in ABOUT_TO_DRAW[name].items()}
    expected = likelihoods(pair.original.steps(start, 0), start)
    assert_as_likely(expected, outcomes(pair, start, action=0, steps=3 * len(expected)))


@every_game
def test_sticky_actions_are_as_likely_as_in_the_original(name: str):
    """The second action that moves something is asked for; the last one was the first of them."""
    pair = Pair(name, sticky=0.25, edges=(0, 1 / 4))
    start = pair.rows()[0] | {"_last_action": np.array(pair.original.actions[1])}
    if name == "Freeway":
        start |= {"_move_timer": np.array(0), "_pos": np.array(5)}
    expected = likelihoods(pair.original.steps(start, 2), start)
    assert sorted(expected.values()) == [0.25, 0.75]
    assert_as_likely(expected, outcomes(pair, start, action=2, steps=200))


@pytest.mark.parametrize("name", sorted(GAMES.keys() - {"Freeway"}))
def test_starts_are_as_likely_as_in_the_original(name: str):
    pair = Pair(name)
    expected = likelihoods(pair.original.starts(), pair.rows()[0])
    seen: Counter[bytes] = Counter()
    for _ in range(100):
        pair.env.reset()
        seen.update(map(fingerprint, pair.rows()))
    assert len(expected) == (2 if name == "Breakout" else 1)
    assert_as_likely(expected, seen)


@pytest.mark.parametrize("occasion", ["start", "top"])
def test_cars_are_as_likely_as_in_the_original(occasion: str):
    """In each lane all speeds in both directions are equally likely, whatever the neighbor's."""
    pair, lanes = Pair("Freeway"), []
    for _ in range(400):
        if occasion == "start":
            shown = pair.env.reset()
        else:
            pair.put({"_pos": np.ones(N), "_move_timer": np.zeros(N)})
            shown = pair.env.step(np.ones(N, dtype=int)).obs
        lanes += [cars(obs) for obs in shown]
    speeds = [-5, -4, -3, -2, -1, 1, 2, 3, 4, 5]
    drawn = np.stack(lanes).T.tolist()
    for lane in range(8):
        assert_as_likely(dict.fromkeys(speeds, 1 / 10), Counter(drawn[lane]))
        pairs = Counter(zip(drawn[lane], drawn[lane - 1], strict=True))
        assert_as_likely({(one, other): 1 / 100 for one in speeds for other in speeds}, pairs)


def fingerprint(row: Row) -> bytes:
    return b"".join(row[field].astype(float).tobytes() for field in sorted(row))


def likelihoods(found: Iterable[Outcome], like: Row) -> dict[bytes, float]:
    """The probability of each state that there is among outcomes."""
    shares: dict[bytes, float] = {}
    for outcome in found:
        state = fingerprint(outcome.original.row(like))
        shares[state] = shares.get(state, 0) + outcome.probability
    assert math.isclose(sum(shares.values()), 1)
    return shares


def outcomes(pair: Pair, start: Row, *, action: int, steps: int) -> Counter[bytes]:
    """How often our envs came to which state, always from the same."""
    seen: Counter[bytes] = Counter()
    for _ in range(steps):
        pair.put({field: np.stack([array] * N) for field, array in start.items()})
        pair.env.step(np.full(N, action))
        seen.update(map(fingerprint, pair.rows()))
    return seen


def assert_as_likely(expected: dict[Any, float], seen: Counter[Any]) -> None:
    """By Pearson's χ², which may lie five standard deviations above its mean."""
    assert seen.keys() <= expected.keys()
    freedom, total = len(expected) - 1, seen.total()
    statistic = sum((seen[key] - total * share) ** 2 / (total * share) for key, share in expected.items())
    assert statistic <= freedom + 5 * math.sqrt(2 * freedom)
