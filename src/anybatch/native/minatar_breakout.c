/* Breakout: a paddle, a ball that flies along diagonals, three rows of bricks. */
#include "minatar.h"

enum { PADDLE, BALL, TRAIL, BRICK };

/* Directions are 0 left up, 1 right up, 2 right down, 3 left down. */
typedef struct {
  int32_t ball_x, ball_y, ball_dir, last_x, last_y;
  int32_t pos;
  int32_t strike; /* whether the ball is still among bricks after breaking one: it does not break a second */
  Plane brick_map;
} State;

static int mirrored_across(int direction) { return direction ^ 1; }
static int mirrored_down(int direction) { return 3 - direction; }
static int reversed(int direction) { return direction ^ 2; }

static void build_wall(State *s) { memset(s->brick_map + 1, 1, 3 * SIDE); }

static void start(void *state, Random *random) {
  State *s = state;
  const int from_right = pick(random, 2);
  s->ball_x = s->last_x = from_right ? LAST : 0;
  s->ball_y = s->last_y = 3;
  s->ball_dir = from_right ? 3 : 2;
  s->pos = 4;
  build_wall(s);
}

/* The ball comes to the paddle's row. Returns whether it falls; otherwise it bounces off, back where it came from
   if it meets the paddle's edge. */
static int passes_paddle(State *s, int x) {
  if (!memchr(s->brick_map, 1, sizeof s->brick_map)) build_wall(s);
  if (s->last_x == s->pos)
    s->ball_dir = mirrored_down(s->ball_dir);
  else if (x == s->pos)
    s->ball_dir = reversed(s->ball_dir);
  else
    return 1;
  return 0;
}

static int play(void *state, int action, Random *random, int *reward) {
  (void)random;
  State *s = state;
  s->pos = within(s->pos + steered(action, LEFT, RIGHT), 0, LAST);
  s->last_x = s->ball_x;
  s->last_y = s->ball_y;
  int x = s->ball_x + heading(s->ball_dir == 1 || s->ball_dir == 2);
  int y = s->ball_y + (s->ball_dir >= 2 ? 1 : -1);
  if (!is_inside(x)) {
    x = within(x, 0, LAST);
    s->ball_dir = mirrored_across(s->ball_dir);
  }
  int is_over = 0, meets_brick = 0;
  if (y < 0) {
    y = 0;
    s->ball_dir = mirrored_down(s->ball_dir);
  } else if (s->brick_map[y][x]) {
    meets_brick = 1;
    if (!s->strike) {
      *reward = 1;
      s->brick_map[y][x] = 0;
      y = s->last_y;
      s->ball_dir = mirrored_down(s->ball_dir);
    }
  } else if (y == LAST) {
    is_over = passes_paddle(s, x);
    if (!is_over) y = s->last_y;
  }
  s->strike = meets_brick;
  s->ball_x = x;
  s->ball_y = y;
  return is_over;
}

static void observe(const void *state, Plane *planes) {
  const State *s = state;
  planes[PADDLE][LAST][s->pos] = 1;
  planes[BALL][s->ball_y][s->ball_x] = 1;
  planes[TRAIL][s->last_y][s->last_x] = 1;
  memcpy(planes[BRICK], s->brick_map, sizeof(Plane));
}

static int is_sound(const void *state) {
  const State *s = state;
  const int has_ball = is_inside(s->ball_x) && within(s->ball_y, 0, LAST - 1) == s->ball_y;
  const int has_direction = s->ball_dir >= 0 && s->ball_dir < 4;
  return has_ball && has_direction && is_inside(s->last_x) && is_inside(s->last_y) && is_inside(s->pos);
}

const MinAtarGame breakout = {sizeof(State), 4, 3, {STAY, LEFT, RIGHT}, start, play, observe, is_sound};
