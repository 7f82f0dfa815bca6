/* Encoders and linear heads, forward and backward. Matrices are stored as torch stores them: [out, in].

   An encoder is an optional convolution of 3 x 3 over planes of 0 and 1, then dense layers. Each may be normalized
   (layer norm) before its activation.

   Of n samples, a member of a team (team.h) computes its own `rows` of everything that is per sample, and then its own
   columns of the gradients, which are sums over all samples. */
#ifndef ANYBATCH_NETWORK_H
#define ANYBATCH_NETWORK_H

#include "step.h"

#define SAMPLES_AT_ONCE 128 /* of a gradient: the outputs of more samples do not stay in the cache until the backward pass */

typedef struct {
  int32_t inputs, outputs;
  real *weight, *bias;     /* [outputs, inputs], [outputs] */
  real *d_weight, *d_bias; /* gradients, added to */
} Linear;

typedef struct {
  Linear linear;
  real *norm_weight, *norm_bias, *d_norm_weight, *d_norm_bias; /* null without a layer norm */
  int32_t relu;                                                /* else tanh */
} Layer;

typedef struct {
  int32_t planes, height, width; /* of the observations; no planes if these are vectors */
  int32_t channels_first;        /* how the outputs of the convolution are ordered for the next layer */
  Layer convolution;             /* weight [channels, 3, 3, planes] */
  int32_t layers;
  Layer layer[MOST_LAYERS]; /* a number that layout.py gives to the compiler */
} Encoder;

/* The fewest parts of about equal size, none with more samples than are processed at once. */
INLINE int parts_of(int n) { return (n + SAMPLES_AT_ONCE - 1) / SAMPLES_AT_ONCE; }

INLINE int64_t at_once(int64_t n) { return n < SAMPLES_AT_ONCE ? n : SAMPLES_AT_ONCE; }

INLINE int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

/* Numbers that the encoder keeps per sample for the backward pass. */
INTERNAL int64_t kept_of(const Encoder *e);

/* Outputs of the widest layer. */
INTERNAL int64_t widest(const Encoder *e);

/* Numbers that `encode` and `encode_gradient` need besides, for each member. */
INTERNAL int64_t scratch_of(const Encoder *e);

/* Numbers that `linear_gradient` needs besides, for each member. */
INTERNAL int64_t linear_scratch(const Linear *l);

/* Multiplications by which a sample's output and gradients are computed. */
INTERNAL int64_t operations_of(const Encoder *e);

/* Numbers for the sums over blocks that `encode_gradient` makes of n samples. */
INTERNAL int64_t sums_of(const Encoder *e, int n);

/* y[n, outputs] = x[n, inputs] W^T + b */
INTERNAL void linear(const Linear *l, int n, const real *x, real *y);

/* Adds this member's columns to the gradients of weight and bias, given d_y = d loss / d y of all n samples. With
   `products`, the weight's is left as one of them, and `x` must stay as it is until the step. */
INTERNAL void linear_gradient(const Linear *l, int n, const real *x, const real *d_y, real *scratch, Products *products);

/* d_x[n, inputs] += d_y W */
INTERNAL void linear_input_gradient(const Linear *l, int n, const real *d_y, real *d_x);

/* Features of these rows of n observations: real [n, inputs], or bytes [n, planes, height, width]. What the backward
   pass needs is left in `kept`, layer after layer. */
INTERNAL const real *encode(const Encoder *e, int n, Range rows, const void *obs, real *kept, real *scratch);

/* Adds to the gradients of all layers, those of weights perhaps as `products`. `d` [n, features] and `other` have room for
   the widest layer, and are overwritten. All members have to come here. */
INTERNAL void encode_gradient(const Encoder *e, int n, Range rows, const void *obs, const real *kept, real *d, real *other,
                              real *sums, real *scratch, Products *products);

/* Numbers that `products` of an encoder and its head need. */
INTERNAL int64_t products_room(const Encoder *e, const Linear *head);

/* The observations `index`[rows] one after another, in their rows of `obs`. */
INTERNAL void gather(const Encoder *e, const void *all, const int64_t *index, Range rows, void *obs);

/* total[start..end) += the sums of blocks, [blocks, width], in their order. */
INTERNAL void add_sums(int blocks, int64_t width, const real *sums, Range columns, real *total);

/* Numbers that n gathered observations need. */
INTERNAL int64_t obs_room(const Encoder *e, int64_t n);

#endif
