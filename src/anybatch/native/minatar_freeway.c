/* Freeway: a chicken crosses eight lanes; a car that hits it sends it back. */
#include "minatar.h"

#define LANES 8
#define COLUMN 4 /* of the chicken */
#define MOVE_INTERVAL 3
#define STEPS 2500
#define SPEEDS 5

enum { CHICKEN, CAR, TRAIL_OF_SPEED_1 };

typedef struct {
  int32_t x, y;
  int32_t move_in; /* steps until it moves */
  int32_t speed;   /* steps that it waits between two moves, negative if it heads left */
} Car;

typedef struct {
  int32_t pos, move_timer, terminate_timer;
  Car cars[LANES];
} State;

static int magnitude(int speed) { return speed < 0 ? -speed : speed; }

static int wrapped(int x) { return (x + SIDE) % SIDE; }

static void draw_speeds(State *s, Random *random) {
  for (int lane = 0; lane < LANES; lane++) s->cars[lane].move_in = 1 + pick(random, SPEEDS);
  for (int lane = 0; lane < LANES; lane++)
    s->cars[lane].speed = s->cars[lane].move_in * heading(pick(random, 2));
}

static void start(void *state, Random *random) {
  State *s = state;
  for (int lane = 0; lane < LANES; lane++) s->cars[lane].y = lane + 1;
  draw_speeds(s, random);
  s->pos = LAST;
  s->move_timer = MOVE_INTERVAL;
  s->terminate_timer = STEPS;
}

static void send_back_if_hit(State *s, const Car *car) {
  if (car->x == COLUMN && car->y == s->pos) s->pos = LAST;
}

static void drive(State *s, Car *car) {
  send_back_if_hit(s, car);
  if (car->move_in-- > 0) return;
  car->move_in = magnitude(car->speed);
  car->x = wrapped(car->x + heading(car->speed > 0));
  send_back_if_hit(s, car);
}

static int play(void *state, int action, Random *random, int *reward) {
  State *s = state;
  if ((action == UP || action == DOWN) && s->move_timer == 0) {
    s->move_timer = MOVE_INTERVAL;
    s->pos = within(s->pos + steered(action, UP, DOWN), 0, LAST);
  }
  if (s->pos == 0) {
    *reward = 1;
    draw_speeds(s, random);
    s->pos = LAST;
  }
  for (int lane = 0; lane < LANES; lane++) drive(s, &s->cars[lane]);
  s->move_timer -= s->move_timer > 0;
  s->terminate_timer--;
  return s->terminate_timer < 0;
}

static void observe(const void *state, Plane *planes) {
  const State *s = state;
  planes[CHICKEN][s->pos][COLUMN] = 1;
  for (int lane = 0; lane < LANES; lane++) {
    const Car *car = &s->cars[lane];
    planes[CAR][car->y][car->x] = 1;
    Plane *trail = planes + TRAIL_OF_SPEED_1 + magnitude(car->speed) - 1;
    (*trail)[car->y][wrapped(car->x - heading(car->speed > 0))] = 1;
  }
}

static int is_sound(const void *state) {
  const State *s = state;
  for (int lane = 0; lane < LANES; lane++) {
    const Car *car = &s->cars[lane];
    const int has_speed = car->speed != 0 && within(car->speed, -SPEEDS, SPEEDS) == car->speed;
    if (!has_speed || !is_inside(car->x) || !is_inside(car->y)) return 0;
  }
  return is_inside(s->pos);
}

const MinAtarGame freeway = {sizeof(State), 7, 3, {STAY, UP, DOWN}, start, play, observe, is_sound};
