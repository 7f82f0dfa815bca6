/* Seaquest: a submarine among fish, submarines and divers, with oxygen that is refilled only at the surface.

   A list holds things without gaps, oldest first. Who acts first in a step decides who hits whom: things act in
   turn, the youngest first. */
#include "minatar.h"

#define DEEPEST_ROW 8
#define FULL_OXYGEN 200
#define FULL_BOAT 6 /* divers */
#define SHOT_INTERVAL 5
#define ENEMY_SHOT_INTERVAL 10
#define DIVER_SPAWN_INTERVAL 30
#define DIVER_MOVE_INTERVAL 5
#define FIRST_SPAWN_SPEED 20
#define FIRST_MOVE_SPEED 5
#define FASTEST_SPAWN 1
#define FASTEST_MOVE 2

#define MOST_SHOTS 2    /* one every five steps, each gone after at most nine */
#define MOST_DIVERS 2   /* one every thirty steps, each gone after at most sixty */
#define MOST_ENEMIES 30 /* of a kind, and of their shots: at most one in a step, each gone after thirty */
#define EMPTY (-1)      /* every number of an empty slot */

enum { FRONT, BACK, SHOT, TRAIL, ENEMY_SHOT, FISH, SUB, OXYGEN, DIVERS_ABOARD, DIVER };

/* What a thing is in memory. Shots have the first three numbers, fish and divers four, submarines all. */
enum { X, Y, HEADS_RIGHT, MOVE_IN, SHOOT_IN };

typedef struct {
  int32_t sub_x, sub_y, sub_or; /* or: whether it heads right */
  int32_t oxygen, diver_count, surface;
  int32_t shot_timer, e_spawn_speed, e_spawn_timer, d_spawn_timer, move_speed, ramp_index;
  int32_t f_bullets[MOST_SHOTS][3], e_bullets[MOST_ENEMIES][3];
  int32_t e_fish[MOST_ENEMIES][4], e_subs[MOST_ENEMIES][5], divers[MOST_DIVERS][4];
} State;

typedef struct {
  int32_t *things;
  int slots, width;
} List;

#define LIST(array) \
  ((List){(int32_t *)&(array)[0][0], sizeof(array) / sizeof((array)[0]), sizeof((array)[0]) / sizeof(int32_t)})

static int32_t *thing_in(List list, int slot) { return list.things + slot * list.width; }

static int length(List list) {
  int slot = 0;
  while (slot < list.slots && thing_in(list, slot)[X] != EMPTY) slot++;
  return slot;
}

/* A game never fills a list: see the numbers of slots. */
static void append(List list, int x, int y, int right, int move_in, int shoot_in) {
  const int32_t thing[] = {x, y, right, move_in, shoot_in};
  const int slot = length(list);
  if (slot < list.slots) memcpy(thing_in(list, slot), thing, list.width * sizeof(int32_t));
}

static void take_out(List list, int slot) {
  const int last = list.slots - 1;
  memmove(thing_in(list, slot), thing_in(list, slot + 1), (last - slot) * list.width * sizeof(int32_t));
  for (int k = 0; k < list.width; k++) thing_in(list, last)[k] = EMPTY;
}

static int is_at(const int32_t *thing, int x, int y) { return thing[X] == x && thing[Y] == y; }

/* The slot of the oldest thing in a cell, or EMPTY. */
static int oldest_at(List list, int x, int y) {
  const int end = length(list);
  for (int slot = 0; slot < end; slot++)
    if (is_at(thing_in(list, slot), x, y)) return slot;
  return EMPTY;
}

/* Take the oldest thing out of a cell. Returns whether there was one. */
static int strike(List list, int x, int y) {
  const int slot = oldest_at(list, x, y);
  if (slot != EMPTY) take_out(list, slot);
  return slot != EMPTY;
}

static int meets_player(const State *s, const int32_t *thing) { return is_at(thing, s->sub_x, s->sub_y); }

static int edge(int right) { return right ? 0 : LAST; }

static void start(void *state, Random *random) {
  (void)random;
  State *s = state;
  memset((char *)s + offsetof(State, f_bullets), EMPTY, sizeof *s - offsetof(State, f_bullets)); /* all lists */
  s->sub_x = 5;
  s->oxygen = FULL_OXYGEN;
  s->surface = 1;
  s->e_spawn_speed = s->e_spawn_timer = FIRST_SPAWN_SPEED;
  s->d_spawn_timer = DIVER_SPAWN_INTERVAL;
  s->move_speed = FIRST_MOVE_SPEED;
}

static int comes_towards(List enemies, int row, int right) {
  const int end = length(enemies);
  for (int slot = 0; slot < end; slot++) {
    const int32_t *enemy = thing_in(enemies, slot);
    if (enemy[Y] == row && enemy[HEADS_RIGHT] != right) return 1;
  }
  return 0;
}

