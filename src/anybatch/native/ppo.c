/* Acting, and the gradient of the PPO family's loss, for small networks.

   The same arithmetic as networks/actor_critic.py and algorithms/ppo.py, which are the reference: tests
   compare the two in double precision. */
#include "network.h"
#include "rollout.h"
#include "step.h"

typedef struct {
  Encoder encoder;
  Linear head;
  real *log_std, *d_log_std; /* [actions]; null if actions are discrete */
} Policy;

typedef struct {
  Policy policy;
  Encoder value_encoder; /* without layers if the policy's encoder is shared */
  Linear value_head;
  int32_t detaches_value; /* a shared encoder is not trained by the value */
} ActorCritic;

typedef struct {
  const void *obs;             /* real [samples, inputs], or bytes [samples, planes, height, width] */
  const void *action;          /* int64 [samples], or real [samples, actions] */
  const real *behavior_logp;   /* [samples], like those below */
  const real *proximal_logp;
  const real *proximal_params; /* [samples, actions] */
  const real *proximal_log_std;  /* [actions] or null */
  const real *advantage;
  const real *value;
  const real *value_target;
} Samples;

typedef struct {
  double lower_log_clip, upper_log_clip, log_max_importance;
  double kl_penalty, entropy_coefficient, value_coefficient;
  double value_clip; /* infinite if values are not clipped */
  double count; /* the loss is divided by it */
  int32_t exact_kl;
} Objective;

typedef struct {
  real *objective, *value_loss, *entropy, *logp, *behavior_logp, *proximal_logp; /* [n] */
} Record;

static int64_t scratch_numbers(const ActorCritic *net) {
  const int64_t encoders = larger(scratch_of(&net->policy.encoder), scratch_of(&net->value_encoder));
  return larger(encoders, larger(linear_scratch(&net->policy.head), linear_scratch(&net->value_head)));
}

static int64_t numbers_per_sample(const ActorCritic *net) {
  const Encoder *policy = &net->policy.encoder, *value = &net->value_encoder;
  return kept_of(policy) + kept_of(value) + 2 * larger(widest(policy), widest(value)) + 3 * net->policy.head.outputs + 2;
}

static int64_t sum_numbers(const ActorCritic *net, int n) {
  const int64_t log_std_sums = (int64_t)blocks_of(n) * net->policy.head.outputs;
  return sums_of(&net->policy.encoder, n) + sums_of(&net->value_encoder, n) + log_std_sums;
}

static int64_t room_for_products(const ActorCritic *net) {
  return products_room(&net->policy.encoder, &net->policy.head) + products_room(&net->value_encoder, &net->value_head);
}

/* Numbers that `threads` need to act on `n` samples, or for the gradient of `n`. */
int64_t ppo_workspace(const ActorCritic *net, int64_t n, int32_t threads) {
  return n * numbers_per_sample(net) + obs_room(&net->policy.encoder, n) + sum_numbers(net, n) +
         threads * scratch_numbers(net) + room_for_products(net);
}

static int members_for(const ActorCritic *net, int32_t threads, int64_t samples) {
  const int64_t operations = operations_of(&net->policy.encoder) + operations_of(&net->value_encoder);
  return useful_members(threads, samples, operations);
}

/* Locations [n, actions], the actions that `noise` chooses and, if `value` is not null, values [n]. */
void act(const ActorCritic *net, int32_t n, const void *obs, const real *noise, real *params, void *action,
         real *value, real *work) {
  const Policy *policy = &net->policy;
  const int actions = policy->head.outputs;
  real *kept = work + n * kept_of(&policy->encoder), *scratch = kept + n * kept_of(&net->value_encoder);
  const Range all = {0, n};
  const real *features = encode(&policy->encoder, n, all, obs, work, scratch);
  linear(&policy->head, n, features, params);
  if (value) {
    if (net->value_encoder.layers) features = encode(&net->value_encoder, n, all, obs, kept, scratch);
    linear(&net->value_head, n, features, value);
  }
  if (policy->log_std) {
    for (int64_t start = 0; start < (int64_t)n * actions; start += actions)
      for (int j = 0; j < actions; j++)
        ((real *)action)[start + j] = params[start + j] + exponential(policy->log_std[j]) * noise[start + j];
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    int best = 0;
    for (int j = 1; j < actions; j++)
      if (params[i * actions + j] + noise[i * actions + j] > params[i * actions + best] + noise[i * actions + best])
        best = j;
    ((int64_t *)action)[i] = best;
  }
}

typedef struct {
  const ActorCritic *net;
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
    act(c->net, length(envs), row.obs, row.noise, row.params, row.action, row.value, work);
    step_row(c->rollout, envs, t);
  }
}

