/* Transposing small matrices. */
#ifndef ANYBATCH_TRANSPOSE_H
#define ANYBATCH_TRANSPOSE_H

#include "arithmetic.h"

/* a[0] b[0] a[1] b[1] … of the first halves of two vectors, and of their second halves. */
#if defined(__clang__)
#define CHOOSE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#elif defined(ANYBATCH_DOUBLE)
typedef int64_t places __attribute__((vector_size(VECTOR_BYTES)));
#define CHOOSE(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#else
typedef int32_t places __attribute__((vector_size(VECTOR_BYTES)));
#define CHOOSE(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif
#if defined(ANYBATCH_DOUBLE)
#define LANES_OF(bytes) ((bytes) / 8)
#else
#define LANES_OF(bytes) ((bytes) / 4)
#endif
#if LANES_OF(VECTOR_BYTES) == 2
#define FIRST_HALVES(a, b) CHOOSE(a, b, 0, 2)
#define SECOND_HALVES(a, b) CHOOSE(a, b, 1, 3)
#elif LANES_OF(VECTOR_BYTES) == 4
#define FIRST_HALVES(a, b) CHOOSE(a, b, 0, 4, 1, 5)
#define SECOND_HALVES(a, b) CHOOSE(a, b, 2, 6, 3, 7)
#elif LANES_OF(VECTOR_BYTES) == 8
#define FIRST_HALVES(a, b) CHOOSE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define SECOND_HALVES(a, b) CHOOSE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define FIRST_HALVES(a, b) CHOOSE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define SECOND_HALVES(a, b) CHOOSE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#endif

/* to[c, r] = from[r, c] for a square of LANES: as often as 2 divides that, rows are zipped with those half of the
   square further down. */
INLINE void transpose_square(const real *from, int from_row, real *to, int to_row) {
  vec rows[LANES], zipped[LANES];
  for (int r = 0; r < LANES; r++) rows[r] = *(const vec *)(from + (int64_t)r * from_row);
  for (int span = 1; span < LANES; span *= 2) {
    for (int r = 0; r < LANES / 2; r++) {
      zipped[2 * r] = FIRST_HALVES(rows[r], rows[r + LANES / 2]);
      zipped[2 * r + 1] = SECOND_HALVES(rows[r], rows[r + LANES / 2]);
    }
    for (int r = 0; r < LANES; r++) rows[r] = zipped[r];
  }
  for (int r = 0; r < LANES; r++) *(vec *)(to + (int64_t)r * to_row) = rows[r];
}

/* to[columns, rows] = from[rows, columns], with the given strides between rows. Inlined, since a convolution calls it
   with a constant number of channels. */
INLINE void transpose(int rows, int columns, const real *from, int from_row, real *to, int to_row) {
  const int whole_rows = rows / LANES * LANES, whole_columns = columns / LANES * LANES;
  for (int r = 0; r < whole_rows; r += LANES)
    for (int c = 0; c < whole_columns; c += LANES)
      transpose_square(from + (int64_t)r * from_row + c, from_row, to + (int64_t)c * to_row + r, to_row);
  for (int r = 0; r < rows; r++)
    for (int c = r < whole_rows ? whole_columns : 0; c < columns; c++)
      to[(int64_t)c * to_row + r] = from[(int64_t)r * from_row + c];
}

#endif