/* Let a fish or a submarine in, unless another enemy comes towards it in its row. */
static void spawn_enemy(State *s, Random *random) {
  const int right = chance(random, 1.0 / 2), is_sub = chance(random, 1.0 / 3);
  const int row = 1 + pick(random, DEEPEST_ROW);
  if (comes_towards(LIST(s->e_fish), row, right) || comes_towards(LIST(s->e_subs), row, right)) return;
  append(is_sub ? LIST(s->e_subs) : LIST(s->e_fish), edge(right), row, right, s->move_speed, ENEMY_SHOT_INTERVAL);
}

static void spawn_diver(State *s, Random *random) {
  const int right = chance(random, 1.0 / 2), row = 1 + pick(random, DEEPEST_ROW);
  append(LIST(s->divers), edge(right), row, right, DIVER_MOVE_INTERVAL, 0);
}

static void spawn(State *s, Random *random) {
  if (s->e_spawn_timer == 0) {
    spawn_enemy(s, random);
    s->e_spawn_timer = s->e_spawn_speed;
  }
  if (s->d_spawn_timer == 0) {
    spawn_diver(s, random);
    s->d_spawn_timer = DIVER_SPAWN_INTERVAL;
  }
}

static void steer(State *s, int action) {
  if (action == FIRE && s->shot_timer == 0) {
    append(LIST(s->f_bullets), s->sub_x, s->sub_y, s->sub_or, 0, 0);
    s->shot_timer = SHOT_INTERVAL;
  }
  if (action == LEFT || action == RIGHT) s->sub_or = action == RIGHT;
  s->sub_x = within(s->sub_x + steered(action, LEFT, RIGHT), 0, LAST);
  s->sub_y = within(s->sub_y + steered(action, UP, DOWN), 0, DEEPEST_ROW);
}

/* The player's shots fly on, and each hits the oldest fish of its cell, else submarine. Returns the hits. */
static int fly_shots(State *s) {
  const List shots = LIST(s->f_bullets);
  int hits = 0;
  for (int slot = length(shots) - 1; slot >= 0; slot--) {
    int32_t *shot = thing_in(shots, slot);
    shot[X] += heading(shot[HEADS_RIGHT]);
    const int x = shot[X], y = shot[Y];
    const int is_hit = strike(LIST(s->e_fish), x, y) || strike(LIST(s->e_subs), x, y);
    if (is_hit || !is_inside(x)) take_out(shots, slot);
    hits += is_hit;
  }
  return hits;
}

/* Count down to a thing's next move. Returns whether it moves now. */
static int moves(int32_t *thing, int interval) {
  if (thing[MOVE_IN]-- > 0) return 0;
  thing[MOVE_IN] = interval;
  thing[X] += heading(thing[HEADS_RIGHT]);
  return 1;
}

/* Divers who meet the player before or after they move come aboard. */
static void move_divers(State *s) {
  const List divers = LIST(s->divers);
  for (int slot = length(divers) - 1; slot >= 0; slot--) {
    int32_t *diver = thing_in(divers, slot);
    const int has_room = s->diver_count < FULL_BOAT;
    int boards = has_room && meets_player(s, diver);
    if (!boards) {
      moves(diver, DIVER_MOVE_INTERVAL);
      boards = has_room && meets_player(s, diver);
    }
    if (boards || !is_inside(diver[X])) take_out(divers, slot);
    s->diver_count += boards;
  }
}

/* Move an enemy, perhaps into the player, which sets `is_over`, or into one of its shots, which adds to `reward`.
   Returns whether it is gone. */
static int move_enemy(State *s, int32_t *enemy, int *is_over, int *reward) {
  *is_over |= meets_player(s, enemy);
  if (!moves(enemy, s->move_speed)) return 0;
  if (!is_inside(enemy[X])) return 1;
  if (meets_player(s, enemy)) {
    *is_over = 1;
    return 0;
  }
  const int is_hit = strike(LIST(s->f_bullets), enemy[X], enemy[Y]);
  *reward += is_hit;
  return is_hit;
}

static int move_fish(State *s, int *reward) {
  const List fish = LIST(s->e_fish);
  int is_over = 0;
  for (int slot = length(fish) - 1; slot >= 0; slot--)
    if (move_enemy(s, thing_in(fish, slot), &is_over, reward)) take_out(fish, slot);
  return is_over;
}

/* Submarines move, then shoot, also those that have just run into a shot. */
static int move_subs(State *s, int *reward) {
  const List subs = LIST(s->e_subs);
  int is_over = 0;
  for (int slot = length(subs) - 1; slot >= 0; slot--) {
    int32_t *sub = thing_in(subs, slot);
    const int is_gone = move_enemy(s, sub, &is_over, reward);
    if (sub[SHOOT_IN]-- == 0) {
      sub[SHOOT_IN] = ENEMY_SHOT_INTERVAL;
      if (is_inside(sub[X])) append(LIST(s->e_bullets), sub[X], sub[Y], sub[HEADS_RIGHT], 0, 0);
    }
    if (is_gone) take_out(subs, slot);
  }
  return is_over;
}

