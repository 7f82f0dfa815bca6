/* Products of small matrices. One kernel keeps a tile of the result in registers; what it reads again and again is
   first copied to where it lies close together, since rows that are a power of two apart push each other out of the
   cache. */
#include "matmul.h"

#include "transpose.h"

#define DEPTH_AT_ONCE 128          /* a panel of this many rows stays in the first-level cache */
#define COLUMNS_AT_ONCE (4 * PANEL)
#define ROWS_AT_ONCE (18 * TILE_ROWS)
#define FEW_ROWS (2 * TILE_ROWS)   /* with fewer, copies do not pay off */
#define SHALLOW 8                  /* depth processed at once if nothing is copied */

INLINE int smaller(int x, int y) { return x < y ? x : y; }

/* C[rows, vectors * LANES] += A B. Called with constant `rows` and `vectors`, so that the loops unroll. */
INLINE void add_tile(const int rows, const int vectors, int depth, const real *a, int a_row, int a_column,
                     const real *b, int b_row, real *c, int c_row) {
  vec sum[TILE_ROWS][2];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) sum[r][v] = *(const vec *)(c + (int64_t)r * c_row + v * LANES);
  for (int k = 0; k < depth; k++) {
    vec b_part[2];
    for (int v = 0; v < vectors; v++) b_part[v] = *(const vec *)(b + (int64_t)k * b_row + v * LANES);
    for (int r = 0; r < rows; r++) {
      const real factor = a[(int64_t)r * a_row + (int64_t)k * a_column];
      for (int v = 0; v < vectors; v++) sum[r][v] += factor * b_part[v];
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) *(vec *)(c + (int64_t)r * c_row + v * LANES) = sum[r][v];
}

/* All columns of some rows. */
INLINE void add_strip(const int rows, int columns, int depth, const real *a, int a_row, int a_column, const real *b,
                      int b_row, real *c, int c_row) {
  int j = 0;
  for (; j + PANEL <= columns; j += PANEL) add_tile(rows, 2, depth, a, a_row, a_column, b + j, b_row, c + j, c_row);
  for (; j + LANES <= columns; j += LANES) add_tile(rows, 1, depth, a, a_row, a_column, b + j, b_row, c + j, c_row);
  for (; j < columns; j++)
    for (int r = 0; r < rows; r++)
      for (int k = 0; k < depth; k++)
        c[(int64_t)r * c_row + j] += a[(int64_t)r * a_row + (int64_t)k * a_column] * b[(int64_t)k * b_row + j];
}

/* `add_product` without copies: rows of B and C are walked along, and a few of B at a time. */
INLINE void add_streaming(int rows, int columns, int depth, const real *a, int a_row, int a_column, const real *b,
                          int b_row, real *c, int c_row) {
  for (int k = 0; k < depth; k += SHALLOW) {
    const int here = smaller(SHALLOW, depth - k);
    const real *a_part = a + (int64_t)k * a_column, *b_part = b + (int64_t)k * b_row;
    int r = 0;
#define STRIP(n) \
  for (; r + n <= rows; r += n) \
  add_strip(n, columns, here, a_part + (int64_t)r * a_row, a_row, a_column, b_part, b_row, c + (int64_t)r * c_row, c_row)
    STRIP(TILE_ROWS);
    STRIP(4);
    STRIP(2);
    STRIP(1);
#undef STRIP
  }
}

/* Rows [.., PANEL] of a part of B in panels, each contiguous. */
static void copy_panels(int columns, int depth, const real *b, int b_row, real *panels) {
  for (int k = 0; k < depth; k++)
    for (int j = 0; j + PANEL <= columns; j += PANEL)
      memcpy(panels + (int64_t)j * depth + k * PANEL, b + (int64_t)k * b_row + j, PANEL * sizeof(real));
}

/* The same for a B that is stored transposed: its entry [k, j] is at j * b_row + k. */
static void copy_transposed_panels(int columns, int depth, const real *b, int b_row, real *panels) {
  for (int j = 0; j + PANEL <= columns; j += PANEL)
    transpose(PANEL, depth, b + (int64_t)j * b_row, b_row, panels + (int64_t)j * depth, PANEL);
}

/* A[rows, depth], stored transposed, so that the entries of a tile are contiguous for each k: [tile, k, row]. Rows
   that do not fill a tile are left out. */
static void copy_tiles(int rows, int depth, const real *a, int a_column, real *tiles) {
  for (int k = 0; k < depth; k++)
    for (int r = 0; r + TILE_ROWS <= rows; r += TILE_ROWS)
      memcpy(tiles + (int64_t)r * depth + k * TILE_ROWS, a + (int64_t)k * a_column + r, TILE_ROWS * sizeof(real));
}

/* C[rows, PANEL] += A B for a panel of B. */
INLINE void add_panel(int rows, int depth, const real *a, int a_row, int a_column, const real *tiles, const real *panel,
                      real *c, int c_row) {
  int r = 0;
  for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
    if (tiles)
      add_tile(TILE_ROWS, 2, depth, tiles + (int64_t)r * depth, 1, TILE_ROWS, panel, PANEL, c + (int64_t)r * c_row, c_row);
    else
      add_tile(TILE_ROWS, 2, depth, a + (int64_t)r * a_row, a_row, 1, panel, PANEL, c + (int64_t)r * c_row, c_row);
  for (; r + 2 <= rows; r += 2)
    add_tile(2, 2, depth, a + (int64_t)r * a_row, a_row, a_column, panel, PANEL, c + (int64_t)r * c_row, c_row);
  for (; r < rows; r++)
    add_tile(1, 2, depth, a + (int64_t)r * a_row, a_row, a_column, panel, PANEL, c + (int64_t)r * c_row, c_row);
}

