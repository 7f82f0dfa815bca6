"""The package minatar as the judge of our games: put into a state of ours, it tries all it could draw."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from minatar import Environment

Row = dict[str, np.ndarray]
"""One env's game as `MinAtarEnv.state_dict` has it: the original's fields, with an underscore before."""

MODULES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}
EMPTY = {"Asterix": 99, "Seaquest": -1}
"""What an empty slot of our lists holds."""
NOT_STATE = {"channels", "action_map", "ramping", "random"}
UNUSED = {"Asterix": {"shot_timer"}}
"""Fields of the original's that no rule reads."""


class Draws:
    """As much of numpy's RandomState as the games use, which falls out in every way, one after the other."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._path: list[int] = []
        self._taken: list[tuple[int, int]] = []
        self.probability = 1.0
        self._cars: Any = None

    def ways(self, cars: np.ndarray | None) -> Iterator[None]:
        """Once for every way; what is drawn meanwhile decides how many there are.

        Freeway draws eight cars at once, too many to try them all: they are told, speed times direction.
        """
        self._path, self._cars = [], cars
        while True:
            self._taken, self.probability = [], 1.0
            yield
            while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
                self._taken.pop()
            if not self._taken:
                return
            self._path = [choice for choice, _ in self._taken]
            self._path[-1] += 1

    def rand(self, size: int | None = None) -> Any:
        if size is not None:
            return np.where(self._cars > 0, 0.9, 0.1)
        widths = [above - below for below, above in pairwise((*self._edges, 1.0))]
        return self._edges[self._choose(widths)]

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        if size is not None:
            return np.abs(self._cars)
        values = range(low) if high is None else range(low, high)
        return values[self._choose([1 / len(values)] * len(values))]

    def _choose(self, probabilities: Sequence[float]) -> int:
        depth = len(self._taken)
        choice = self._path[depth] if depth < len(self._path) else 0
        self._taken.append((choice, len(probabilities)))
        self.probability *= probabilities[choice]
        return choice


class Stream:
    """As much of numpy's RandomState as the games use, with the numbers of the native engine's stream."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._draws = 0

    def rand(self, size: int | None = None) -> Any:
        if size is not None:
            return np.array([self.rand() for _ in range(size)])
        self._draws += 1
        bits = (self._seed + self._draws * 0x9E3779B97F4A7C15) % 2**64
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
        return ((bits ^ (bits >> 31)) >> 11) / 2**53

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        if size is not None:
            return np.array([self.randint(low, high) for _ in range(size)])
        low, high = (0, low) if high is None else (low, high)
        return low + int(self.rand() * (high - low))

    def play(self, name: str, *, sticky: float) -> "Player":
        """A game of the package minatar that draws from this stream."""
        environment = Environment(MODULES[name], sticky_action_prob=sticky)
        environment.random = environment.env.random = self
        return Player(environment)


class Player(NamedTuple):
    """A game of the package minatar in the form of ours: minimal actions, planes first."""

    environment: Environment

    def reset(self) -> np.ndarray:
        self.environment.reset()
        return self.obs()

    def act(self, action: int) -> tuple[float, bool]:
        reward, terminated = self.environment.act(self.environment.minimal_action_set()[action])
        return float(reward), bool(terminated)

    def obs(self) -> np.ndarray:
        return np.moveaxis(self.environment.state(), -1, 0)


class Original:
    """One game of the package minatar."""

    def __init__(self, name: str, *, sticky: float = 0.0, edges: Sequence[float] = (0.0, 0.5)) -> None:
        """Numbers from [0, 1) are tried at `edges`; for probabilities they must include the thresholds."""
        self._name = name
        self._environment = Environment(MODULES[name], sticky_action_prob=sticky)
        self._game = self._environment.env
        self._draws = Draws(edges)
        self._game.random = self._draws
        if sticky:
            self._environment.random = self._draws
        self.actions = self._environment.minimal_action_set()
        self.fields = [f"_{field}" for field in vars(self._game).keys() - NOT_STATE - UNUSED.get(name, set())]
        """What the state of a game is called in our rows, the last action aside."""
        self._rules = {method.__code__ for method in rules_of(name)}
        self._lines_run: set[int] = set()

    def steps(self, before: Row, action: int, cars: np.ndarray | None = None) -> Iterator["Outcome"]:
        """All that an action of the minimal set can come to."""
        state = {field[1:]: self._as_original(field, before[field]) for field in self.fields}
        for _ in self._draws.ways(cars):
            self._put(state, int(before["_last_action"]))
            with self._lines_noted():
                reward, terminated = self._environment.act(self.actions[action])
                obs = self._environment.state()
            yield Outcome(
                self._draws.probability, float(reward), bool(terminated), np.moveaxis(obs, -1, 0), self
            )

    def starts(self, cars: np.ndarray | None = None) -> Iterator["Outcome"]:
        """All first states that can follow the outcome at which `steps` was left."""
        for _ in self._draws.ways(cars):
            with self._lines_noted():
                self._environment.reset()
                obs = self._environment.state()
            yield Outcome(self._draws.probability, 0.0, False, np.moveaxis(obs, -1, 0), self)

    def row(self, like: Row) -> Row:
        """The state the game is in, with as many slots as `like` has."""
        row: Row = {"_last_action": np.asarray(self._environment.last_action)}
        for field in self.fields:
            value = getattr(self._game, field[1:])
            if not isinstance(value, list):
                row[field] = np.asarray(value)
                continue
            row[field] = np.full_like(like[field], EMPTY.get(self._name, 0))
            for slot, thing in enumerate(value):
                if thing is not None:
                    row[field][slot] = thing
        return row

    def lines_not_run(self) -> set[str]:
        """The lines of the rules that no step or start has come to."""
        source = inspect.getsourcelines(sys.modules[type(self._game).__module__])[0]
        lines = {line for code in self._rules for *_, line in code.co_lines() if line != code.co_firstlineno}
        return {source[line - 1].strip() for line in lines - self._lines_run if line is not None}

    def _as_original(self, field: str, array: np.ndarray) -> Any:
        if not isinstance(getattr(self._game, field[1:]), list):
            return array.astype(float) if array.ndim else array.item()
        slots = [None if slot[0] == EMPTY.get(self._name) else slot for slot in array.tolist()]
        return slots if self._name == "Asterix" else [slot for slot in slots if slot is not None]

    def _put(self, state: dict[str, Any], last_action: int) -> None:
        for name, value in state.items():
            setattr(self._game, name, copied(value))
        self._environment.last_action = last_action

    @contextmanager
    def _lines_noted(self) -> Iterator[None]:
        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                self._lines_run.add(frame.f_lineno)
            return trace if frame.f_code in self._rules else None

        before = sys.gettrace()
        sys.settrace(trace)
        yield
        sys.settrace(before)


class Outcome(NamedTuple):
    """What a step or a start can come to."""

    probability: float
    reward: float
    terminated: bool
    obs: np.ndarray
    """[planes, 10, 10]"""
    original: Original
    """Where it has come to it, until the next outcome is asked for."""


def copied(value: Any) -> Any:
    """A value of a game's field that can be changed without the other, faster than copy.deepcopy."""
    if isinstance(value, list):
        return [None if thing is None else thing.copy() for thing in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def rules_of(name: str) -> list[Callable[..., Any]]:
    """The methods that make up the original's game."""
    env = importlib.import_module(f"minatar.environments.{MODULES[name]}").Env
    other = {"__init__", "difficulty_ramp", "state_shape", "minimal_action_set"}
    return [method for key, method in inspect.getmembers(env, inspect.isfunction) if key not in other]
