/* Five environments of classic control, with the equations and constants of Gymnasium's.

   Randomness is a function of an env's seed and the number of its draws, as in envs/toy.py. An env whose episode
   has ended is reset by its next step, which is not valid: it involves no decision. */
#include <math.h>
#include <stdint.h>

#include "random.h"
#include "rollout.h"

#define MOST_STATE CLASSIC_CONTROL_STATE /* which layout.py gives to the compiler */
#define MOST_STEPS (INT64_MAX / 2) /* of an episode: counting on does not overflow */
#define PI 3.14159265358979323846

enum { CARTPOLE, ACROBOT, MOUNTAIN_CAR, MOUNTAIN_CAR_CONTINUOUS, PENDULUM };

typedef struct {
  int32_t kind, num_envs;
  int64_t step_limit;
  double action_scale; /* of continuous actions, whose bounds are symmetric */
  double *state; /* [num_envs, MOST_STATE] */
  uint64_t *seed, *draws;
  int64_t *steps;
  uint8_t *done;
} Envs;

typedef struct {
  float *obs, *reward; /* [num_envs, numbers], [num_envs] */
  uint8_t *terminated, *truncated, *valid, *ended;
} Step;

/* Numbers in an observation. */
static const int32_t WIDTH[] = {
    [CARTPOLE] = 4, [ACROBOT] = 6, [MOUNTAIN_CAR] = 2, [MOUNTAIN_CAR_CONTINUOUS] = 2, [PENDULUM] = 3};

int32_t classic_control_width(int32_t kind) { return WIDTH[kind]; }

/* Whether all states, which may come from a file, can be continued from. */
int classic_control_is_sound(const Envs *e) {
  for (int64_t env = 0; env < e->num_envs; env++) {
    if (e->steps[env] < 0 || e->steps[env] > MOST_STEPS) return 0;
    for (int k = 0; k < MOST_STATE; k++)
      if (!isfinite(e->state[env * MOST_STATE + k])) return 0;
  }
  return 1;
}

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

static double between(const Envs *e, int64_t env, int part, double low, double high) {
  return low + (high - low) * uniform_at(e->seed[env], e->draws[env] * MOST_STATE + part);
}

static void start(const Envs *e, int64_t env) {
  double *s = e->state + env * MOST_STATE;
  switch (e->kind) {
    case CARTPOLE:
      for (int k = 0; k < 4; k++) s[k] = between(e, env, k, -0.05, 0.05);
      break;
    case ACROBOT:
      for (int k = 0; k < 4; k++) s[k] = between(e, env, k, -0.1, 0.1);
      break;
    case MOUNTAIN_CAR:
    case MOUNTAIN_CAR_CONTINUOUS:
      s[0] = between(e, env, 0, -0.6, -0.4);
      s[1] = 0;
      break;
    case PENDULUM:
      s[0] = between(e, env, 0, -PI, PI);
      s[1] = between(e, env, 1, -1, 1);
      break;
  }
  e->draws[env]++;
  e->steps[env] = 0;
  e->done[env] = 0;
}

static void observe(const Envs *e, int64_t env, float *obs) {
  const double *s = e->state + env * MOST_STATE;
  obs += env * WIDTH[e->kind];
  switch (e->kind) {
    case CARTPOLE:
      for (int k = 0; k < 4; k++) obs[k] = s[k];
      break;
    case ACROBOT:
      obs[0] = cos(s[0]), obs[1] = sin(s[0]), obs[2] = cos(s[1]), obs[3] = sin(s[1]), obs[4] = s[2], obs[5] = s[3];
      break;
    case MOUNTAIN_CAR:
    case MOUNTAIN_CAR_CONTINUOUS:
      obs[0] = s[0], obs[1] = s[1];
      break;
    case PENDULUM:
      obs[0] = cos(s[0]), obs[1] = sin(s[0]), obs[2] = s[1];
      break;
  }
}

/* Barto, Sutton & Anderson 1983; one Euler step. Returns whether the pole fell or the cart left. */
static int cartpole(double *s, int64_t action, double *reward) {
  const double gravity = 9.8, pole_mass = 0.1, total_mass = 1.1, half_length = 0.5, seconds = 0.02;
  const double force = action == 1 ? 10.0 : -10.0, pole = pole_mass * half_length;
  const double sine = sin(s[2]), cosine = cos(s[2]);
  const double push = (force + pole * s[3] * s[3] * sine) / total_mass;
  const double angular = (gravity * sine - cosine * push) /
                         (half_length * (4.0 / 3.0 - pole_mass * cosine * cosine / total_mass));
  const double linear = push - pole * angular * cosine / total_mass;
  s[0] += seconds * s[1];
  s[1] += seconds * linear;
  s[2] += seconds * s[3];
  s[3] += seconds * angular;
  *reward = 1;
  return s[0] < -2.4 || s[0] > 2.4 || s[2] < -12 * 2 * PI / 360 || s[2] > 12 * 2 * PI / 360;
}

/* Sutton & Barto 1998, with both links of mass, length and inertia 1. */
static void acrobot_derivative(const double *s, double torque, double *d) {
  const double gravity = 9.8, center = 0.5, inertia = 1.0;
  const double d1 = center * center + (1 + center * center + 2 * center * cos(s[1])) + 2 * inertia;
  const double d2 = center * center + center * cos(s[1]) + inertia;
  const double phi2 = center * gravity * cos(s[0] + s[1] - PI / 2);
  const double phi1 = -center * s[3] * s[3] * sin(s[1]) - 2 * center * s[3] * s[2] * sin(s[1]) +
                      (center + 1) * gravity * cos(s[0] - PI / 2) + phi2;
  d[0] = s[2];
  d[1] = s[3];
  d[3] = (torque + d2 / d1 * phi1 - center * s[2] * s[2] * sin(s[1]) - phi2) /
         (center * center + inertia - d2 * d2 / d1);
  d[2] = -(d2 * d[3] + phi1) / d1;
}

