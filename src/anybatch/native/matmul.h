/* Products of small matrices: one kernel that keeps a tile of the result in registers. */
#ifndef ANYBATCH_MATMUL_H
#define ANYBATCH_MATMUL_H

#include "arithmetic.h"

/* C[rows, vectors * LANES] += A B. Called with constant `rows` and `vectors`, so that the loops unroll. */
INLINE void add_tile(const int rows, const int vectors, int depth, const real *a, int a_row, int a_column,
                     const real *b, int b_row, real *c, int c_row) {
  vec sum[TILE_ROWS][2];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) sum[r][v] = *(const vec *)(c + r * c_row + v * LANES);
  for (int k = 0; k < depth; k++) {
    vec b_part[2];
    for (int v = 0; v < vectors; v++) b_part[v] = *(const vec *)(b + k * b_row + v * LANES);
    for (int r = 0; r < rows; r++) {
      const real factor = a[r * a_row + k * a_column];
      for (int v = 0; v < vectors; v++) sum[r][v] += factor * b_part[v];
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) *(vec *)(c + r * c_row + v * LANES) = sum[r][v];
}

INLINE void add_rows(const int vectors, int rows, int depth, const real *a, int a_row, int a_column,
                     const real *b, int b_row, real *c, int c_row) {
  int r = 0;
  for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
    add_tile(TILE_ROWS, vectors, depth, a + r * a_row, a_row, a_column, b, b_row, c + r * c_row, c_row);
  for (; r + 2 <= rows; r += 2)
    add_tile(2, vectors, depth, a + r * a_row, a_row, a_column, b, b_row, c + r * c_row, c_row);
  for (; r < rows; r++)
    add_tile(1, vectors, depth, a + r * a_row, a_row, a_column, b, b_row, c + r * c_row, c_row);
}

/* C[rows, columns] += A[rows, depth] B[depth, columns]. Rows of B and C are contiguous; A may be transposed:
   its entry [r, k] is at r * a_row + k * a_column. */
static void add_product(int rows, int columns, int depth, const real *a, int a_row, int a_column,
                        const real *b, int b_row, real *c, int c_row) {
  int j = 0;
  for (; j + 2 * LANES <= columns; j += 2 * LANES)
    add_rows(2, rows, depth, a, a_row, a_column, b + j, b_row, c + j, c_row);
  for (; j + LANES <= columns; j += LANES)
    add_rows(1, rows, depth, a, a_row, a_column, b + j, b_row, c + j, c_row);
  if (j == columns) return;
  for (int r = 0; r < rows; r++)
    for (int k = 0; k < depth; k++) {
      const real factor = a[r * a_row + k * a_column];
      for (int column = j; column < columns; column++) c[r * c_row + column] += factor * b[k * b_row + column];
    }
}

INLINE real dot(int count, const real *x, const real *y) {
  real sum = 0;
  for (int i = 0; i < count; i++) sum += x[i] * y[i];
  return sum;
}

static void transpose(int rows, int columns, const real *from, real *to) {
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

#endif
