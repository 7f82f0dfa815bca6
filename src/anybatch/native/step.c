/* A gradient step on one flat vector: norm, clip, Adam and the average of weights, each number read once. */
#include "step.h"

#include <float.h>

#define BLOCK 1024
#ifdef ANYBATCH_DOUBLE
#define LARGEST_SQUARE DBL_MAX
#else
#define LARGEST_SQUARE FLT_MAX
#endif
#define CHAINS 4 /* additions that do not wait for each other */

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

INLINE real root_of(real x) {
#ifdef ANYBATCH_DOUBLE
  return sqrt(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/* What Adam's update of every number has in common. */
typedef struct {
  real scale, keep1, keep2, size, root, epsilon;
} Update;

static Update update_of(double scale, double beta1, double beta2, double epsilon, double step_size,
                        double root_correction) {
  return (Update){scale, beta1, beta2, step_size, 1 / root_correction, epsilon};
}

INLINE vec root_of_vector(vec x) {
  vec roots;
  for (int lane = 0; lane < LANES; lane++) roots[lane] = root_of(x[lane]);
  return roots;
}

INLINE vec moved(vec value, vec *restrict first, vec *restrict second, vec gradient, const Update u) {
  const vec g = gradient * u.scale, m = *first + (1 - u.keep1) * (g - *first);
  const vec v = u.keep2 * *second + (1 - u.keep2) * g * g;
  *first = m;
  *second = v;
  return value - u.size * m / (root_of_vector(v) * u.root + u.epsilon);
}

APART void adam_step(real *restrict value, const real *restrict gradient, real *restrict first,
                     real *restrict second, int64_t count, Update u) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    *(vec *)(value + i) = moved(*(vec *)(value + i), (vec *)(first + i), (vec *)(second + i), *(const vec *)(gradient + i), u);
  for (; i < count; i++) {
    const real g = gradient[i] * u.scale;
    first[i] += (1 - u.keep1) * (g - first[i]);
    second[i] = u.keep2 * second[i] + (1 - u.keep2) * g * g;
    value[i] -= u.size * first[i] / (root_of(second[i]) * u.root + u.epsilon);
  }
}

/* Adam (Kingma & Ba 2015, alg. 1) with the gradient times `scale`. `step_size` and `root_correction` hold the
   corrections of the bias: learning rate / (1 - beta1^t), and sqrt(1 - beta2^t). */
void adam(real *value, const real *gradient, real *first, real *second, int64_t count, double scale, double beta1,
          double beta2, double epsilon, double step_size, double root_correction) {
  const Subnormals before = flush_subnormals();
  adam_step(value, gradient, first, second, count,
            update_of(scale, beta1, beta2, epsilon, step_size, root_correction));
  restore_subnormals(before);
}

/* As torch's lerp: from the nearer end, so that shares of 0 and 1 are exact. */
INLINE vec followed(vec average, vec value, const real share) {
  if (share < (real)0.5) return average + share * (value - average);
  return value - (value - average) * (1 - share);
}

static void follow(real *restrict average, const real *restrict value, int64_t count, const real share) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    *(vec *)(average + i) = followed(*(vec *)(average + i), *(const vec *)(value + i), share);
  for (; i < count; i++)
    average[i] = share < (real)0.5 ? average[i] + share * (value[i] - average[i]) : value[i] - (value[i] - average[i]) * (1 - share);
}

/* Weights whose gradients are stored, block by block, so that what one part of the step has read is still in the cache for
   the next. */
APART void move_weights(const Weights *w, const Step *step, const Update u, Range range) {
  for (int64_t start = range.start; start < range.end; start += BLOCK) {
    const int64_t here = range.end - start < BLOCK ? range.end - start : BLOCK;
    adam_step(w->value + start, w->gradient + start, w->first + start, w->second + start, here, u);
    const int64_t averaged = w->average ? w->averaged - start : 0;
    if (averaged > 0) follow(w->average + start, w->value + start, averaged < here ? averaged : here, step->share);
    memset(w->gradient + start, 0, here * sizeof(real));
  }
}

