/* Asterix: gold to collect and enemies to avoid cross eight rows, one at a time in each. */
#include "minatar.h"

#define ROWS 8
#define EMPTY 99 /* every number of a row without an entity */
#define RAMP_INTERVAL 100
#define FIRST_SPAWN_SPEED 10
#define FIRST_MOVE_SPEED 5

enum { PLAYER, ENEMY, TRAIL, GOLD };

typedef struct {
  int32_t x, y, right, is_gold;
} Entity;

/* Speeds are steps between two events, timers the remaining steps. */
typedef struct {
  int32_t player_x, player_y;
  int32_t spawn_speed, spawn_timer, move_speed, move_timer;
  int32_t ramp_timer, ramp_index;
  Entity entities[ROWS];
} State;

static const Entity NOTHING = {EMPTY, EMPTY, EMPTY, EMPTY};

static void start(void *state, Random *random) {
  (void)random;
  State *s = state;
  for (int row = 0; row < ROWS; row++) s->entities[row] = NOTHING;
  s->player_x = s->player_y = 5;
  s->spawn_speed = s->spawn_timer = FIRST_SPAWN_SPEED;
  s->move_speed = s->move_timer = FIRST_MOVE_SPEED;
  s->ramp_timer = RAMP_INTERVAL;
}

/* Let gold or an enemy into a row that is free, if there is one. */
static void spawn(State *s, Random *random) {
  const int right = chance(random, 1.0 / 2), is_gold = chance(random, 1.0 / 3);
  int free_rows[ROWS], num_free = 0;
  for (int row = 0; row < ROWS; row++)
    if (s->entities[row].x == EMPTY) free_rows[num_free++] = row;
  if (!num_free) return;
  const int row = free_rows[pick(random, num_free)];
  s->entities[row] = (Entity){right ? 0 : LAST, row + 1, right, is_gold};
}

/* The player takes gold in its cell. Returns whether it meets an enemy there. */
static int meet(State *s, int *reward) {
  int is_over = 0;
  for (int row = 0; row < ROWS; row++) {
    Entity *entity = &s->entities[row];
    if (entity->x != s->player_x || entity->y != s->player_y) continue;
    if (entity->is_gold) {
      *entity = NOTHING;
      ++*reward;
    } else {
      is_over = 1;
    }
  }
  return is_over;
}

static void move(State *s) {
  for (int row = 0; row < ROWS; row++) {
    Entity *entity = &s->entities[row];
    if (entity->x == EMPTY) continue;
    entity->x += heading(entity->right);
    if (!is_inside(entity->x)) *entity = NOTHING;
  }
}

static void raise_difficulty(State *s) {
  if (s->spawn_speed == 1 && s->move_speed == 1) return;
  if (s->ramp_timer-- >= 0) return;
  if (s->move_speed > 1 && s->ramp_index % 2) s->move_speed--;
  if (s->spawn_speed > 1) s->spawn_speed--;
  s->ramp_index++;
  s->ramp_timer = RAMP_INTERVAL;
}

static int play(void *state, int action, Random *random, int *reward) {
  State *s = state;
  if (s->spawn_timer == 0) {
    spawn(s, random);
    s->spawn_timer = s->spawn_speed;
  }
  s->player_x = within(s->player_x + steered(action, LEFT, RIGHT), 0, LAST);
  s->player_y = within(s->player_y + steered(action, UP, DOWN), 1, ROWS);
  int is_over = meet(s, reward);
  if (s->move_timer == 0) {
    s->move_timer = s->move_speed;
    move(s);
    is_over |= meet(s, reward);
  }
  s->spawn_timer--;
  s->move_timer--;
  raise_difficulty(s);
  return is_over;
}

static void observe(const void *state, Plane *planes) {
  const State *s = state;
  planes[PLAYER][s->player_y][s->player_x] = 1;
  for (int row = 0; row < ROWS; row++) {
    const Entity *entity = &s->entities[row];
    if (entity->x == EMPTY) continue;
    mark(planes[entity->is_gold ? GOLD : ENEMY], entity->x, entity->y);
    mark(planes[TRAIL], entity->x - heading(entity->right), entity->y);
  }
}

static int is_sound(const void *state) {
  const State *s = state;
  for (int row = 0; row < ROWS; row++) {
    const Entity *entity = &s->entities[row];
    if (entity->x != EMPTY && !(is_inside(entity->x) && is_inside(entity->y))) return 0;
  }
  return is_inside(s->player_x) && is_inside(s->player_y);
}

const MinAtarGame asterix = {
    sizeof(State), 4, 5, {STAY, LEFT, UP, RIGHT, DOWN}, start, play, observe, is_sound};