static int fly_enemy_shots(State *s) {
  const List shots = LIST(s->e_bullets);
  int is_over = 0;
  for (int slot = length(shots) - 1; slot >= 0; slot--) {
    int32_t *shot = thing_in(shots, slot);
    is_over |= meets_player(s, shot);
    shot[X] += heading(shot[HEADS_RIGHT]);
    is_over |= meets_player(s, shot);
    if (!is_inside(shot[X])) take_out(shots, slot);
  }
  return is_over;
}

static void count_down(State *s) {
  s->e_spawn_timer -= s->e_spawn_timer > 0;
  s->d_spawn_timer -= s->d_spawn_timer > 0;
  s->shot_timer -= s->shot_timer > 0;
}

static int oxygen_cells(const State *s) { return s->oxygen > 0 ? s->oxygen * SIDE / FULL_OXYGEN : 0; }

static void raise_difficulty(State *s) {
  if (s->e_spawn_speed <= FASTEST_SPAWN && s->move_speed <= FASTEST_MOVE) return;
  if (s->move_speed > FASTEST_MOVE && s->ramp_index % 2) s->move_speed--;
  if (s->e_spawn_speed > FASTEST_SPAWN) s->e_spawn_speed--;
  s->ramp_index++;
}

/* Use up oxygen under water. Surfacing costs a diver, refills it and makes the game harder; without a diver it ends
   the game. A full boat earns the remaining oxygen, and gives all six divers and then one more: the count becomes
   -1, with which one may surface again, as in the original. */
static int breathe(State *s, int *reward) {
  const int is_used_up = s->oxygen <= 0;
  if (s->sub_y > 0) {
    s->oxygen--;
    s->surface = 0;
    return is_used_up;
  }
  if (s->surface) return is_used_up;
  if (s->diver_count == 0) return 1;
  if (s->diver_count == FULL_BOAT) {
    *reward += oxygen_cells(s);
    s->diver_count = 0;
  }
  s->diver_count--;
  s->oxygen = FULL_OXYGEN;
  s->surface = 1;
  raise_difficulty(s);
  return is_used_up;
}

static int play(void *state, int action, Random *random, int *reward) {
  State *s = state;
  spawn(s, random);
  steer(s, action);
  *reward = fly_shots(s);
  move_divers(s);
  int is_over = move_subs(s, reward);
  is_over |= fly_enemy_shots(s);
  is_over |= move_fish(s, reward);
  count_down(s);
  is_over |= breathe(s, reward);
  return is_over;
}

static void show(List list, Plane plane, Plane *trail) {
  const int end = length(list);
  for (int slot = 0; slot < end; slot++) {
    const int32_t *thing = thing_in(list, slot);
    mark(plane, thing[X], thing[Y]);
    if (trail) mark(*trail, thing[X] - heading(thing[HEADS_RIGHT]), thing[Y]);
  }
}

static void observe(const void *state, Plane *planes) {
  const State *s = state;
  mark(planes[FRONT], s->sub_x, s->sub_y);
  mark(planes[BACK], s->sub_x - heading(s->sub_or), s->sub_y);
  show(LIST(s->f_bullets), planes[SHOT], NULL);
  show(LIST(s->e_bullets), planes[ENEMY_SHOT], NULL);
  show(LIST(s->e_fish), planes[FISH], &planes[TRAIL]);
  show(LIST(s->e_subs), planes[SUB], &planes[TRAIL]);
  show(LIST(s->divers), planes[DIVER], &planes[TRAIL]);
  for (int cell = 0; cell < oxygen_cells(s); cell++) planes[OXYGEN][LAST][cell] = 1;
  for (int diver = 1; diver <= s->diver_count; diver++) planes[DIVERS_ABOARD][LAST][LAST - diver] = 1;
}

/* Things on the board, then empty slots only: what is behind a gap would come into play when the gap is filled. */
static int is_sound_list(List list) {
  const int end = length(list);
  for (int slot = 0; slot < list.slots; slot++) {
    const int32_t *thing = thing_in(list, slot);
    if (slot < end ? !is_inside(thing[X]) || !is_inside(thing[Y]) : thing[X] != EMPTY) return 0;
  }
  return 1;
}

static int is_sound(const void *state) {
  const State *s = state;
  return is_inside(s->sub_x) && is_inside(s->sub_y) && s->oxygen <= FULL_OXYGEN && s->diver_count <= FULL_BOAT &&
         is_sound_list(LIST(s->f_bullets)) && is_sound_list(LIST(s->e_bullets)) && is_sound_list(LIST(s->e_fish)) &&
         is_sound_list(LIST(s->e_subs)) && is_sound_list(LIST(s->divers));
}

const MinAtarGame seaquest = {
    sizeof(State), 10, 6, {STAY, LEFT, UP, RIGHT, DOWN, FIRE}, start, play, observe, is_sound};
