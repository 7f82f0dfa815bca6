/* Acting with action values, and the gradient of their squared errors. Reference: networks/q_network.py and
   algorithms/pqn.py. */
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

static int64_t scratch_numbers(const QNetwork *net) {
  return larger(scratch_of(&net->encoder), linear_scratch(&net->head));
}

static int64_t numbers_per_sample(const QNetwork *net) {
  return kept_of(&net->encoder) + 2 * widest(&net->encoder) + 2 * net->head.outputs;
}

/* Numbers that `threads` need to act on `n` samples, or for the gradient of `n`. */
int64_t q_workspace(const QNetwork *net, int64_t n, int32_t threads) {
  return n * numbers_per_sample(net) + obs_room(&net->encoder, n) + sums_of(&net->encoder, n) +
         threads * scratch_numbers(net) + products_room(&net->encoder, &net->head);
}

static int members_for(const QNetwork *net, int32_t threads, int64_t samples) {
  return useful_members(threads, samples, operations_of(&net->encoder));
}

static int best_of(int count, const real *x) {
  int best = 0;
  for (int j = 1; j < count; j++)
    if (x[j] > x[best]) best = j;
  return best;
}

/* Action values [n, actions], the values of the best ones [n], and the actions: the best one or, with
   probability epsilon, a random one. The largest entry of an env's Gumbel noise decides both which and whether. */
void q_act(const QNetwork *net, double epsilon, int32_t n, const void *obs, const real *noise, real *params,
           int64_t *action, real *value, real *work) {
  const int actions = net->head.outputs;
  real *scratch = work + n * kept_of(&net->encoder);
  linear(&net->head, n, encode(&net->encoder, n, (Range){0, n}, obs, work, scratch), params);
  for (int64_t i = 0; i < n; i++) {
    const real *here = params + i * actions, *chance = noise + i * actions;
    const int best = best_of(actions, here), other = best_of(actions, chance);
    value[i] = here[best];
    action[i] = exp(-actions * exp(-(double)chance[other])) < epsilon ? other : best;
  }
}

typedef struct {
  const QNetwork *net;
  double epsilon;
  Rollout *rollout;
  real *work;
} Collecting;

/* Acts and steps this member's envs, in turns. */
static void collect(void *task) {
  const Collecting *c = task;
  const Range envs = share_of(c->rollout->num_envs, BLOCK_SAMPLES);
  real *work = c->work + envs.start * numbers_per_sample(c->net) + member() * scratch_numbers(c->net);
  for (int t = 0; t < c->rollout->num_steps; t++) {
    const ActingRow row = acting_row(c->rollout, envs, t);
    q_act(c->net, c->epsilon, length(envs), row.obs, row.noise, row.params, row.action, row.value, work);
    step_row(c->rollout, envs, t);
  }
}

/* Acts and steps the envs, in turns. */
void q_rollout(const QNetwork *net, double epsilon, Rollout *rollout, real *work, int32_t threads) {
  Collecting task = {net, epsilon, rollout, work};
  as_team(members_for(net, threads, rollout->num_envs), collect, &task);
}

typedef struct {
  const QNetwork *net;
  const QSamples *samples;
  double coefficient, count;
  const int64_t *index;
  int32_t n;
  real *error, *value, *work;
  const Weights *weights; /* from here on: of steps */
  Step *step;
  int32_t steps, taken;
  Products *products; /* or null */
} Learning;

/* The gradient of samples whose numbers stay in the cache. */
APART void add_part(const Learning *g) {
  const QNetwork *net = g->net;
  const QSamples *s = g->samples;
  const Encoder *e = &net->encoder;
  const int64_t n = g->n, actions = net->head.outputs, features = net->head.inputs, width = widest(e);
  const Range rows = share_of(n, BLOCK_SAMPLES);
  const int64_t start = rows.start, count = length(rows);
  real *obs = g->work, *kept = obs + obs_room(e, n), *d_features = kept + n * kept_of(e);
  real *d_work = d_features + n * width, *params = d_work + n * width, *d_params = params + n * actions;
  real *sums = d_params + n * actions, *scratch = sums + sums_of(e, n) + member() * scratch_numbers(net);

  gather(e, s->obs, g->index, rows, obs);
  const real *seen = encode(e, n, rows, obs, kept, scratch);
  linear(&net->head, count, seen + start * features, params + start * actions);
  memset(d_params + start * actions, 0, sizeof(real) * count * actions);
  for (int64_t i = rows.start; i < rows.end; i++) {
    const int64_t taken = i * actions + s->action[g->index[i]];
    const real distance = params[taken] - s->target[g->index[i]];
    d_params[taken] = (real)(2 * g->coefficient / g->count) * distance;
    g->error[i] = distance * distance;
    g->value[i] = params[taken];
  }
  memset(d_features + start * features, 0, sizeof(real) * count * features);
  linear_input_gradient(&net->head, count, d_params + start * actions, d_features + start * features);
  wait_for_all();
  linear_gradient(&net->head, n, seen, d_params, scratch, g->products);
  encode_gradient(e, n, rows, obs, kept, d_features, d_work, sums, scratch, g->products);
  wait_for_all(); /* before a member writes to what others read */
}

static void add_gradient(const Learning *g) {
  const int parts = parts_of(g->n);
  const Subnormals before = flush_subnormals();
  for (int part = 0; part < parts; part++) {
    const int64_t start = (int64_t)g->n * part / parts, end = (int64_t)g->n * (part + 1) / parts;
    Learning here = *g;
    here.index += start, here.error += start, here.value += start, here.n = end - start;
    add_part(&here);
  }
  restore_subnormals(before);
}

static void learn(void *task) { add_gradient(task); }

/* Adds the gradient of coefficient / count * (Q(s, a) - target)^2 over the samples `index`[n]. */
void q_gradient(const QNetwork *net, const QSamples *s, double coefficient, double count, const int64_t *index,
                int32_t n, real *error, real *value, real *work, int32_t threads) {
  Learning task = {net, s, coefficient, count, index, n, error, value, work, 0, 0, 0, 0, 0};
  as_team(members_for(net, threads, at_once(n)), learn, &task);
}

static void take_steps(void *task) {
  Learning here = *(const Learning *)task;
  Products products;
  int taken = 0;
  for (; taken < here.steps; taken++) {
    here.count = here.n = here.step[taken].samples;
    products = (Products){.room = here.work - products_room(&here.net->encoder, &here.net->head)};
    here.products = here.n <= FORMED_SAMPLES ? &products : 0;
    add_gradient(&here);
    if (!take_step(here.weights, here.step + taken, here.products)) break;
    here.index += here.n, here.error += here.n, here.value += here.n;
  }
  if (member() == 0) ((Learning *)task)->taken = taken;
}

/* Gradient steps, as `ppo_steps` in ppo.c. */
int32_t q_steps(const QNetwork *net, const QSamples *s, double coefficient, const int64_t *index, real *error,
                real *value, real *work, const Weights *weights, Step *step, int32_t steps, int32_t threads) {
  real *own = work + products_room(&net->encoder, &net->head);
  Learning task = {net, s, coefficient, 0, index, 0, error, value, own, weights, step, steps, 0, 0};
  memset(weights->gradient, 0, sizeof(real) * weights->count);
  as_team(members_for(net, threads, at_once(most_samples(step, steps))), take_steps, &task);
  return task.taken;
}