/* A row of weights whose gradient is that of n samples, with rows x and factors d. */
INLINE void move_row(const int n, int count, const real *x, const real *d, real *value, real *first, real *second,
                     real *average, const Update u, const real share) {
  for (int i = 0; i < count; i += LANES) {
    vec gradient = d[0] * *(const vec *)(x + i);
    for (int sample = 1; sample < n; sample++) gradient += d[sample] * *(const vec *)(x + (int64_t)sample * count + i);
    const vec now = moved(*(vec *)(value + i), (vec *)(first + i), (vec *)(second + i), gradient, u);
    *(vec *)(value + i) = now;
    if (average) *(vec *)(average + i) = followed(*(vec *)(average + i), now, share);
  }
}

/* Weights whose gradient is a product. Each is read and written once, from the last row to the first, since the next
   forward pass begins with the first ones: those are then still in the cache. */
APART void move_product(const Weights *w, const Step *step, const Update u, const Product *p) {
  const int n = p->n, count = p->inputs;
  for (int64_t row = p->outputs - 1; row >= 0; row--) {
    const int64_t start = p->place - w->gradient + row * count;
    real d[FORMED_SAMPLES], *average = w->average && start < w->averaged ? w->average + start : 0;
    for (int sample = 0; sample < n; sample++) d[sample] = p->d[sample * p->outputs + row];
#define MOVE_ROW(n) \
  move_row(n, count, p->x, d, w->value + start, w->first + start, w->second + start, average, u, step->share)
    if (n == 1) MOVE_ROW(1);
    else if (n == 2) MOVE_ROW(2);
    else if (n == 4) MOVE_ROW(4);
    else if (n == 8) MOVE_ROW(8);
    else MOVE_ROW(n);
#undef MOVE_ROW
  }
}

static real dot(const real *x, const real *y, int count) {
  vec sum = {0};
  real total = 0;
  int i = 0;
  for (; i + LANES <= count; i += LANES) sum += *(const vec *)(x + i) * *(const vec *)(y + i);
  for (; i < count; i++) total += x[i] * y[i];
  for (int lane = 0; lane < LANES; lane++) total += sum[lane];
  return total;
}

/* |d^T x|^2 is the sum of (d_i . d_j)(x_i . x_j) over all pairs of samples. Rounding could make it less than 0. */
static double squared_product(const Product *p) {
  double sum = 0;
  for (int i = 0; i < p->n; i++)
    for (int j = 0; j <= i; j++)
      sum += (i == j ? 1 : 2) * (double)dot(p->d + i * p->outputs, p->d + j * p->outputs, p->outputs) *
             dot(p->x + (int64_t)i * p->inputs, p->x + (int64_t)j * p->inputs, p->inputs);
  return sum < 0 ? 0 : sum;
}

APART double squared_with_products(const Weights *w, const Products *products) {
  double sum = 0;
  int64_t start = 0;
  for (int k = 0; k <= products->count; k++) {
    const Product *p = products->product + k;
    const int64_t end = k < products->count ? p->place - w->gradient : w->count;
    sum += squared_norm(w->gradient + start, end - start);
    if (k == products->count) break;
    sum += squared_product(p);
    start = end + (int64_t)p->inputs * p->outputs;
  }
  return sum > LARGEST_SQUARE ? INFINITY : sum; /* as if the numbers had been squared one by one */
}

APART void move_with_products(const Weights *w, const Step *step, const Update u, const Products *products) {
  int64_t end = w->count;
  for (int k = products->count - 1; k >= 0; k--) {
    const Product *p = products->product + k;
    const int64_t start = p->place - w->gradient;
    move_weights(w, step, u, (Range){start + (int64_t)p->inputs * p->outputs, end});
    move_product(w, step, u, p);
    end = start;
  }
  move_weights(w, step, u, (Range){0, end});
}

int take_step(const Weights *w, Step *step, const Products *products) {
  const double squared = products ? squared_with_products(w, products) : shared_squared_norm(w);
  const double norm = squared >= 0 ? sqrt(squared) : squared;
  if (member() == 0) step->norm = norm;
  if (!isfinite(norm)) return 0;
  const double scale = norm > w->max_norm ? w->max_norm / (norm + w->clip_epsilon) : 1;
  const Subnormals before = flush_subnormals();
  const Update u = update_of(scale, w->beta1, w->beta2, step->epsilon, step->step_size, step->root_correction);
  if (products)
    move_with_products(w, step, u, products);
  else
    move_weights(w, step, u, share_of(w->count, BLOCK));
  restore_subnormals(before);
  wait_for_all();
  return 1;
}