/* Acts and steps the envs, in turns. */
void ppo_rollout(const ActorCritic *net, Rollout *rollout, real *work, int32_t threads) {
  Collecting task = {net, rollout, work};
  as_team(members_for(net, threads, rollout->num_envs), collect, &task);
}

/* Turns logits [actions] into log-probabilities. */
static void normalize(real *logits, int actions) {
  real most = logits[0], sum = 0;
  for (int j = 1; j < actions; j++) most = logits[j] > most ? logits[j] : most;
  for (int j = 0; j < actions; j++) sum += exponential(logits[j] - most);
  const real log_sum = most + log(sum);
  for (int j = 0; j < actions; j++) logits[j] -= log_sum;
}

static real gaussian_logp(int actions, const real *action, const real *mean, const real *log_std) {
  real sum = 0;
  for (int j = 0; j < actions; j++) {
    const real distance = (action[j] - mean[j]) * exponential(-log_std[j]);
    sum -= (real)0.5 * distance * distance + log_std[j] + (real)0.91893853320467274178;
  }
  return sum;
}

static real clamp(real x, real low, real high) { return x < low ? low : x > high ? high : x; }

/* The surrogate of a sample, and how it changes with logp. */
static real surrogate(const Objective *o, real logp, real behavior_logp, real proximal_logp, real advantage,
                      real *slope) {
  const real capped = logp - (real)o->log_max_importance;
  const real divisor = behavior_logp > capped ? behavior_logp : capped;
  const real lower = advantage < 0 ? proximal_logp + (real)o->lower_log_clip : -(real)INFINITY;
  const real upper = advantage < 0 ? (real)INFINITY : proximal_logp + (real)o->upper_log_clip;
  const real held = clamp(logp, lower, upper);
  const real objective = exponential(held - divisor) * advantage;
  *slope = held == logp ? objective : 0;
  return objective;
}

/* One sample of a discrete policy. `logp_all` are its log-probabilities; `d` is d loss / d logits. */
static void discrete_sample(const Objective *o, int actions, int64_t action, const real *logp_all,
                            const real *proximal_all, real slope, real *kl, real *entropy, real *d) {
  real mean = 0, divergence = 0;
  for (int j = 0; j < actions; j++) mean += exponential(logp_all[j]) * logp_all[j];
  *entropy = -mean;
  for (int j = 0; j < actions; j++) {
    const real p = exponential(logp_all[j]);
    d[j] = slope * p + (real)o->entropy_coefficient * p * (logp_all[j] - mean);
    if (proximal_all) {
      const real p_proximal = exponential(proximal_all[j]);
      divergence += p_proximal * (proximal_all[j] - logp_all[j]);
      d[j] += (real)o->kl_penalty * (p - p_proximal);
    }
  }
  d[action] -= slope;
  if (proximal_all) *kl = divergence;
}

/* One sample of a Gaussian policy. `d` is d loss / d mean; adds to `d_log_std`. */
static void gaussian_sample(const Objective *o, int actions, const real *action, const real *mean,
                            const real *log_std, const real *proximal_mean, const real *proximal_log_std, real slope,
                            real *kl, real *entropy, real *d, real *d_log_std) {
  real divergence = 0, sum = 0;
  for (int j = 0; j < actions; j++) {
    const real precision = exponential(-2 * log_std[j]), distance = action[j] - mean[j];
    real d_scale = -slope * (distance * distance * precision - 1) - (real)o->entropy_coefficient;
    d[j] = -slope * distance * precision;
    sum += log_std[j] + (real)1.41893853320467274178;
    if (proximal_mean) {
      const real log_ratio = proximal_log_std[j] - log_std[j], between = mean[j] - proximal_mean[j];
      const real excess = exponential(2 * log_ratio) + between * between * precision;
      divergence += (real)0.5 * (excess - 1) - log_ratio;
      d[j] += (real)o->kl_penalty * between * precision;
      d_scale += (real)o->kl_penalty * (1 - excess);
    }
    d_log_std[j] += d_scale / (real)o->count;
  }
  *entropy = sum;
  if (proximal_mean) *kl = divergence;
}

/* Squared error of a value and, in `slope`, its derivative; the larger of two if changes are clipped. */
static real value_error(const Objective *o, real value, real collected, real target, real *slope) {
  const real error = value - target;
  *slope = 2 * error;
  if (isinf(o->value_clip)) return error * error;
  const real held = clamp(value, collected - (real)o->value_clip, collected + (real)o->value_clip);
  const real held_error = held - target;
  if (held_error * held_error <= error * error) return error * error;
  *slope = held == value ? *slope : 0;
  return held_error * held_error;
}

