"""MinAtar's Seaquest in JAX, by the rules of the package minatar 1.0.15.

pgx 2.6 plays by other rules: enemy shots that leave the board stay in its lists, a submarine that runs into a
shot does not fire in that step, difficulty rises one surfacing early, and oxygen lasts one step longer. Here
only the form of the state and of an env is pgx's. All functions handle one env; the adapter vectorizes them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from pgx.minatar import seaquest

BOARD = 10
DEEPEST_ROW = 8
FULL_OXYGEN = 200
FULL_BOAT = 6
"""Divers."""
SHOT_INTERVAL = 5
ENEMY_SHOT_INTERVAL = 10
DIVER_SPAWN_INTERVAL = 30
DIVER_MOVE_INTERVAL = 5
FASTEST_SPAWN = 1
FASTEST_MOVE = 2

MOST_SHOTS = 2
"""One every five steps, each gone after at most nine."""
MOST_DIVERS = 2
"""One every thirty steps, each gone after at most sixty."""
MOST_ENEMIES = 30
"""Slots of a kind, and of its shots: at the highest difficulty one enters each step, for at most thirty."""
EMPTY = -1
"""Every number of an empty slot."""

THINGS = {
    "_f_bullets": (MOST_SHOTS, 3),
    "_e_bullets": (MOST_ENEMIES, 3),
    "_e_fish": (MOST_ENEMIES, 4),
    "_e_subs": (MOST_ENEMIES, 5),
    "_divers": (MOST_DIVERS, 4),
}
"""The fields of pgx's state that list things, and their shapes: slots, and columns as in `Things`."""


class Things(NamedTuple):
    """What moves on the board, oldest first. Every array is [slots]; x is EMPTY in a slot without a thing."""

    x: Any
    y: Any
    right: Any
    """Whether it heads right."""
    move_in: Any = None
    """Steps until it moves; None for shots, which always move."""
    shoot_in: Any = None
    """Steps until it shoots; None for all but submarines."""


class Drawn(NamedTuple):
    """The random part of a step, used when a newcomer is due."""

    enemy_right: Any
    enemy_is_sub: Any
    enemy_row: Any
    diver_right: Any
    diver_row: Any


class Seaquest(seaquest.MinAtarSeaquest):
    """An env of pgx's kind with the rules of this module."""

    def _init(self, key: Any) -> Any:
        del key  # every episode starts the same
        return first_state()

    def _step(self, state: Any, action: Any, key: Any) -> Any:
        sticky, *others = jax.random.uniform(key, (6,))
        action = jnp.where(sticky < self.sticky_action_prob, state._last_action, action)
        return play(state, action, drawn_from(*others))

    def _observe(self, state: Any, player_id: Any) -> Any:
        del player_id
        return observe(state)


def first_state() -> seaquest.State:
    return seaquest.State(**{name: jnp.full(shape, EMPTY, jnp.int32) for name, shape in THINGS.items()})


def drawn_from(
    enemy_right: Any, enemy_is_sub: Any, enemy_row: Any, diver_right: Any, diver_row: Any
) -> Drawn:
    """What five uniform numbers from [0, 1) stand for."""

    def row(uniform: Any) -> Any:
        return 1 + (uniform * DEEPEST_ROW).astype(jnp.int32)  # neither the surface nor the gauges

    return Drawn(
        enemy_right=enemy_right < 1 / 2,
        enemy_is_sub=enemy_is_sub < 1 / 3,
        enemy_row=row(enemy_row),
        diver_right=diver_right < 1 / 2,
        diver_row=row(diver_row),
    )


def play(state: Any, action: Any, drawn: Drawn) -> Any:
    """The state after a step. Each stage sees what those before it have changed, so their order matters."""
    state = state.replace(rewards=jnp.zeros_like(state.rewards), _last_action=action)
    state = state.replace(**{name: unpacked(state, name) for name in THINGS})
    state = spawn_enemy(state, drawn)
    state = spawn_diver(state, drawn)
    state = steer(state, action)
    state = fly_shots(state)
    state = move_divers(state)
    state = move_subs(state)
    state = fly_enemy_shots(state)
    state = move_fish(state)
    state = count_down(state)
    state = breathe(state)
    return state.replace(terminated=state._terminal, **{name: packed(state, name) for name in THINGS})


