/* Tanh layers and linear heads, forward and backward. Matrices are stored as torch stores them: [out, in]. */
#ifndef ANYBATCH_MLP_H
#define ANYBATCH_MLP_H

#include "matmul.h"

#define MOST_LAYERS 8
#define FEW_SAMPLES 8 /* below, weights are read once for each sample: transposing them would cost more */

typedef struct {
  int32_t inputs, outputs;
  real *weight, *bias;          /* [outputs, inputs], [outputs] */
  real *d_weight, *d_bias;      /* gradients, added to */
} Linear;

typedef struct {
  int32_t layers;
  Linear layer[MOST_LAYERS];
} Encoder;

/* y[n, outputs] = x[n, inputs] W^T + b; `scratch` holds inputs * outputs numbers. */
static void linear(const Linear *l, int n, const real *x, real *y, real *scratch) {
  if (n < FEW_SAMPLES || l->outputs < LANES) {
    for (int i = 0; i < n; i++)
      for (int o = 0; o < l->outputs; o++)
        y[i * l->outputs + o] = l->bias[o] + dot(l->inputs, x + i * l->inputs, l->weight + o * l->inputs);
    return;
  }
  transpose(l->outputs, l->inputs, l->weight, scratch);
  for (int i = 0; i < n; i++) memcpy(y + i * l->outputs, l->bias, l->outputs * sizeof(real));
  add_product(n, l->outputs, l->inputs, x, l->inputs, 1, scratch, l->outputs, y, l->outputs);
}

/* Adds to the gradients of weight and bias, given d_y = dLoss/dy. */
static void linear_gradient(const Linear *l, int n, const real *x, const real *d_y, real *scratch) {
  for (int i = 0; i < n; i++)
    for (int o = 0; o < l->outputs; o++) l->d_bias[o] += d_y[i * l->outputs + o];
  if (l->inputs >= l->outputs || l->inputs % LANES == 0) {
    add_product(l->outputs, l->inputs, n, d_y, 1, l->outputs, x, l->inputs, l->d_weight, l->inputs);
    return;
  }
  /* Few inputs fill no vector: compute the transposed gradient, whose rows are as long as the outputs. */
  memset(scratch, 0, sizeof(real) * l->inputs * l->outputs);
  add_product(l->inputs, l->outputs, n, x, 1, l->inputs, d_y, l->outputs, scratch, l->outputs);
  for (int o = 0; o < l->outputs; o++)
    for (int k = 0; k < l->inputs; k++) l->d_weight[o * l->inputs + k] += scratch[k * l->outputs + o];
}

/* d_x[n, inputs] += d_y W */
static void linear_input_gradient(const Linear *l, int n, const real *d_y, real *d_x) {
  add_product(n, l->inputs, l->outputs, d_y, l->outputs, 1, l->weight, l->inputs, d_x, l->inputs);
}

/* The activations of every layer, one after the other, in `kept`. Returns those of the last. */
static const real *encode(const Encoder *e, int n, const real *obs, real *kept, real *scratch) {
  const real *x = obs;
  for (int k = 0; k < e->layers; k++) {
    const Linear *l = &e->layer[k];
    linear(l, n, x, kept, scratch);
    const int count = n * l->outputs;
    for (int i = 0; i < count; i++) kept[i] = hyperbolic_tangent(kept[i]);
    x = kept;
    kept += count;
  }
  return x;
}

/* Adds to the gradients of all layers. `d_last` [n, features] is consumed; `d_work` holds n numbers for each
   unit of the widest layer. */
static void encode_gradient(const Encoder *e, int n, const real *obs, const real *kept, real *d_last, real *d_work,
                            real *scratch) {
  const real *activation = kept;
  for (int k = 0; k + 1 < e->layers; k++) activation += n * e->layer[k].outputs;
  real *d = d_last, *other = d_work;
  for (int k = e->layers - 1; k >= 0; k--) {
    const Linear *l = &e->layer[k];
    const int count = n * l->outputs;
    for (int i = 0; i < count; i++) d[i] *= 1 - activation[i] * activation[i];
    const real *below = k == 0 ? obs : activation - n * e->layer[k - 1].outputs;
    linear_gradient(l, n, below, d, scratch);
    if (k == 0) return;
    memset(other, 0, sizeof(real) * n * l->inputs);
    linear_input_gradient(l, n, d, other);
    real *swap = d;
    d = other;
    other = swap;
    activation = below;
  }
}

#endif
