/* Collecting a rollout: acting and stepping in turns, without a program in between. Envs do not depend on each other, so
   each member of a team (team.h) collects with its own. */
#ifndef ANYBATCH_ROLLOUT_H
#define ANYBATCH_ROLLOUT_H

#include "team.h"

/* Observations that ended episodes, where envs are reset within the step that ends them; in no particular order. */
typedef struct {
  uint8_t *obs;        /* [count, bytes of one] */
  int32_t *step, *env; /* [count] */
  int64_t count;
} Finals;

/* What a step of some envs takes and returns, one of each per env. */
typedef struct {
  Range envs;
  const void *action;
  void *obs;
  float *reward;
  uint8_t *terminated, *truncated, *valid, *ended;
  int32_t number; /* of the step */
  Finals *finals;
} EnvRow;

typedef void (*StepEnvs)(const void *envs, const EnvRow *row);

/* All that is seen, decided and returned. Arrays are [num_steps, num_envs, ...]. */
typedef struct {
  StepEnvs step;
  const void *envs;
  int32_t num_envs, num_steps;
  int64_t obs_bytes, action_bytes, params_width; /* of one env; its noise is as wide as its params */
  int64_t noise_row;                               /* numbers from one row of noise to the next */
  uint8_t *obs;                                    /* [num_steps + 1, ...]; the first row is given */
  const void *noise;
  void *params, *value; /* no values where null */
  uint8_t *action;
  float *reward;
  uint8_t *terminated, *truncated, *valid, *ended;
  Finals finals;
} Rollout;

/* What acting in some envs takes and returns, one row of each per env. */
typedef struct {
  const void *obs;
  const real *noise;
  real *params, *value;
  void *action;
} ActingRow;

static inline ActingRow acting_row(const Rollout *r, Range envs, int t) {
  const int64_t at = (int64_t)t * r->num_envs + envs.start;
  return (ActingRow){
      .obs = r->obs + at * r->obs_bytes,
      .noise = (const real *)r->noise + t * r->noise_row + envs.start * r->params_width,
      .params = (real *)r->params + at * r->params_width,
      .value = r->value ? (real *)r->value + at : 0,
      .action = r->action + at * r->action_bytes,
  };
}

/* Step these envs with the actions of row t. */
static inline void step_row(Rollout *r, Range envs, int t) {
  const int64_t at = (int64_t)t * r->num_envs + envs.start;
  const EnvRow row = {
      .envs = envs,
      .action = r->action + at * r->action_bytes,
      .obs = r->obs + (at + r->num_envs) * r->obs_bytes,
      .reward = r->reward + at,
      .terminated = r->terminated + at,
      .truncated = r->truncated + at,
      .valid = r->valid + at,
      .ended = r->ended + at,
      .number = t,
      .finals = &r->finals,
  };
  r->step(r->envs, &row);
}

#endif
