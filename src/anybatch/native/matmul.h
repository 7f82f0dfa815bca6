/* Products of small matrices. */
#ifndef ANYBATCH_MATMUL_H
#define ANYBATCH_MATMUL_H

#include "arithmetic.h"

/* to[columns, rows] = from[rows, columns], with the given strides between rows. */
INTERNAL void transpose(int rows, int columns, const real *from, int from_row, real *to, int to_row);

/* C[rows, columns] += A[rows, depth] B[depth, columns]. Rows of B and C are contiguous. A may be transposed: its entry
   [r, k] is at r * a_row + k * a_column, one of which is 1. */
INTERNAL void add_product(int rows, int columns, int depth, const real *a, int a_row, int a_column, const real *b,
                          int b_row, real *c, int c_row);

/* y[n, outputs] = x[n, depth] W[outputs, depth]^T + bias */
INTERNAL void set_products(int n, int outputs, int depth, const real *x, const real *w, const real *bias, real *y);

#endif
