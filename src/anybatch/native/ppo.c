/* Acting, and the gradient of the PPO family's loss, for small networks.

   The same arithmetic as networks/actor_critic.py and algorithms/ppo/loss.py, which are the reference: tests
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
  const real *proximal_location; /* [samples, actions] */
  const real *proximal_log_std;  /* [actions] or null */
  const real *advantage;
  const real *value;
  const real *value_target;
} Samples;

typedef struct {
  double lower_log_clip, upper_log_clip, log_max_importance;
  double kl_penalty, entropy_coefficient, value_coefficient;
  double value_clip; /* infinite if values are not clipped */
  double advantage_shift, advantage_scale;
  double count; /* the loss is divided by it */
  int32_t exact_kl;
} Objective;

typedef struct {
  real *objective, *value_loss, *entropy, *logp, *behavior_logp, *proximal_logp; /* [n] */
} Record;

/* Numbers that `act` and `ppo_gradient` need to work on `n` samples. */
int64_t ppo_workspace(const ActorCritic *net, int64_t n) {
  const Encoder *policy = &net->policy.encoder, *value = &net->value_encoder;
  const int64_t actions = net->policy.head.outputs, features = net->policy.head.inputs;
  const int64_t scratch = larger(larger(scratch_of(policy), scratch_of(value)), features * actions);
  return scratch + obs_room(policy, n) +
         n * (kept_of(policy) + kept_of(value) + 2 * larger(widest(policy), widest(value)) + 3 * actions + 2);
}

/* Locations [n, actions], the actions that `noise` chooses and, if `value` is not null, values [n]. */
void act(const ActorCritic *net, int32_t n, const void *obs, const real *noise, real *location, void *action,
         real *value, real *work) {
  const Policy *policy = &net->policy;
  const int actions = policy->head.outputs;
  real *kept = work + n * kept_of(&policy->encoder), *scratch = kept + n * kept_of(&net->value_encoder);
  const real *features = encode(&policy->encoder, n, obs, work, scratch);
  linear(&policy->head, n, features, location);
  if (value) {
    if (net->value_encoder.layers) features = encode(&net->value_encoder, n, obs, kept, scratch);
    linear(&net->value_head, n, features, value);
  }
  if (policy->log_std) {
    for (int i = 0; i < n * actions; i++)
      ((real *)action)[i] = location[i] + exponential(policy->log_std[i % actions]) * noise[i];
    return;
  }
  for (int i = 0; i < n; i++) {
    int best = 0;
    for (int j = 1; j < actions; j++)
      if (location[i * actions + j] + noise[i * actions + j] > location[i * actions + best] + noise[i * actions + best])
        best = j;
    ((int64_t *)action)[i] = best;
  }
}

