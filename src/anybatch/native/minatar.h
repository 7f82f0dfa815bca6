/* What MinAtar's games share. Each has its own file; minatar.c steps any of them. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "random.h"

#define SIDE MINATAR_SIDE /* which layout.py gives to the compiler */
#define LAST (SIDE - 1)

enum { STAY, LEFT, UP, RIGHT, DOWN, FIRE };

typedef uint8_t Plane[SIDE][SIDE]; /* rows, columns; each cell is 0 or 1 */

typedef struct {
  uint64_t seed, draws;
} Random;

/* Rules without memory: the whole state of a game is in `state`, and `actions` are those it knows. */
typedef struct {
  size_t state_bytes;
  int planes, num_actions;
  uint8_t actions[6];
  void (*start)(void *state, Random *random);
  int (*play)(void *state, int action, Random *random, int *reward); /* whether the game is over */
  void (*observe)(const void *state, Plane *planes);                 /* `planes` are empty before */
  int (*is_sound)(const void *state); /* whether continuing from it stays within memory */
} MinAtarGame;

extern const MinAtarGame asterix, breakout, freeway, seaquest, space_invaders;

/* Whether an event of this probability happens. */
static inline int chance(Random *random, double probability) {
  return uniform_at(random->seed, random->draws++) < probability;
}

/* 0 … count - 1, all equally likely. */
static inline int pick(Random *random, int count) {
  return (int)(uniform_at(random->seed, random->draws++) * count);
}

static inline int is_inside(int x) { return x >= 0 && x < SIDE; }

static inline int within(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

/* How far an action moves along an axis. */
static inline int steered(int action, int back, int ahead) { return (action == ahead) - (action == back); }

static inline int heading(int right) { return right ? 1 : -1; }

static inline void mark(Plane plane, int x, int y) {
  if (is_inside(x)) plane[y][x] = 1;
}