typedef struct {
  const ActorCritic *net;
  const Policy *proximal;
  const Samples *samples;
  Objective objective;
  const int64_t *index;
  int32_t n;
  Record record;
  real *work;
  const Weights *weights; /* from here on: of steps */
  Step *step;
  int32_t steps, taken;
  Products *products; /* or null */
} Learning;

/* From sample `start` of the minibatch on. */
static Learning from(const Learning *g, int64_t start) {
  const Record *r = &g->record;
  Learning part = *g;
  part.index += start;
  part.record = (Record){r->objective + start, r->value_loss + start,    r->entropy + start,
                         r->logp + start,      r->behavior_logp + start, r->proximal_logp + start};
  return part;
}

/* Losses of sample i, and the gradients of its outputs. */
static void sample_gradient(const Learning *g, int64_t i, real *here, real *there, real value, real *d, real *d_log_std,
                            real *d_value) {
  const Policy *policy = &g->net->policy, *proximal = g->proximal;
  const Samples *s = g->samples;
  const Objective *o = &g->objective;
  const Record *record = &g->record;
  const int64_t sample = g->index[i];
  const int actions = policy->head.outputs, exact = o->exact_kl && o->kl_penalty > 0;
  const real *proximal_log_std = proximal ? proximal->log_std : s->proximal_log_std;
  const real advantage = s->advantage[sample];
  if (!proximal && exact) memcpy(there, s->proximal_params + sample * actions, actions * sizeof(real));
  real logp, proximal_logp = proximal ? 0 : s->proximal_logp[sample], slope, value_slope, kl = 0, entropy;
  if (policy->log_std) {
    const real *action = (const real *)s->action + sample * actions;
    logp = gaussian_logp(actions, action, here, policy->log_std);
    if (proximal) proximal_logp = gaussian_logp(actions, action, there, proximal_log_std);
  } else {
    const int64_t action = ((const int64_t *)s->action)[sample];
    normalize(here, actions);
    if (proximal || exact) normalize(there, actions);
    logp = here[action];
    if (proximal) proximal_logp = there[action];
  }
  const real objective = surrogate(o, logp, s->behavior_logp[sample], proximal_logp, advantage, &slope);
  if (o->kl_penalty > 0 && !exact) {
    kl = (real)0.5 * (logp - proximal_logp) * (logp - proximal_logp);
    slope -= (real)o->kl_penalty * (logp - proximal_logp);
  }
  if (policy->log_std)
    gaussian_sample(o, actions, (const real *)s->action + sample * actions, here, policy->log_std, exact ? there : 0,
                    proximal_log_std, slope, &kl, &entropy, d, d_log_std);
  else
    discrete_sample(o, actions, ((const int64_t *)s->action)[sample], here, exact ? there : 0, slope, &kl, &entropy, d);
  for (int j = 0; j < actions; j++) d[j] /= (real)o->count;
  record->value_loss[i] = value_error(o, value, s->value[sample], s->value_target[sample], &value_slope);
  *d_value = (real)o->value_coefficient * value_slope / (real)o->count;
  record->objective[i] = objective - (real)o->kl_penalty * kl;
  record->entropy[i] = entropy;
  record->logp[i] = logp;
  record->behavior_logp[i] = s->behavior_logp[sample];
  record->proximal_logp[i] = proximal_logp;
}