def spawn_enemy(state: Any, drawn: Drawn) -> Any:
    """Add a fish or a submarine when one is due, unless another moves towards it in its row."""

    def comes_towards(enemies: Things) -> Any:
        return present(enemies) & (enemies.y == drawn.enemy_row) & (enemies.right != drawn.enemy_right)

    due = state._e_spawn_timer == 0
    enters = due & ~(comes_towards(state._e_fish) | comes_towards(state._e_subs)).any()
    fish = Things(edge(drawn.enemy_right), drawn.enemy_row, drawn.enemy_right, state._move_speed)
    sub = fish._replace(shoot_in=ENEMY_SHOT_INTERVAL)
    return state.replace(
        _e_fish=appended(state._e_fish, fish, enters & ~drawn.enemy_is_sub),
        _e_subs=appended(state._e_subs, sub, enters & drawn.enemy_is_sub),
        _e_spawn_timer=jnp.where(due, state._e_spawn_speed, state._e_spawn_timer),
    )


def spawn_diver(state: Any, drawn: Drawn) -> Any:
    due = state._d_spawn_timer == 0
    diver = Things(edge(drawn.diver_right), drawn.diver_row, drawn.diver_right, DIVER_MOVE_INTERVAL)
    return state.replace(
        _divers=appended(state._divers, diver, due),
        _d_spawn_timer=jnp.where(due, DIVER_SPAWN_INTERVAL, state._d_spawn_timer),
    )


def steer(state: Any, action: Any) -> Any:
    """Obey the player: 1 is left, 2 up, 3 right, 4 down, 5 shoot."""
    shoots = (action == 5) & (state._shot_timer == 0)
    across = (action == 3).astype(jnp.int32) - (action == 1)
    down = (action == 4).astype(jnp.int32) - (action == 2)
    return state.replace(
        _f_bullets=appended(state._f_bullets, player_of(state), shoots),
        _shot_timer=jnp.where(shoots, SHOT_INTERVAL, state._shot_timer),
        _sub_x=jnp.clip(state._sub_x + across, 0, BOARD - 1),
        _sub_y=jnp.clip(state._sub_y + down, 0, DEEPEST_ROW),
        _sub_or=jnp.where(across == 0, state._sub_or, across > 0),
    )


def fly_shots(state: Any) -> Any:
    """Move the player's shots, the youngest first. Each hits the oldest fish of its cell, else submarine."""
    shots = forward(state._f_bullets, present(state._f_bullets))
    fish, subs = state._e_fish, state._e_subs
    hits = 0
    for slot in reversed(range(MOST_SHOTS)):
        shot = thing_in(shots, slot)
        struck_fish = first(present(shot) & meets(fish, shot))
        struck_sub = first(present(shot) & meets(subs, shot) & ~struck_fish.any())
        is_hit = struck_fish.any() | struck_sub.any()
        fish, subs = without(fish, struck_fish), without(subs, struck_sub)
        shots = without(shots, is_hit & (jnp.arange(MOST_SHOTS) == slot))
        hits += is_hit
    return state.replace(_f_bullets=shots, _e_fish=fish, _e_subs=subs, rewards=state.rewards + hits)


def move_divers(state: Any) -> Any:
    """Move the divers. Those who meet the player before or after it come aboard, the youngest first."""
    divers, player = state._divers, player_of(state)
    moved = moved_by_timer(divers, DIVER_MOVE_INTERVAL)
    meeting = meets(divers, player) | meets(moved, player)
    younger = jnp.cumsum(meeting[::-1])[::-1] - meeting
    boards = meeting & (younger < FULL_BOAT - state._diver_count)
    return state.replace(_divers=without(moved, boards), _diver_count=state._diver_count + boards.sum())


