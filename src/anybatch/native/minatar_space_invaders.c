/* Space Invaders: a cannon below a block of aliens that march across and down, faster as they become fewer. */
#include "minatar.h"

#define SHOT_INTERVAL 5
#define ALIEN_SHOT_INTERVAL 10
#define SLOWEST_MARCH 12
#define FASTEST_MARCH 6 /* of a full block */

enum { CANNON, ALIEN, ALIEN_LEFT, ALIEN_RIGHT, SHOT, ALIEN_SHOT };

typedef struct {
  int32_t pos, shot_timer;
  int32_t alien_dir; /* 1 to the right, -1 to the left */
  int32_t enemy_move_interval, alien_move_timer, alien_shot_timer, ramp_index;
  Plane f_bullet_map, e_bullet_map, alien_map;
} State;

static void bring_aliens(State *s) {
  for (int y = 0; y < 4; y++) memset(&s->alien_map[y][2], 1, 6);
}

static void start(void *state, Random *random) {
  (void)random;
  State *s = state;
  s->pos = 5;
  s->alien_dir = -1;
  s->enemy_move_interval = s->alien_move_timer = SLOWEST_MARCH;
  s->alien_shot_timer = ALIEN_SHOT_INTERVAL;
  bring_aliens(s);
}

static int count(const Plane *plane) {
  const uint8_t *cells = (const uint8_t *)plane;
  int sum = 0;
  for (size_t cell = 0; cell < sizeof *plane; cell++) sum += cells[cell];
  return sum;
}

static void shift_up(Plane plane) {
  memmove(plane, plane + 1, LAST * SIDE);
  memset(plane[LAST], 0, SIDE);
}

static void shift_down(Plane plane) {
  memmove(plane + 1, plane, LAST * SIDE);
  memset(plane[0], 0, SIDE);
}

static void shift_across(Plane plane, int direction) {
  for (int y = 0; y < SIDE; y++) {
    uint8_t *row = plane[y];
    if (direction > 0)
      memmove(row + 1, row, LAST), row[0] = 0;
    else
      memmove(row, row + 1, LAST), row[LAST] = 0;
  }
}

/* Aliens march on, or at the edge down and around. Returns whether they have landed. */
static int march(State *s) {
  const int edge = s->alien_dir < 0 ? 0 : LAST;
  int at_edge = 0;
  for (int y = 0; y < SIDE; y++) at_edge |= s->alien_map[y][edge];
  if (!at_edge) {
    shift_across(s->alien_map, s->alien_dir);
    return 0;
  }
  uint8_t landed[SIDE]; /* they come back at the top, which is still seen */
  memcpy(landed, s->alien_map[LAST], SIDE);
  s->alien_dir = -s->alien_dir;
  shift_down(s->alien_map);
  memcpy(s->alien_map[0], landed, SIDE);
  return memchr(landed, 1, SIDE) != NULL;
}

/* Of the aliens nearest across, on the left first, the lowest shoots. */
static void shoot_back(State *s) {
  for (int distance = 0; distance < SIDE; distance++)
    for (int side = -1; side <= 1; side += 2) {
      const int x = s->pos + side * distance;
      for (int y = LAST; is_inside(x) && y >= 0; y--)
        if (s->alien_map[y][x]) {
          s->e_bullet_map[y][x] = 1;
          return;
        }
    }
}

static int hits(State *s) {
  int sum = 0;
  uint8_t *alien = (uint8_t *)&s->alien_map, *shot = (uint8_t *)&s->f_bullet_map;
  for (size_t cell = 0; cell < sizeof s->alien_map; cell++) {
    const uint8_t is_hit = alien[cell] & shot[cell];
    alien[cell] ^= is_hit;
    shot[cell] ^= is_hit;
    sum += is_hit;
  }
  return sum;
}

static int play(void *state, int action, Random *random, int *reward) {
  (void)random;
  State *s = state;
  if (action == FIRE && s->shot_timer == 0) {
    s->f_bullet_map[LAST][s->pos] = 1;
    s->shot_timer = SHOT_INTERVAL;
  }
  s->pos = within(s->pos + steered(action, LEFT, RIGHT), 0, LAST);
  shift_up(s->f_bullet_map);
  shift_down(s->e_bullet_map);
  int is_over = s->e_bullet_map[LAST][s->pos] || s->alien_map[LAST][s->pos];
  if (s->alien_move_timer == 0) {
    const int aliens = count(&s->alien_map);
    s->alien_move_timer = aliens < s->enemy_move_interval ? aliens : s->enemy_move_interval;
    is_over |= march(s);
    is_over |= s->alien_map[LAST][s->pos];
  }
  if (s->alien_shot_timer == 0) {
    s->alien_shot_timer = ALIEN_SHOT_INTERVAL;
    shoot_back(s);
  }
  *reward = hits(s);
  s->shot_timer -= s->shot_timer > 0;
  s->alien_move_timer--;
  s->alien_shot_timer--;
  if (count(&s->alien_map) == 0) {
    if (s->enemy_move_interval > FASTEST_MARCH) {
      s->enemy_move_interval--;
      s->ramp_index++;
    }
    bring_aliens(s);
  }
  return is_over;
}

static void observe(const void *state, Plane *planes) {
  const State *s = state;
  planes[CANNON][LAST][s->pos] = 1;
  memcpy(planes[ALIEN], s->alien_map, sizeof(Plane));
  memcpy(planes[s->alien_dir < 0 ? ALIEN_LEFT : ALIEN_RIGHT], s->alien_map, sizeof(Plane));
  memcpy(planes[SHOT], s->f_bullet_map, sizeof(Plane));
  memcpy(planes[ALIEN_SHOT], s->e_bullet_map, sizeof(Plane));
}

static int is_sound(const void *state) {
  const State *s = state;
  return is_inside(s->pos);
}

const MinAtarGame space_invaders = {
    sizeof(State), 6, 4, {STAY, LEFT, RIGHT, FIRE}, start, play, observe, is_sound};
