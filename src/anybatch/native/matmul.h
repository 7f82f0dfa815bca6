/* Products of small matrices. */
#ifndef ANYBATCH_MATMUL_H
#define ANYBATCH_MATMUL_H

#include "arithmetic.h"

#define PANEL (2 * LANES) /* columns of a tile; columns may be divided between whole panels without changing a bit */

/* C[rows, columns] += A[rows, depth] B[depth, columns]. The numbers of a row are contiguous, and rows as far apart as
   given. */
INTERNAL void add_product(int rows, int columns, int depth, const real *a, int a_row, const real *b, int b_row, real *c,
                          int c_row);

/* The same for an A that is stored transposed: its entry [r, k] is at k * a_column + r. */
INTERNAL void add_transposed_product(int rows, int columns, int depth, const real *a, int a_column, const real *b,
                                     int b_row, real *c, int c_row);

/* y[n, outputs] = x[n, depth] W[outputs, depth]^T + bias */
INTERNAL void set_products(int n, int outputs, int depth, const real *x, const real *w, const real *bias, real *y);

#endif