def move_subs(state: Any) -> Any:
    """Move the submarines and let them shoot, also those that have just run into a shot."""
    exist = present(state._e_subs)
    state, subs, struck = move_enemies(state, state._e_subs)
    shoot = exist & (subs.shoot_in == 0)
    fired = Things(jnp.where(shoot, subs.x, EMPTY), subs.y, subs.right)
    subs = subs._replace(shoot_in=jnp.where(shoot, ENEMY_SHOT_INTERVAL, subs.shoot_in - 1))
    # Submarines act in turn, the youngest first.
    shots = jax.tree.map(lambda flying, new: jnp.concatenate([flying, new[::-1]]), state._e_bullets, fired)
    return state.replace(_e_subs=without(subs, struck), _e_bullets=shots)


def fly_enemy_shots(state: Any) -> Any:
    shots, player = state._e_bullets, player_of(state)
    flown = forward(shots, present(shots))
    is_hit = (meets(shots, player) | meets(flown, player)).any()
    return state.replace(_e_bullets=flown, _terminal=state._terminal | is_hit)


def move_fish(state: Any) -> Any:
    state, fish, struck = move_enemies(state, state._e_fish)
    return state.replace(_e_fish=without(fish, struck))


def move_enemies(state: Any, enemies: Things) -> tuple[Any, Things, Any]:
    """Move enemies of one kind into the player, which ends the game, or into shots.

    Returns the state, the moved enemies and which of them are struck: the youngest of those that move into
    the cell of a shot.
    """
    player, shots = player_of(state), state._f_bullets
    moved = moved_by_timer(enemies, state._move_speed)
    collides = meets(enemies, player) | meets(moved, player)
    exposed = present(moved) & (moved.x != enemies.x) & ~meets(moved, player)
    struck = jnp.zeros_like(exposed)
    for slot in range(MOST_SHOTS):
        struck_now = last(exposed & ~struck & meets(moved, thing_in(shots, slot)))
        shots = without(shots, struck_now.any() & (jnp.arange(MOST_SHOTS) == slot))
        struck |= struck_now
    state = state.replace(
        _f_bullets=shots, _terminal=state._terminal | collides.any(), rewards=state.rewards + struck.sum()
    )
    return state, moved, struck


def count_down(state: Any) -> Any:
    timers = ("_e_spawn_timer", "_d_spawn_timer", "_shot_timer")
    return state.replace(**{name: jnp.maximum(getattr(state, name) - 1, 0) for name in timers})


def breathe(state: Any) -> Any:
    """Use up oxygen under water. Surfacing costs a diver, refills it and makes the game harder, or ends it.

    A full boat earns the oxygen that is left, and gives all six divers and then one more: the count becomes
    -1, with which one may surface again, as in the original.
    """
    is_under = state._sub_y > 0
    surfaces = ~is_under & ~state._surface
    ends = (state._oxygen <= 0) | (surfaces & (state._diver_count == 0))
    refills = surfaces & (state._diver_count != 0)
    is_full = refills & (state._diver_count == FULL_BOAT)
    can_spawn_faster, can_move_faster = state._e_spawn_speed > FASTEST_SPAWN, state._move_speed > FASTEST_MOVE
    harder = refills & (can_spawn_faster | can_move_faster)
    return state.replace(
        rewards=state.rewards + jnp.where(is_full, oxygen_cells(state), 0),
        _terminal=state._terminal | ends,
        _oxygen=jnp.where(refills, FULL_OXYGEN, state._oxygen - is_under),
        _surface=~is_under & (state._surface | refills),
        _diver_count=jnp.where(is_full, 0, state._diver_count) - refills,
        _e_spawn_speed=state._e_spawn_speed - (harder & can_spawn_faster),
        _move_speed=state._move_speed - (harder & can_move_faster & (state._ramp_index % 2 == 1)),
        _ramp_index=state._ramp_index + harder,
    )


