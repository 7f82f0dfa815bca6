/* Collecting a rollout: acting and stepping in turns, without a program in between. */
#ifndef ANYBATCH_ROLLOUT_H
#define ANYBATCH_ROLLOUT_H

#include <stdint.h>

/* Observations that ended episodes, where envs are reset within the step that ends them. */
typedef struct {
  uint8_t *obs;        /* [count, bytes of one] */
  int32_t *step, *env; /* [count] */
  int64_t count;
} Finals;

/* What a step of all envs takes and returns, [num_envs] each. */
typedef struct {
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
  int64_t obs_bytes, action_bytes, location_width; /* of one env */
  int64_t noise_row;                               /* numbers from one row of noise to the next */
  uint8_t *obs;                                    /* [num_steps + 1, ...]; the first row is given */
  const void *noise;
  void *location, *value; /* no values where null */
  uint8_t *action;
  float *reward;
  uint8_t *terminated, *truncated, *valid, *ended;
  Finals finals;
} Rollout;

/* Step the envs with the actions of row t. */
static inline void step_row(Rollout *r, int t) {
  const int64_t at = (int64_t)t * r->num_envs;
  const EnvRow row = {
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
