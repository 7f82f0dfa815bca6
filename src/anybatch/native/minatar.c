/* MinAtar's five games, by the rules and probabilities of the package minatar 1.0.15.

   An env's randomness is a function of its seed and the number of its draws, which are made in the order of the
   original's: with the same numbers both play the same episodes. An action is repeated with probability
   `sticky`, also over the end of an episode, as in the original. An env whose episode has ended stays at its end
   until `start_minatar`. */
#include "minatar.h"
#include "rollout.h"

#define MOST 1000000000              /* of a number in a state: counting on does not overflow for years */
#define MOST_STEPS (INT64_MAX / 2) /* of an episode, likewise */

typedef struct {
  const MinAtarGame *game;
  int32_t num_envs;
  int64_t step_limit;
  double sticky;
  uint8_t *state; /* [num_envs, state_bytes of the game]; the others are [num_envs] */
  uint64_t *seed, *draws;
  int64_t *steps;        /* of the episode */
  int64_t *last_action;  /* as the original numbers them */
  const int64_t *action; /* from here on: of the current step */
  float *reward;
  uint8_t *terminated, *truncated, *ended;
} Envs;

/* A state is numbers, then perhaps maps, of which four bytes are a small number too. */
static int has_small_numbers(const uint8_t *state, size_t bytes) {
  for (size_t place = 0; place < bytes; place += sizeof(int32_t)) {
    int32_t number;
    memcpy(&number, state + place, sizeof number);
    if (number < -MOST || number > MOST) return 0;
  }
  return 1;
}

/* Whether all states, which may come from a file, can be continued from. */
int minatar_is_sound(const Envs *e) {
  const MinAtarGame *game = e->game;
  for (int64_t env = 0; env < e->num_envs; env++) {
    const uint8_t *state = e->state + env * game->state_bytes;
    if (e->steps[env] < 0 || e->steps[env] > MOST_STEPS) return 0;
    if (!has_small_numbers(state, game->state_bytes) || !game->is_sound(state)) return 0;
  }
  return 1;
}

static void show(const MinAtarGame *game, const void *state, Plane *obs) {
  memset(obs, 0, game->planes * sizeof(Plane));
  game->observe(state, obs);
}

/* Start new episodes in the envs that have ended, and write their rows of `obs`, [num_envs, planes]. */
void start_minatar(const Envs *e, Plane *obs) {
  const MinAtarGame *game = e->game;
  for (int64_t env = 0; env < e->num_envs; env++) {
    if (!e->ended[env]) continue;
    uint8_t *state = e->state + env * game->state_bytes;
    Random random = {e->seed[env], e->draws[env]};
    memset(state, 0, game->state_bytes);
    game->start(state, &random);
    e->draws[env] = random.draws;
    e->steps[env] = 0;
    show(game, state, obs + env * game->planes);
  }
}

/* One step of all envs. Returns how many of their episodes have ended. */
int play_minatar(const Envs *e, Plane *obs) {
  const MinAtarGame *game = e->game;
  int num_ended = 0;
  for (int64_t env = 0; env < e->num_envs; env++) {
    uint8_t *state = e->state + env * game->state_bytes;
    Random random = {e->seed[env], e->draws[env]};
    if (!chance(&random, e->sticky)) {
      const int64_t action = e->action[env];
      e->last_action[env] = action >= 0 && action < game->num_actions ? game->actions[action] : STAY;
    }
    int reward = 0;
    const int terminated = game->play(state, (int)e->last_action[env], &random, &reward);
    e->draws[env] = random.draws;
    e->steps[env]++;
    const int truncated = !terminated && e->steps[env] >= e->step_limit;
    show(game, state, obs + env * game->planes);
    e->reward[env] = reward;
    e->terminated[env] = terminated;
    e->truncated[env] = truncated;
    e->ended[env] = terminated || truncated;
    num_ended += e->ended[env];
  }
  return num_ended;
}

/* Some of the envs. */
static Envs part_of(const Envs *all, Range envs) {
  Envs part = *all;
  part.num_envs = length(envs);
  part.state += envs.start * all->game->state_bytes;
  part.seed += envs.start, part.draws += envs.start, part.steps += envs.start, part.last_action += envs.start;
  return part;
}

static void keep_final(Finals *finals, const Plane *obs, int planes, int step, int env) {
  const int64_t place = __atomic_fetch_add(&finals->count, 1, __ATOMIC_RELAXED); /* other threads keep theirs */
  memcpy(finals->obs + place * planes * sizeof(Plane), obs, planes * sizeof(Plane));
  finals->step[place] = step;
  finals->env[place] = env;
}

/* A step of a rollout: what ends an episode is kept apart, and the row shows the start of the next. */
void minatar_row(const void *envs, const EnvRow *row) {
  Envs here = part_of(envs, row->envs);
  const int planes = here.game->planes;
  Plane *obs = row->obs;
  here.action = row->action;
  here.reward = row->reward;
  here.terminated = row->terminated, here.truncated = row->truncated, here.ended = row->ended;
  memset(row->valid, 1, here.num_envs);
  if (!play_minatar(&here, obs)) return;
  for (int64_t env = 0; env < here.num_envs; env++)
    if (here.ended[env]) keep_final(row->finals, obs + env * planes, planes, row->number, row->envs.start + env);
  start_minatar(&here, obs);
}
