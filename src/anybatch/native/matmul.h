/* Products of small matrices: one kernel that keeps a tile of the result in registers. */
#ifndef ANYBATCH_MATMUL_H
#define ANYBATCH_MATMUL_H

#include "arithmetic.h"

#define DEPTH_AT_ONCE 128

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

/* `add_product` for a part of the depth whose rows of B stay in the cache. */
static void add_part(int rows, int columns, int depth, const real *a, int a_row, int a_column, const real *b,
                     int b_row, real *c, int c_row) {
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

/* C[rows, columns] += A[rows, depth] B[depth, columns]. Rows of B and C are contiguous; A may be transposed:
   its entry [r, k] is at r * a_row + k * a_column. */
static void add_product(int rows, int columns, int depth, const real *a, int a_row, int a_column, const real *b,
                        int b_row, real *c, int c_row) {
  for (int k = 0; k < depth; k += DEPTH_AT_ONCE)
    add_part(rows, columns, depth - k < DEPTH_AT_ONCE ? depth - k : DEPTH_AT_ONCE, a + (int64_t)k * a_column, a_row,
             a_column, b + (int64_t)k * b_row, b_row, c, c_row);
}

INLINE real dot(int count, const real *x, const real *y) {
  real sum = 0;
  for (int i = 0; i < count; i++) sum += x[i] * y[i];
  return sum;
}

#define DOT_TILE 4

/* y[n, outputs] = x[n, depth] W[outputs, depth]^T + bias, a square of dot products at a time. */
static void set_dot_products(int n, int outputs, int depth, const real *x, const real *w, const real *bias, real *y) {
  const int whole = depth / LANES * LANES;
  int i = 0;
  for (; i + DOT_TILE <= n; i += DOT_TILE) {
    int o = 0;
    for (; o + DOT_TILE <= outputs; o += DOT_TILE) {
      vec sum[DOT_TILE][DOT_TILE] = {{{0}}};
      for (int k = 0; k < whole; k += LANES)
        for (int r = 0; r < DOT_TILE; r++) {
          const vec x_part = *(const vec *)(x + (int64_t)(i + r) * depth + k);
          for (int c = 0; c < DOT_TILE; c++) sum[r][c] += x_part * *(const vec *)(w + (int64_t)(o + c) * depth + k);
        }
      for (int r = 0; r < DOT_TILE; r++)
        for (int c = 0; c < DOT_TILE; c++) {
          real total = bias[o + c];
          for (int lane = 0; lane < LANES; lane++) total += sum[r][c][lane];
          for (int k = whole; k < depth; k++) total += x[(int64_t)(i + r) * depth + k] * w[(int64_t)(o + c) * depth + k];
          y[(i + r) * outputs + o + c] = total;
        }
    }
    for (; o < outputs; o++)
      for (int r = 0; r < DOT_TILE; r++)
        y[(i + r) * outputs + o] = bias[o] + dot(depth, x + (int64_t)(i + r) * depth, w + (int64_t)o * depth);
  }
  for (; i < n; i++)
    for (int o = 0; o < outputs; o++)
      y[i * outputs + o] = bias[o] + dot(depth, x + (int64_t)i * depth, w + (int64_t)o * depth);
}

static void transpose(int rows, int columns, const real *from, real *to) {
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

#endif
