"""Saved states that native code reads, which may come from anywhere: refused, or continued within memory."""

from typing import Any

import numpy as np
import pytest
from toy_runs import start, start_from, start_pqn, toy_config, toy_pqn_config

from anybatch import envs
from anybatch.acting.rollout import Origin
from anybatch.config import EnvConfig
from anybatch.envs import classic_control, minatar
from anybatch.envs.protocol import BoxActions, DiscreteActions, RestorableEnv
from anybatch.errors import CheckpointError, EnvError

INT32 = np.iinfo(np.int32)
NUMBERS = [INT32.min, INT32.min + 1, -100, -6, -5, -2, -1, 0, 1, 2, 4, 8, 9, 10, 98, 99, 100, 201, INT32.max]
ATTEMPTS = 300
STEPS = 70
"""After which every kind of thing has come into play."""


def env_of(env_id: str) -> RestorableEnv:
    env = envs.make(env_id, EnvConfig(engine="native"), seeds=[3, 4])
    assert isinstance(env, RestorableEnv)
    env.reset()
    return env


def damaged(state: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """The state with a few of its numbers replaced."""
    state = {name: array.copy() for name, array in state.items()}
    for _ in range(generator.integers(1, 4)):
        array = state[str(generator.choice(list(state)))]
        array.flat[generator.integers(array.size)] = generator.choice(NUMBERS)
    return state


@pytest.mark.parametrize("game", minatar.GAMES)
def test_a_damaged_game_is_refused_or_stays_on_the_board(game: str):
    """Whether it stays within memory, `make sanitize` sees; here, whether only its own planes are drawn."""
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(ATTEMPTS):
        env = env_of(f"minatar:{game}")
        for _ in range(generator.integers(40)):
            env.step(generator.integers(3, size=2))
        state = env.state_dict()
        try:
            env.load_state_dict(state | {"game": damaged(state["game"], generator)})
        except EnvError:
            refused += 1
            continue
        for _ in range(STEPS):
            obs = env.step(generator.integers(6, size=2)).obs
            assert obs.view(np.uint8).max() <= 1
    assert 0 < refused < ATTEMPTS


@pytest.mark.parametrize("number", [INT32.min, INT32.max])
@pytest.mark.parametrize("game", minatar.GAMES)
def test_every_number_that_would_overflow_is_refused(game: str, number: int):
    fields = [
        name
        for name, array in env_of(f"minatar:{game}").state_dict()["game"].items()
        if array.dtype == np.int32
    ]
    for field in fields:
        env = env_of(f"minatar:{game}")
        state = env.state_dict()
        state["game"][field][1] = number
        with pytest.raises(EnvError, match="a saved state has a number that no game can have"):
            env.load_state_dict(state)


EDGES: list[tuple[str, str, tuple[int, ...], int, int]] = [
    ("Asterix", "player_x", (), 0, 9),
    ("Asterix", "player_y", (), 0, 9),
    ("Asterix", "entities", (7, 0), 0, 9),
    ("Asterix", "entities", (7, 1), 0, 9),
    *(("Breakout", field, (), 0, 9) for field in ("ball_x", "last_x", "last_y", "pos")),
    ("Breakout", "ball_y", (), 0, 8),
    ("Breakout", "ball_dir", (), 0, 3),
    ("Freeway", "pos", (), 0, 9),
    ("Freeway", "cars", (7, 0), 0, 9),
    ("Freeway", "cars", (7, 1), 0, 9),
    ("Freeway", "cars", (7, 3), -5, 5),
    *(("Seaquest", field, (), 0, 9) for field in ("sub_x", "sub_y")),
    ("Seaquest", "oxygen", (), -9, 200),
    ("Seaquest", "diver_count", (), -9, 6),
    *(
        ("Seaquest", field, (0, axis), 0, 9)
        for field in ("f_bullets", "e_bullets", "e_fish", "e_subs", "divers")
        for axis in (0, 1)
    ),
    ("SpaceInvaders", "pos", (), 0, 9),
]
"""Numbers that choose a place in memory, with the least and the largest that are on the board."""


@pytest.mark.parametrize(("game", "field", "place", "least", "most"), EDGES)
def test_the_edges_of_the_board_are_exact(
    game: str, field: str, place: tuple[int, ...], least: int, most: int
):
    env = env_of(f"minatar:{game}")
    state = env.state_dict()
    if place and game != "Freeway":
        state["game"][field][1, place[0]] = 5  # a thing on the board
    for number, is_inside in ((least, True), (most, True), (least - 1, least == -9), (most + 1, False)):
        if number == -1 and place == (0, 0):
            continue  # an empty slot
        state["game"][field][1, *place] = number
        if is_inside:
            env.load_state_dict(state)
        else:
            with pytest.raises(EnvError, match="a number that no game can have"):
                env.load_state_dict(state)


def test_every_car_has_a_speed():
    env = env_of("minatar:Freeway")
    state = env.state_dict()
    state["game"]["cars"][0, 2, 3] = 0
    with pytest.raises(EnvError, match="a number that no game can have"):
        env.load_state_dict(state)


@pytest.mark.parametrize("game", minatar.GAMES)
def test_an_action_that_a_game_does_not_know_is_to_stay(game: str):
    env = env_of(f"minatar:{game}")
    assert isinstance(env.spec.actions, DiscreteActions)
    state = env.state_dict()
    stayed = env.step(np.array([0, 0])).obs
    for action in (-1, env.spec.actions.count, 10**12):
        env.load_state_dict(state)
        assert np.array_equal(env.step(np.array([action, action])).obs, stayed)


@pytest.mark.parametrize("field", ["f_bullets", "e_bullets", "e_fish", "e_subs", "divers"])
def test_nothing_waits_behind_a_gap_of_a_list(field: str):
    env = env_of("minatar:Seaquest")
    state = env.state_dict()
    state["game"][field][1, 1] = (
        3  # its first slot stays empty, so it would be on the board with the next thing
    )
    with pytest.raises(EnvError, match="a number that no game can have"):
        env.load_state_dict(state)


def test_divers_may_be_owed():
    """Who surfaces with a full boat gives one diver more than there are, again and again."""
    env = env_of("minatar:Seaquest")
    state = env.state_dict()
    state["game"]["diver_count"][:] = -1000
    env.load_state_dict(state)
    assert not env.step(np.array([0, 0])).obs[:, 8].any()


@pytest.mark.parametrize("name", ["steps", "draws", "seed", "last_action"])
def test_counters_of_a_game_do_not_overflow(name: str):
    for number in (np.iinfo(np.int64).max, np.iinfo(np.int64).min):
        env = env_of("minatar:Breakout")
        state = env.state_dict()
        state[name][:] = number
        if name == "steps":
            with pytest.raises(EnvError, match="a number that no game can have"):
                env.load_state_dict(state)
        else:
            env.load_state_dict(state)
            env.step(np.array([1, 2]))


@pytest.mark.parametrize("env_id", classic_control.GAMES)
def test_a_damaged_state_of_classic_control_is_refused_or_played(env_id: str):
    numbers = [float("nan"), float("inf"), -1e300, 1e18, 1e5]
    for place in range(4):
        for number in numbers:
            env = env_of(f"native:{env_id}")
            state = env.state_dict()
            state["state"][1, place] = number
            if not np.isfinite(number):
                with pytest.raises(
                    EnvError, match=f"^{env_id}: a saved state has a number that no episode can"
                ):
                    env.load_state_dict(state)
                continue
            env.load_state_dict(state)
            is_float = isinstance(env.spec.actions, BoxActions)
            for _ in range(3):
                env.step(np.zeros((2, 1), np.float32) if is_float else np.zeros(2, np.int64))


@pytest.mark.parametrize("number", [-1, np.iinfo(np.int64).max])
def test_so_is_an_impossible_number_of_steps(number: int):
    env = env_of("native:CartPole-v1")
    state = env.state_dict()
    state["steps"][0] = number
    with pytest.raises(EnvError, match="a number that no episode can have"):
        env.load_state_dict(state)
    state["steps"][0], state["draws"][:] = 1, np.iinfo(np.int64).max
    env.load_state_dict(state)
    for _ in range(30):
        env.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("env", ["toy:Match", "toy:MultiMatch"])
@pytest.mark.parametrize("number", [-1, 10**9])
@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_waiting_data_with_an_action_that_does_not_exist_is_refused(algorithm: str, number: int, env: str):
    if algorithm == "pqn" and env == "toy:MultiMatch":
        env = "minatar:Asterix"  # PQN has one choice
    settings: dict[str, Any] = {"env": env, "staleness": {"iterations": 1}}
    config = toy_config(**settings) if algorithm == "ppo" else toy_pqn_config(**settings)
    state: Any = start(config) if algorithm == "ppo" else start_pqn(config)
    assert state.source.next(state.network, config.num_steps, Origin()) is None
    saved = state.snapshot()
    start_from(config, saved)
    [segment] = saved.segments.values()
    segment["action"].view(-1)[3] = number
    with pytest.raises(CheckpointError, match=r"an action is not one of (Multi)?Discrete"):
        start_from(config, saved)