/* The gradient of samples whose numbers stay in the cache. */
APART void add_part(const Learning *g) {
  const ActorCritic *net = g->net;
  const Policy *policy = &net->policy, *proximal = g->proximal;
  const int64_t n = g->n, actions = policy->head.outputs, blocks = blocks_of(n);
  const int features = policy->head.inputs, value_width = net->value_head.inputs, shared = net->value_encoder.layers == 0;
  const int64_t width = larger(widest(&policy->encoder), widest(&net->value_encoder));
  const Range rows = share_of(n, BLOCK_SAMPLES);
  const int64_t start = rows.start, count = length(rows);
  real *obs = g->work;
  real *policy_kept = obs + obs_room(&policy->encoder, n);
  real *value_kept = policy_kept + n * kept_of(&policy->encoder);
  real *d_features = value_kept + n * kept_of(&net->value_encoder);
  real *d_work = d_features + n * width;
  real *params = d_work + n * width;
  real *proximal_params = params + n * actions;
  real *d_params = proximal_params + n * actions;
  real *value = d_params + n * actions;
  real *d_value = value + n;
  real *log_std_sums = d_value + n;
  real *sums = log_std_sums + blocks * actions;
  real *value_sums = sums + sums_of(&policy->encoder, n);
  real *scratch = log_std_sums + sum_numbers(net, n) + member() * scratch_numbers(net);

  gather(&policy->encoder, g->samples->obs, g->index, rows, obs);
  if (proximal) {
    const real *seen = encode(&proximal->encoder, n, rows, obs, policy_kept, scratch);
    linear(&proximal->head, count, seen + start * features, proximal_params + start * actions);
  }
  const real *policy_features = encode(&policy->encoder, n, rows, obs, policy_kept, scratch);
  const real *value_features =
      shared ? policy_features : encode(&net->value_encoder, n, rows, obs, value_kept, scratch);
  linear(&policy->head, count, policy_features + start * features, params + start * actions);
  linear(&net->value_head, count, value_features + start * value_width, value + start);

  for (int64_t i = rows.start; i < rows.end; i++) {
    real *d_log_std = log_std_sums + block_of(i, n) * actions;
    if (i == block_start(i, n)) memset(d_log_std, 0, sizeof(real) * actions);
    sample_gradient(g, i, params + i * actions, proximal_params + i * actions, value[i], d_params + i * actions,
                    d_log_std, d_value + i);
  }
  memset(d_features + start * features, 0, sizeof(real) * count * features);
  linear_input_gradient(&policy->head, count, d_params + start * actions, d_features + start * features);
  if (shared && !net->detaches_value)
    linear_input_gradient(&net->value_head, count, d_value + start, d_features + start * features);
  wait_for_all();
  linear_gradient(&policy->head, n, policy_features, d_params, scratch, g->products);
  linear_gradient(&net->value_head, n, value_features, d_value, scratch, g->products);
  if (policy->log_std) add_sums(blocks, actions, log_std_sums, share_of(actions, 1), policy->d_log_std);
  encode_gradient(&policy->encoder, n, rows, obs, policy_kept, d_features, d_work, sums, scratch, g->products);
  if (!shared) {
    wait_for_all(); /* until all have read what is now written to */
    memset(d_features + start * value_width, 0, sizeof(real) * count * value_width);
    linear_input_gradient(&net->value_head, count, d_value + start, d_features + start * value_width);
    encode_gradient(&net->value_encoder, n, rows, obs, value_kept, d_features, d_work, value_sums, scratch,
                    g->products);
  }
  wait_for_all();
}

static void add_gradient(const Learning *g) {
  const int parts = parts_of(g->n);
  const Subnormals before = flush_subnormals();
  for (int part = 0; part < parts; part++) {
    const int64_t start = (int64_t)g->n * part / parts, end = (int64_t)g->n * (part + 1) / parts;
    Learning here = from(g, start);
    here.n = end - start;
    add_part(&here);
  }
  restore_subnormals(before);
}

static void learn(void *task) { add_gradient(task); }

/* Adds the gradient of the samples `index`[n] to the network's buffers, and records the losses of each.
   `proximal` is the average of the weights, or null if the samples carry the proximal policy. */
void ppo_gradient(const ActorCritic *net, const Policy *proximal, const Samples *s, const Objective *o,
                  const int64_t *index, int32_t n, const Record *record, real *work, int32_t threads) {
  Learning task = {net, proximal, s, *o, index, n, *record, work, 0, 0, 0, 0, 0};
  as_team(members_for(net, threads, at_once(n)), learn, &task);
}

static void take_steps(void *task) {
  Learning here = *(const Learning *)task;
  Products products;
  int taken = 0;
  for (; taken < here.steps; taken++) {
    here.objective.count = here.n = here.step[taken].samples;
    products = (Products){.room = here.work - room_for_products(here.net)};
    here.products = here.n <= FORMED_SAMPLES ? &products : 0;
    add_gradient(&here);
    if (!take_step(here.weights, here.step + taken, here.products)) break;
    here = from(&here, here.n);
  }
  if (member() == 0) ((Learning *)task)->taken = taken;
}

/* Gradient steps on consecutive stretches of `index`, of which each of `step`[steps] says how long it is. Returns
   how many were taken: all, or those before the first whose gradient is non-finite. */
int32_t ppo_steps(const ActorCritic *net, const Policy *proximal, const Samples *s, const Objective *o,
                  const int64_t *index, const Record *record, real *work, const Weights *weights, Step *step,
                  int32_t steps, int32_t threads) {
  Learning task = {net, proximal, s, *o, index, 0, *record, work + room_for_products(net), weights, step, steps, 0, 0};
  memset(weights->gradient, 0, sizeof(real) * weights->count);
  as_team(members_for(net, threads, at_once(most_samples(step, steps))), take_steps, &task);
  return task.taken;
}
