/* Acting with action values, and the gradient of their squared errors. Reference: networks/q_network.py and
   algorithms/pqn/loop.py. */
#include "network.h"
#include "rollout.h"
#include "step.h"

typedef struct {
  Encoder encoder;
  Linear head;
} QNetwork;

typedef struct {
  const void *obs;       /* real [samples, inputs], or bytes [samples, planes, height, width] */
  const int64_t *action; /* [samples] */
  const real *target;    /* [samples] */
} QSamples;

/* Numbers that `q_act` and `q_gradient` need to work on `n` samples. */
int64_t q_workspace(const QNetwork *net, int64_t n) {
  const Encoder *e = &net->encoder;
  const int64_t scratch = larger(scratch_of(e), (int64_t)net->head.inputs * net->head.outputs);
  return scratch + obs_room(e, n) + n * (kept_of(e) + 2 * widest(e) + 2 * net->head.outputs);
}

static int best_of(int count, const real *x) {
  int best = 0;
  for (int j = 1; j < count; j++)
    if (x[j] > x[best]) best = j;
  return best;
}

/* Action values [n, actions], the values of the best ones [n], and the actions: the best one or, with
   probability epsilon, a random one. The largest entry of an env's Gumbel noise decides both which and whether. */
void q_act(const QNetwork *net, double epsilon, int32_t n, const void *obs, const real *noise, real *location,
           int64_t *action, real *value, real *work) {
  const int actions = net->head.outputs;
  real *scratch = work + n * kept_of(&net->encoder);
  linear(&net->head, n, encode(&net->encoder, n, obs, work, scratch), location);
  for (int i = 0; i < n; i++) {
    const real *here = location + i * actions, *chance = noise + i * actions;
    const int best = best_of(actions, here), other = best_of(actions, chance);
    value[i] = here[best];
    action[i] = exp(-actions * exp(-(double)chance[other])) < epsilon ? other : best;
  }
}

/* Acts and steps the envs, in turns. */
void q_rollout(const QNetwork *net, double epsilon, Rollout *r, real *work) {
  for (int t = 0; t < r->num_steps; t++) {
    const int64_t at = (int64_t)t * r->num_envs;
    q_act(net, epsilon, r->num_envs, r->obs + at * r->obs_bytes, (const real *)r->noise + t * r->noise_row,
          (real *)r->location + at * r->location_width, (int64_t *)r->action + at, (real *)r->value + at, work);
    step_row(r, t);
  }
}

/* `q_gradient` of samples whose numbers stay in the cache. */
APART void add_q_gradient(const QNetwork *net, const QSamples *s, double coefficient, double count,
                           const int64_t *index, int n, real *error, real *value, real *work) {
  const Encoder *e = &net->encoder;
  const int actions = net->head.outputs, features = net->head.inputs, width = widest(e);
  real *obs = work, *kept = obs + obs_room(e, n), *d_features = kept + n * kept_of(e);
  real *d_work = d_features + n * width, *location = d_work + n * width, *d_location = location + n * actions;
  real *scratch = d_location + n * actions;

  gather(e, s->obs, index, n, obs);
  const real *seen = encode(e, n, obs, kept, scratch);
  linear(&net->head, n, seen, location);
  memset(d_location, 0, sizeof(real) * n * actions);
  for (int i = 0; i < n; i++) {
    const int64_t taken = i * actions + s->action[index[i]];
    const real distance = location[taken] - s->target[index[i]];
    d_location[taken] = (real)(2 * coefficient / count) * distance;
    error[i] = distance * distance;
    value[i] = location[taken];
  }
  linear_gradient(&net->head, n, seen, d_location, scratch);
  memset(d_features, 0, sizeof(real) * n * features);
  linear_input_gradient(&net->head, n, d_location, d_features);
  encode_gradient(e, n, obs, kept, d_features, d_work, scratch);
}

/* Adds the gradient of coefficient / count * (Q(s, a) - target)^2 over the samples `index`[n]. */
void q_gradient(const QNetwork *net, const QSamples *s, double coefficient, double count, const int64_t *index,
                int32_t n, real *error, real *value, real *work) {
  const int parts = parts_of(n);
  const Subnormals before = flush_subnormals();
  for (int part = 0; part < parts; part++) {
    const int start = (int64_t)n * part / parts, end = (int64_t)n * (part + 1) / parts;
    add_q_gradient(net, s, coefficient, count, index + start, end - start, error + start, value + start, work);
  }
  restore_subnormals(before);
}

/* Gradient steps, as `ppo_steps` in ppo.c. */
int32_t q_steps(const QNetwork *net, const QSamples *s, double coefficient, const int64_t *index, real *error,
                real *value, real *work, const Weights *weights, Step *step, int32_t steps) {
  memset(weights->gradient, 0, sizeof(real) * weights->count);
  for (int taken = 0; taken < steps; taken++) {
    const int64_t n = step[taken].samples;
    q_gradient(net, s, coefficient, n, index, n, error, value, work);
    if (!take_step(weights, step + taken)) return taken;
    index += n, error += n, value += n;
  }
  return steps;
}
