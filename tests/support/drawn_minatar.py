"""States of MinAtar's games that random play seldom or never comes to, drawn at random."""

from collections.abc import Callable

import numpy as np

Game = dict[str, np.ndarray]
"""`MinAtarEnv.state_dict()["game"]` of N envs: every array is [N, …]."""
Draw = Callable[[Game, np.random.Generator], Game]
"""Some fields of a game, drawn anew; the others stay as they are."""


def asterix(game: Game, rng: np.random.Generator) -> Game:
    """Players among entities at all speeds, all, some or no rows free, difficulty soon to rise or not."""
    n = len(game["_player_x"])
    lanes = np.tile(np.arange(1, 9), (n, 1))
    entities = np.stack([rng.integers(10, size=(n, 8)), lanes, *rng.integers(2, size=(2, n, 8))], axis=-1)
    is_free = rng.random((n, 8)) < rng.choice([0.0, 0.5, 1.0], size=(n, 1))
    spawn_speed, move_speed = rng.integers(1, 11, size=n), rng.integers(1, 6, size=n)
    return {
        "_entities": np.where(is_free[..., None], 99, entities),
        "_player_x": rng.integers(10, size=n),
        "_player_y": rng.integers(1, 9, size=n),
        "_spawn_speed": spawn_speed,
        "_spawn_timer": rng.integers(spawn_speed + 1),
        "_move_speed": move_speed,
        "_move_timer": rng.integers(move_speed + 1),
        "_ramp_timer": rng.choice([-1, 0, 1, 100], size=n),
        "_ramp_index": rng.integers(20, size=n),
    }


def breakout(game: Game, rng: np.random.Generator) -> Game:
    """A ball anywhere, the paddle near it, all, some or no bricks left."""
    n = len(game["_ball_x"])
    share = rng.choice([0.0, 0.05, 0.5, 1.0], size=(n, 1, 1))
    in_wall = (np.arange(10) >= 1) & (np.arange(10) < 4)
    ball_x = rng.integers(10, size=n)
    return {
        "_ball_x": ball_x,
        "_ball_y": rng.integers(9, size=n),
        "_ball_dir": rng.integers(4, size=n),
        "_pos": np.clip(ball_x + rng.integers(-2, 3, size=n), 0, 9),
        "_brick_map": (rng.random((n, 10, 10)) < share) & in_wall[:, None],
        "_strike": rng.random(n) < 0.5,
        "_last_x": rng.integers(10, size=n),
        "_last_y": rng.integers(9, size=n),
    }


def freeway(game: Game, rng: np.random.Generator) -> Game:
    """A chicken anywhere among cars that are anywhere, the clock near its end or not."""
    n = len(game["_pos"])
    speed = rng.integers(1, 6, size=(n, 8))
    lanes = np.tile(np.arange(1, 9), (n, 1))
    heading = rng.choice([-1, 1], size=(n, 8))
    return {
        "_cars": np.stack(
            [rng.integers(10, size=(n, 8)), lanes, rng.integers(speed + 1), speed * heading], axis=-1
        ),
        "_pos": rng.integers(1, 10, size=n),
        "_move_timer": rng.integers(4, size=n),
        "_terminate_timer": rng.choice([0, 1, 2500], size=n),
    }


