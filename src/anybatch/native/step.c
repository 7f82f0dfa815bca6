/* A gradient step on one flat vector: norm, clip, Adam and the average of weights, each number read once. */
#include "step.h"

#define BLOCK 1024
#define CHAINS 4           /* additions that do not wait for each other */
#define CLIP_EPSILON 1e-6  /* as backends/torch_backend.py has it */

/* Of one block: blocks keep float sums accurate, and the order of summation fixed. */
static double squared_block(const real *x) {
  vec part[CHAINS] = {{0}};
  double sum = 0;
  for (int i = 0; i < BLOCK; i += CHAINS * LANES)
    for (int chain = 0; chain < CHAINS; chain++) {
      const vec here = *(const vec *)(x + i + chain * LANES);
      part[chain] += here * here;
    }
  const vec total = (part[0] + part[1]) + (part[2] + part[3]);
  for (int lane = 0; lane < LANES; lane++) sum += total[lane];
  return sum;
}

/* Of part number `part`: a block, or what is left over after the last one. */
static double squared_part(const real *x, int64_t count, int64_t part) {
  const int64_t start = part * BLOCK;
  if (start + BLOCK <= count) return squared_block(x + start);
  double sum = 0;
  for (int64_t i = start; i < count; i++) sum += (double)x[i] * x[i];
  return sum;
}

int64_t step_sums(int64_t count) { return count / BLOCK + 1; }

double squared_norm(const real *x, int64_t count) {
  double sum = 0;
  for (int64_t part = 0; part < step_sums(count); part++) sum += squared_part(x, count, part);
  return sum;
}

/* `squared_norm` of the gradients, of which each member computes some parts. */
static double shared_squared_norm(const Weights *w) {
  const int64_t parts = step_sums(w->count);
  const Range mine = share_of(parts, 1);
  double sum = 0;
  for (int64_t part = mine.start; part < mine.end; part++) w->sums[part] = squared_part(w->gradient, w->count, part);
  wait_for_all();
  for (int64_t part = 0; part < parts; part++) sum += w->sums[part];
  return sum;
}

APART void adam_step(real *restrict value, const real *restrict gradient, real *restrict first,
                     real *restrict second, int64_t count, double scale, double beta1, double beta2, double epsilon,
                     double step_size, double root_correction) {
  const real s = scale, b1 = beta1, b2 = beta2, eps = epsilon, size = step_size, root = 1 / root_correction;
  for (int64_t i = 0; i < count; i++) {
    const real g = gradient[i] * s;
    first[i] += (1 - b1) * (g - first[i]);
    second[i] = b2 * second[i] + (1 - b2) * g * g;
    const real spread =
#ifdef ANYBATCH_DOUBLE
        sqrt(second[i]);
#else
        __builtin_sqrtf(second[i]);
#endif
    value[i] -= size * first[i] / (spread * root + eps);
  }
}

/* Adam (Kingma & Ba 2015, alg. 1) with the gradient times `scale`. `step_size` and `root_correction` hold the
   corrections of the bias: learning rate / (1 - beta1^t), and sqrt(1 - beta2^t). */
void adam(real *value, const real *gradient, real *first, real *second, int64_t count, double scale, double beta1,
          double beta2, double epsilon, double step_size, double root_correction) {
  const Subnormals before = flush_subnormals();
  adam_step(value, gradient, first, second, count, scale, beta1, beta2, epsilon, step_size, root_correction);
  restore_subnormals(before);
}

/* As torch's lerp: from the nearer end, so that shares of 0 and 1 are exact. */
static void follow(real *restrict average, const real *restrict value, int64_t count, double share) {
  const real near = share, far = 1 - share;
  if (share < 0.5)
    for (int64_t i = 0; i < count; i++) average[i] += near * (value[i] - average[i]);
  else
    for (int64_t i = 0; i < count; i++) average[i] = value[i] - (value[i] - average[i]) * far;
}

/* This member's weights, block by block, so that what one part of the step has read is still in the cache for the
   next. */
APART void move_weights(const Weights *w, const Step *step, double scale) {
  const Range mine = share_of(w->count, BLOCK);
  for (int64_t start = mine.start; start < mine.end; start += BLOCK) {
    const int64_t here = mine.end - start < BLOCK ? mine.end - start : BLOCK;
    adam_step(w->value + start, w->gradient + start, w->first + start, w->second + start, here, scale, w->beta1,
              w->beta2, step->epsilon, step->step_size, step->root_correction);
    const int64_t averaged = w->average ? w->averaged - start : 0;
    if (averaged > 0) follow(w->average + start, w->value + start, averaged < here ? averaged : here, step->share);
    memset(w->gradient + start, 0, here * sizeof(real));
  }
}

int take_step(const Weights *w, Step *step) {
  const double squared = shared_squared_norm(w), norm = squared >= 0 ? sqrt(squared) : squared;
  if (member() == 0) step->norm = norm;
  if (!isfinite(norm)) return 0;
  const double scale = norm > w->max_norm ? w->max_norm / (norm + CLIP_EPSILON) : 1;
  const Subnormals before = flush_subnormals();
  move_weights(w, step, scale);
  restore_subnormals(before);
  wait_for_all();
  return 1;
}
