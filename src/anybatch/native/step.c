/* A gradient step on one flat vector: norm, clip, Adam and the average of weights, each number read once. */
#include "arithmetic.h"

/* Blocks keep float sums accurate, and the order of summation fixed. */
double squared_norm(const real *x, int64_t count) {
  double sum = 0;
  for (int64_t start = 0; start < count; start += 1024) {
    const int64_t end = start + 1024 < count ? start + 1024 : count;
    real part = 0;
    for (int64_t i = start; i < end; i++) part += x[i] * x[i];
    sum += part;
  }
  return sum;
}

/* Adam (Kingma & Ba 2015, alg. 1) with the gradient times `scale`. `step_size` and `root_correction` hold the
   corrections of the bias: learning rate / (1 - beta1^t), and sqrt(1 - beta2^t). */
void adam(real *restrict value, const real *restrict gradient, real *restrict first, real *restrict second,
          int64_t count, double scale, double beta1, double beta2, double epsilon, double step_size,
          double root_correction) {
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
