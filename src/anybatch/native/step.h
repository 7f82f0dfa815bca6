/* Gradient steps on one flat vector. */
#ifndef ANYBATCH_STEP_H
#define ANYBATCH_STEP_H

#include "team.h"

/* A network's parameters as one vector, with what Adam keeps of their gradients. */
typedef struct {
  real *value, *gradient, *first, *second; /* [count] */
  int64_t count;
  double beta1, beta2;
  double max_norm;     /* gradients are clipped to it; infinite where they are not */
  double clip_epsilon; /* added to their norm, by which they are then divided */
  real *average;       /* [averaged]: an average of the first parameters, or null */
  int64_t averaged;
  double *sums;        /* [step_sums(count)], to work with */
} Weights;

typedef struct {
  int64_t samples;
  double step_size, root_correction, epsilon; /* as `adam` takes them */
  double share;                               /* by which the average moves towards the parameters */
  double norm;                                /* of the gradient before clipping: an output */
} Step;

/* The gradient of a matrix [outputs, inputs] as the product d^T x over n samples. It is not stored: a step forms it where
   it needs it, so that each weight is read and written once, and no gradient is. */
typedef struct {
  real *place; /* where the gradient would be stored, which stays 0 */
  int inputs, outputs, n;
  const real *x, *d; /* [n, inputs], [n, outputs] */
} Product;

#define MOST_PRODUCTS (2 * MOST_LAYERS + 2) /* the layers of two encoders, and their heads */
#define FEWEST_WEIGHTS 16384 /* of a matrix for which this pays: smaller ones stay in the first-level cache */

typedef struct {
  Product product[MOST_PRODUCTS]; /* in the order of their places */
  int count;
  real *room; /* for copies of d */
} Products;

#define FORMED_SAMPLES 8 /* of a step: the gradients of more cost less if they are stored. One member takes such a step */

/* Takes a step with the gradients that are there, lets the average follow, and sets the gradients to 0 for the next
   step. Gradients that are `products`, if any, are not among them. Returns 0, and leaves everything as it is, if a gradient
   is non-finite. All members of a team have to come here. */
INTERNAL int take_step(const Weights *weights, Step *step, const Products *products);

INLINE int64_t most_samples(const Step *step, int32_t steps) {
  int64_t most = 0;
  for (int k = 0; k < steps; k++) most = step[k].samples > most ? step[k].samples : most;
  return most;
}

#endif
