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

/* Takes a step with the gradients that are there, lets the average follow, and sets the gradients to 0 for the next
   step. Returns 0, and leaves everything as it is, if a gradient is non-finite. All members of a team have to come
   here. */
INTERNAL int take_step(const Weights *weights, Step *step);

INLINE int64_t most_samples(const Step *step, int32_t steps) {
  int64_t most = 0;
  for (int k = 0; k < steps; k++) most = step[k].samples > most ? step[k].samples : most;
  return most;
}

#endif