static double wrapped(double angle) {
  if (!(fabs(angle) < 1000)) angle = fmod(angle, 2 * PI); /* a state from a file: the loops would take forever */
  while (angle > PI) angle -= 2 * PI;
  while (angle < -PI) angle += 2 * PI;
  return angle;
}

/* One Runge-Kutta step of 0.2 seconds. Returns whether the tip is above the line. */
static int acrobot(double *s, int64_t action, double *reward) {
  const double seconds = 0.2, torque = (double)action - 1;
  double slope[4][4], at[4];
  for (int stage = 0; stage < 4; stage++) {
    const double ahead = stage == 0 ? 0 : stage == 3 ? seconds : seconds / 2;
    for (int k = 0; k < 4; k++) at[k] = s[k] + (stage ? ahead * slope[stage - 1][k] : 0);
    acrobot_derivative(at, torque, slope[stage]);
  }
  for (int k = 0; k < 4; k++)
    s[k] += seconds / 6 * (slope[0][k] + 2 * slope[1][k] + 2 * slope[2][k] + slope[3][k]);
  s[0] = wrapped(s[0]);
  s[1] = wrapped(s[1]);
  s[2] = clamp(s[2], -4 * PI, 4 * PI);
  s[3] = clamp(s[3], -9 * PI, 9 * PI);
  const int terminated = -cos(s[0]) - cos(s[1] + s[0]) > 1;
  *reward = terminated ? 0 : -1;
  return terminated;
}

/* Moore 1990: a car in a valley, pushed by `thrust`. */
static void roll(double *s, double thrust) {
  s[1] = clamp(s[1] + thrust - 0.0025 * cos(3 * s[0]), -0.07, 0.07);
  s[0] = clamp(s[0] + s[1], -1.2, 0.6);
  if (s[0] == -1.2 && s[1] < 0) s[1] = 0;
}

static int mountain_car(double *s, int64_t action, double *reward) {
  roll(s, ((double)action - 1) * 0.001);
  *reward = -1;
  return s[0] >= 0.5 && s[1] >= 0;
}

static int mountain_car_continuous(double *s, double action, double *reward) {
  const double force = clamp(action, -1, 1);
  roll(s, force * 0.0015);
  const int terminated = s[0] >= 0.45 && s[1] >= 0;
  *reward = 100.0 * terminated - 0.1 * force * force;
  return terminated;
}

static int pendulum(double *s, double action, double *reward) {
  const double torque = clamp(action, -2, 2), seconds = 0.05;
  const double angle = wrapped(fmod(s[0], 2 * PI));
  *reward = -(angle * angle + 0.1 * s[1] * s[1] + 0.001 * torque * torque);
  s[1] = clamp(s[1] + (15 * sin(s[0]) + 3 * torque) * seconds, -8, 8);
  s[0] += s[1] * seconds;
  return 0;
}

static int play(const Envs *e, int64_t env, const void *action, double *reward) {
  double *s = e->state + env * MOST_STATE;
  switch (e->kind) {
    case CARTPOLE:
      return cartpole(s, ((const int64_t *)action)[env], reward);
    case ACROBOT:
      return acrobot(s, ((const int64_t *)action)[env], reward);
    case MOUNTAIN_CAR:
      return mountain_car(s, ((const int64_t *)action)[env], reward);
    case MOUNTAIN_CAR_CONTINUOUS:
      return mountain_car_continuous(s, e->action_scale * ((const float *)action)[env], reward);
    default:
      return pendulum(s, e->action_scale * ((const float *)action)[env], reward);
  }
}

void reset_envs(const Envs *e, float *obs) {
  for (int64_t env = 0; env < e->num_envs; env++) {
    start(e, env);
    observe(e, env, obs);
  }
}

void step_envs(const Envs *e, const void *action, const Step *out) {
  for (int64_t env = 0; env < e->num_envs; env++) {
    double reward = 0;
    int terminated = 0, truncated = 0;
    const int valid = !e->done[env];
    if (valid) {
      terminated = play(e, env, action, &reward);
      e->steps[env]++;
      truncated = !terminated && e->steps[env] >= e->step_limit;
      e->done[env] = terminated || truncated;
    } else {
      start(e, env);
    }
    observe(e, env, out->obs);
    out->reward[env] = reward;
    out->terminated[env] = terminated;
    out->truncated[env] = truncated;
    out->valid[env] = valid;
    out->ended[env] = terminated || truncated;
  }
}

/* Some of the envs. */
static Envs part_of(const Envs *all, Range envs) {
  Envs part = *all;
  part.num_envs = length(envs);
  part.state += envs.start * MOST_STATE;
  part.seed += envs.start, part.draws += envs.start, part.steps += envs.start, part.done += envs.start;
  return part;
}

/* A step of a rollout. */
void classic_control_row(const void *envs, const EnvRow *row) {
  const Step out = {row->obs, row->reward, row->terminated, row->truncated, row->valid, row->ended};
  const Envs here = part_of(envs, row->envs);
  step_envs(&here, row->action, &out);
}