def observe(state: Any) -> Any:
    """The planes that the player sees: bool [10, 10, 10], rows, columns, planes."""
    shots, enemy_shots, fish, subs, divers = (unpacked(state, name) for name in THINGS)
    player = player_of(state)
    column = jnp.arange(BOARD)
    is_diver = (column >= BOARD - 1 - state._diver_count) & (column < BOARD - 1)
    planes = jnp.zeros((BOARD, BOARD, 10), dtype=jnp.bool_)
    planes = planes.at[BOARD - 1, :, 7].set(column < oxygen_cells(state))
    planes = planes.at[BOARD - 1, :, 8].set(is_diver)
    for plane, things in (
        (0, player),
        (1, behind(player)),
        (2, shots),
        (3, behind(fish)),
        (3, behind(subs)),
        (3, behind(divers)),
        (4, enemy_shots),
        (5, fish),
        (6, subs),
        (9, divers),
    ):
        # A negative index would count from the other edge; one past the board is dropped.
        index = jnp.where(things.x < 0, BOARD, things.x)
        planes = planes.at[things.y, index, plane].set(True, mode="drop")
    return planes


def player_of(state: Any) -> Things:
    return Things(state._sub_x, state._sub_y, state._sub_or)


def oxygen_cells(state: Any) -> Any:
    """How many cells of the gauge are lit; negative, so none, when it is used up."""
    return state._oxygen * BOARD // FULL_OXYGEN


def edge(right: Any) -> Any:
    """The column in which things that head right, or left, enter."""
    return jnp.where(right, 0, BOARD - 1)


def present(things: Things) -> Any:
    return things.x != EMPTY


def thing_in(things: Things, slot: int) -> Things:
    return jax.tree.map(lambda column: column[slot], things)


def meets(things: Things, other: Things) -> Any:
    """Which things are in the cell of another. Empty slots meet each other."""
    return (things.x == other.x) & (things.y == other.y)


def step_of(things: Things) -> Any:
    return jnp.where(things.right == 1, 1, -1)


def forward(things: Things, which: Any) -> Things:
    """Move some things on by a cell; those that leave the board are gone."""
    x = things.x + jnp.where(which, step_of(things), 0)
    return without(things._replace(x=x), (x < 0) | (x >= BOARD))


def moved_by_timer(things: Things, interval: Any) -> Things:
    due = present(things) & (things.move_in == 0)
    return forward(things, due)._replace(move_in=jnp.where(due, interval, things.move_in - 1))


def behind(things: Things) -> Things:
    """The cells where things come from, off the board for those that have just entered."""
    return things._replace(x=jnp.where(present(things), things.x - step_of(things), EMPTY))


def without(things: Things, gone: Any) -> Things:
    """Empty some slots, which leaves gaps until the end of the step."""
    return things._replace(x=jnp.where(gone, EMPTY, things.x))


def appended(things: Things, newcomer: Things, enters: Any) -> Things:
    """Put a newcomer into the first empty slot, if it enters. There must be no gaps."""
    here = enters & (jnp.arange(things.x.shape[0]) == present(things).sum())
    return jax.tree.map(lambda column, number: jnp.where(here, number, column), things, newcomer)


def unpacked(state: Any, name: str) -> Things:
    return Things(*getattr(state, name).T)


def packed(state: Any, name: str) -> Any:
    """Things without gaps, the form in which the state keeps them: [slots, columns]."""
    things: Things = getattr(state, name)
    rows = jnp.stack(jax.tree.leaves(things), axis=-1)
    slots = THINGS[name][0]
    slot = jnp.where(present(things), jnp.cumsum(present(things)) - 1, slots)  # past the last one: dropped
    return jnp.full(THINGS[name], EMPTY, rows.dtype).at[slot].set(rows, mode="drop")


def first(mask: Any) -> Any:
    """The mask of only the first that is true, if any is."""
    places = jnp.arange(mask.shape[0])
    return places == jnp.where(mask, places, mask.shape[0]).min()


def last(mask: Any) -> Any:
    """The mask of only the last that is true, if any is."""
    places = jnp.arange(mask.shape[0])
    return places == jnp.where(mask, places, -1).max()