def seaquest(game: Game, rng: np.random.Generator) -> Game:
    """Another player in the same sea, half of them on the surface, a diver near, and a shot near an enemy.

    Timers leave no more shots and divers than play does, and speeds go together as in play.
    """
    n = len(game["_sub_x"])
    x, y = rng.integers(10, size=n), rng.integers(9, size=n) * (rng.random(n) < 0.5)
    speeds = [(20, 5), (18, 4), (16, 3), (14, 2), (2, 2), (1, 2), (1, 2)]
    spawn_speed, move_speed = rng.choice(speeds, size=n).T
    shots, divers = np.full_like(game["_f_bullets"], -1), np.full_like(game["_divers"], -1)
    near = np.clip(x + rng.integers(-1, 2, size=n), 0, 9)
    divers[:, 0] = np.stack(
        [near, np.clip(y, 1, 8), rng.integers(2, size=n), rng.integers(6, size=n)], axis=1
    )
    for i in range(n):
        enemies = np.concatenate([game["_e_fish"][i, :, :2], game["_e_subs"][i, :, :2]])
        if len(enemies := enemies[enemies[:, 0] >= 0]):
            enemy_x, enemy_y = rng.choice(enemies)
            shots[i, 0] = np.clip(enemy_x + rng.integers(-2, 3), 0, 9), enemy_y, rng.integers(2)
    return {
        "_f_bullets": shots,
        "_shot_timer": np.full(n, 5),
        "_divers": divers,
        "_d_spawn_timer": rng.integers(20, 31, size=n),
        "_sub_x": x,
        "_sub_y": y,
        "_sub_or": np.where(x % 9 == 0, x == 9, rng.random(n) < 0.5),  # at an edge one has come from inside
        "_surface": (y == 0) & (rng.random(n) < 0.8),
        "_oxygen": rng.choice([0, 1, 19, 20, 21, 100, 199, 200], size=n),
        "_diver_count": rng.integers(-2, 7, size=n),
        "_e_spawn_speed": spawn_speed,
        "_e_spawn_timer": rng.integers(spawn_speed + 1),
        "_move_speed": move_speed,
        "_ramp_index": rng.integers(30, size=n),
    }


def crowded_seaquest(game: Game, rng: np.random.Generator) -> Game:
    """Everything in a few cells of one row and about to move, shoot or come aboard, for a step or two."""
    n = len(game["_sub_x"])

    def crowd(field: str, most: int, *timers: int) -> np.ndarray:
        """Up to `most` things; timers are below the numbers given."""
        things = np.full_like(game[field], -1)
        for i in range(n):
            count = rng.integers(most + 1)
            columns = [rng.integers(2, 7, count), np.full(count, 4), rng.integers(2, size=count)]
            columns += [rng.integers(timer, size=count) for timer in timers]
            things[i, :count] = np.stack(columns, axis=1)
        return things

    x, divers = rng.integers(1, 9, size=n), crowd("_divers", 2, 2)
    near = x[:, None] + rng.integers(-1, 2, size=(n, 2))
    divers[..., 0] = np.where(divers[..., 0] >= 0, near, -1)
    return {
        "_f_bullets": crowd("_f_bullets", 2),
        "_e_bullets": crowd("_e_bullets", 2),
        "_e_fish": crowd("_e_fish", 4, 2),
        "_e_subs": crowd("_e_subs", 4, 2, 2),
        "_divers": divers,
        "_sub_x": x,
        "_sub_y": rng.integers(3, 6, size=n),
        "_diver_count": rng.integers(4, 7, size=n),
        "_oxygen": np.full(n, 100),
        "_surface": np.zeros(n),
        "_shot_timer": np.full(n, 5),
        "_d_spawn_timer": np.full(n, 5),
        "_e_spawn_timer": np.full(n, 5),
        "_move_speed": rng.integers(2, 6, size=n),
    }


def space_invaders(game: Game, rng: np.random.Generator) -> Game:
    """Few or many aliens anywhere, shots everywhere, all speeds."""
    n = len(game["_pos"])
    aliens = rng.random((n, 10, 10)) < rng.choice([0.0, 0.05, 0.3], size=(n, 1, 1))
    aliens[np.arange(n), rng.integers(10, size=n), rng.integers(10, size=n)] = True  # never none
    interval = rng.integers(6, 13, size=n)
    return {
        "_alien_map": aliens,
        "_alien_dir": rng.choice([-1, 1], size=n),
        "_pos": rng.integers(10, size=n),
        "_f_bullet_map": rng.random((n, 10, 10)) < 0.3,
        "_e_bullet_map": rng.random((n, 10, 10)) < 0.1,
        "_enemy_move_interval": interval,
        "_alien_move_timer": rng.integers(interval + 1),
        "_alien_shot_timer": rng.integers(11, size=n),
        "_shot_timer": rng.integers(6, size=n),
        "_ramp_index": 12 - interval,
    }


DRAWS: dict[str, Draw] = {
    "Asterix": asterix,
    "Breakout": breakout,
    "Freeway": freeway,
    "Seaquest": seaquest,
    "SpaceInvaders": space_invaders,
}