/* Acts and steps the envs, in turns. */
void ppo_rollout(const ActorCritic *net, Rollout *r, real *work) {
  for (int t = 0; t < r->num_steps; t++) {
    const int64_t at = (int64_t)t * r->num_envs;
    act(net, r->num_envs, r->obs + at * r->obs_bytes, (const real *)r->noise + t * r->noise_row,
        (real *)r->location + at * r->location_width, r->action + at * r->action_bytes,
        r->value ? (real *)r->value + at : 0, work);
    step_row(r, t);
  }
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
  const real gain = exponential(held - divisor) * advantage;
  *slope = held == logp ? gain : 0;
  return gain;
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

/* `ppo_gradient` of samples whose numbers stay in the cache. */
APART void add_ppo_gradient(const ActorCritic *net, const Policy *proximal, const Samples *s, const Objective *o,
                             const int64_t *index, int n, const Record *record, real *work) {
  const Policy *policy = &net->policy;
  const int actions = policy->head.outputs;
  const int features = policy->head.inputs, shared = net->value_encoder.layers == 0;
  const int width = larger(widest(&policy->encoder), widest(&net->value_encoder));
  real *obs = work;
  real *policy_kept = obs + obs_room(&policy->encoder, n);
  real *value_kept = policy_kept + n * kept_of(&policy->encoder);
  real *d_features = value_kept + n * kept_of(&net->value_encoder);
  real *d_work = d_features + n * width;
  real *location = d_work + n * width;
  real *proximal_location = location + n * actions;
  real *d_location = proximal_location + n * actions;
  real *value = d_location + n * actions;
  real *d_value = value + n;
  real *scratch = d_value + n;

  gather(&policy->encoder, s->obs, index, n, obs);
  if (proximal) {
    const real *seen = encode(&proximal->encoder, n, obs, policy_kept, scratch);
    linear(&proximal->head, n, seen, proximal_location);
  }
  const real *policy_features = encode(&policy->encoder, n, obs, policy_kept, scratch);
  const real *value_features =
      shared ? policy_features : encode(&net->value_encoder, n, obs, value_kept, scratch);
  linear(&policy->head, n, policy_features, location);
  linear(&net->value_head, n, value_features, value);

  const int exact = o->exact_kl && o->kl_penalty > 0;
  const real *proximal_log_std = proximal ? proximal->log_std : s->proximal_log_std;
  for (int i = 0; i < n; i++) {
    const int64_t sample = index[i];
    real *here = location + i * actions, *there = proximal_location + i * actions, *d = d_location + i * actions;
    const real advantage = (s->advantage[sample] - (real)o->advantage_shift) / (real)o->advantage_scale;
    if (!proximal && exact) memcpy(there, s->proximal_location + sample * actions, actions * sizeof(real));
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
    const real gain = surrogate(o, logp, s->behavior_logp[sample], proximal_logp, advantage, &slope);
    if (o->kl_penalty > 0 && !exact) {
      kl = (real)0.5 * (logp - proximal_logp) * (logp - proximal_logp);
      slope -= (real)o->kl_penalty * (logp - proximal_logp);
    }
    if (policy->log_std)
      gaussian_sample(o, actions, (const real *)s->action + sample * actions, here, policy->log_std,
                      exact ? there : 0, proximal_log_std, slope, &kl, &entropy, d, policy->d_log_std);
    else
      discrete_sample(o, actions, ((const int64_t *)s->action)[sample], here, exact ? there : 0, slope, &kl, &entropy,
                      d);
    for (int j = 0; j < actions; j++) d[j] /= (real)o->count;
    record->value_loss[i] = value_error(o, value[i], s->value[sample], s->value_target[sample], &value_slope);
    d_value[i] = (real)o->value_coefficient * value_slope / (real)o->count;
    record->objective[i] = gain - (real)o->kl_penalty * kl;
    record->entropy[i] = entropy;
    record->logp[i] = logp;
    record->behavior_logp[i] = s->behavior_logp[sample];
    record->proximal_logp[i] = proximal_logp;
  }

  linear_gradient(&policy->head, n, policy_features, d_location, scratch);
  memset(d_features, 0, sizeof(real) * n * features);
  linear_input_gradient(&policy->head, n, d_location, d_features);
  linear_gradient(&net->value_head, n, value_features, d_value, scratch);
  if (shared && !net->detaches_value) linear_input_gradient(&net->value_head, n, d_value, d_features);
  encode_gradient(&policy->encoder, n, obs, policy_kept, d_features, d_work, scratch);
  if (shared) return;
  memset(d_features, 0, sizeof(real) * n * net->value_head.inputs);
  linear_input_gradient(&net->value_head, n, d_value, d_features);
  encode_gradient(&net->value_encoder, n, obs, value_kept, d_features, d_work, scratch);
}

/* Adds the gradient of the samples `index`[n] to the network's buffers, and records the losses of each.
   `proximal` is the average of the weights, or null if the samples carry the proximal policy. */
void ppo_gradient(const ActorCritic *net, const Policy *proximal, const Samples *s, const Objective *o,
                  const int64_t *index, int32_t n, const Record *record, real *work) {
  const int parts = parts_of(n);
  const Subnormals before = flush_subnormals();
  for (int part = 0; part < parts; part++) {
    const int start = (int64_t)n * part / parts, end = (int64_t)n * (part + 1) / parts;
    const Record here = {record->objective + start, record->value_loss + start,    record->entropy + start,
                         record->logp + start,      record->behavior_logp + start, record->proximal_logp + start};
    add_ppo_gradient(net, proximal, s, o, index + start, end - start, &here, work);
  }
  restore_subnormals(before);
}

/* Gradient steps on consecutive stretches of `index`, of which each of `step`[steps] says how long it is. Returns
   how many were taken: all, or those before the first whose gradient is non-finite. */
int32_t ppo_steps(const ActorCritic *net, const Policy *proximal, const Samples *s, const Objective *o,
                  const int64_t *index, const Record *record, real *work, const Weights *weights, Step *step,
                  int32_t steps) {
  Objective here = *o;
  Record seen = *record;
  memset(weights->gradient, 0, sizeof(real) * weights->count);
  for (int taken = 0; taken < steps; taken++) {
    const int64_t n = step[taken].samples;
    here.count = n;
    ppo_gradient(net, proximal, s, &here, index, n, &seen, work);
    if (!take_step(weights, step + taken)) return taken;
    index += n;
    seen = (Record){seen.objective + n, seen.value_loss + n,    seen.entropy + n,
                    seen.logp + n,      seen.behavior_logp + n, seen.proximal_logp + n};
  }
  return steps;
}