/* C += A B for as many whole panels as there are columns; B may be stored transposed. Returns the columns done. */
INLINE int add_packed(int rows, int columns, int depth, const real *a, int a_row, int a_column, const real *b,
                      int b_row, const int b_transposed, real *c, int c_row) {
  real panels[DEPTH_AT_ONCE * COLUMNS_AT_ONCE], copied[DEPTH_AT_ONCE * ROWS_AT_ONCE];
  const int whole = columns / PANEL * PANEL, a_transposed = a_column != 1;
  for (int k = 0; k < depth; k += DEPTH_AT_ONCE) {
    const int deep = smaller(DEPTH_AT_ONCE, depth - k);
    for (int start = 0; start < rows; start += a_transposed ? ROWS_AT_ONCE : rows) {
      const int tall = a_transposed ? smaller(ROWS_AT_ONCE, rows - start) : rows;
      const real *a_part = a + (int64_t)start * a_row + (int64_t)k * a_column;
      if (a_transposed) copy_tiles(tall, deep, a_part, a_column, copied);
      for (int j = 0; j < whole; j += COLUMNS_AT_ONCE) {
        const int wide = smaller(COLUMNS_AT_ONCE, whole - j);
        if (b_transposed)
          copy_transposed_panels(wide, deep, b + (int64_t)j * b_row + k, b_row, panels);
        else
          copy_panels(wide, deep, b + (int64_t)k * b_row + j, b_row, panels);
        for (int p = 0; p < wide; p += PANEL)
          add_panel(tall, deep, a_part, a_row, a_column, a_transposed ? copied : 0, panels + (int64_t)p * deep,
                    c + (int64_t)start * c_row + j + p, c_row);
      }
    }
  }
  return whole;
}

/* C += A B. The entry [r, k] of A is at r * a_row + k * a_column, one of which is a constant 1: each caller gets loops
   of its own. */
INLINE void add_strided_product(int rows, int columns, int depth, const real *a, int a_row, int a_column, const real *b,
                                int b_row, real *c, int c_row) {
  int j = 0;
  if (rows >= FEW_ROWS && depth >= 2 * SHALLOW)
    j = add_packed(rows, columns, depth, a, a_row, a_column, b, b_row, 0, c, c_row);
  if (j < columns) add_streaming(rows, columns - j, depth, a, a_row, a_column, b + j, b_row, c + j, c_row);
}

void add_product(int rows, int columns, int depth, const real *a, int a_row, const real *b, int b_row, real *c,
                 int c_row) {
  add_strided_product(rows, columns, depth, a, a_row, 1, b, b_row, c, c_row);
}

void add_transposed_product(int rows, int columns, int depth, const real *a, int a_column, const real *b, int b_row,
                            real *c, int c_row) {
  add_strided_product(rows, columns, depth, a, 1, a_column, b, b_row, c, c_row);
}

INLINE real sum_of_lanes(vec x) {
  real sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += x[lane];
  return sum;
}

/* y[samples, outputs] = x W^T + bias for constant, small numbers of both. */
INLINE void set_dots(const int samples, const int outputs, int depth, const real *x, const real *w, const real *bias,
                     real *y, int y_row) {
  const int whole = depth / LANES * LANES;
  vec sum[2][8] = {{{0}}};
  for (int k = 0; k < whole; k += LANES)
    for (int c = 0; c < outputs; c++) {
      const vec w_part = *(const vec *)(w + (int64_t)c * depth + k);
      for (int r = 0; r < samples; r++) sum[r][c] += w_part * *(const vec *)(x + (int64_t)r * depth + k);
    }
  for (int r = 0; r < samples; r++)
    for (int c = 0; c < outputs; c++) {
      real total = bias[c] + sum_of_lanes(sum[r][c]);
      for (int k = whole; k < depth; k++) total += x[(int64_t)r * depth + k] * w[(int64_t)c * depth + k];
      y[(int64_t)r * y_row + c] = total;
    }
}

/* All samples for some outputs, whose weights stay in the cache meanwhile. */
INLINE void set_dots_of(const int outputs, int n, int depth, const real *x, const real *w, const real *bias, real *y,
                        int y_row) {
  int i = 0;
  for (; i + 2 <= n; i += 2) set_dots(2, outputs, depth, x + (int64_t)i * depth, w, bias, y + (int64_t)i * y_row, y_row);
  if (i < n) set_dots(1, outputs, depth, x + (int64_t)i * depth, w, bias, y + (int64_t)i * y_row, y_row);
}

/* y[n, outputs] = x[n, depth] W[outputs, depth]^T + bias, by dot products. `y` has the given stride between rows. */
static void set_dot_products(int n, int outputs, int depth, const real *x, const real *w, const real *bias, real *y,
                             int y_row) {
  int o = 0;
  for (; o + 4 <= outputs; o += 4) set_dots_of(4, n, depth, x, w + (int64_t)o * depth, bias + o, y + o, y_row);
  for (; o < outputs; o++) set_dots_of(1, n, depth, x, w + (int64_t)o * depth, bias + o, y + o, y_row);
}

/* By the kernel of `add_product`, if there are enough samples for copies of the weights to pay off. */
void set_products(int n, int outputs, int depth, const real *x, const real *w, const real *bias, real *y) {
  if (n < FEW_ROWS || outputs < PANEL) {
    set_dot_products(n, outputs, depth, x, w, bias, y, outputs);
    return;
  }
  for (int i = 0; i < n; i++) memcpy(y + (int64_t)i * outputs, bias, outputs * sizeof(real));
  const int done = add_packed(n, outputs, depth, x, depth, 1, w, depth, 1, y, outputs);
  if (done < outputs)
    set_dot_products(n, outputs - done, depth, x, w + (int64_t)done * depth, bias + done, y + done, outputs);
}
