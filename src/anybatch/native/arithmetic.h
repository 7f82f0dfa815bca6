/* Numbers, vectors and the two functions on them that networks and losses need.

   `real` is float, or double if ANYBATCH_DOUBLE is defined (to compare with the reference path). */
#ifndef ANYBATCH_ARITHMETIC_H
#define ANYBATCH_ARITHMETIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef ANYBATCH_DOUBLE
typedef double real;
#else
typedef float real;
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE_ROWS 8
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define TILE_ROWS 6
#else
#define VECTOR_BYTES 16
#define TILE_ROWS 4
#endif

/* Loads and stores need only the alignment of a single number. */
typedef real vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
#define LANES ((int)(VECTOR_BYTES / sizeof(real)))

#define INLINE static inline __attribute__((always_inline))
#define INTERNAL __attribute__((visibility("hidden"))) /* shared by the files of this library, and not exported */

/* Moments of gradients that stay at 0 decay to subnormal numbers, with which processors compute ten times as
   slowly. Within a call they are 0; the program that calls keeps its own way of rounding. What computes in
   between is APART, so that no arithmetic is moved out of it. */
#define APART static __attribute__((noinline))
#if defined(__SSE__)
#include <xmmintrin.h>
#define FLUSH_SUBNORMALS 0x8040u /* results and operands */
typedef unsigned int Subnormals;
INLINE Subnormals flush_subnormals(void) {
  const Subnormals before = _mm_getcsr();
  _mm_setcsr(before | FLUSH_SUBNORMALS);
  return before;
}
INLINE void restore_subnormals(Subnormals before) { _mm_setcsr(before); }
#elif defined(__aarch64__)
#define FLUSH_SUBNORMALS (1ull << 24)
typedef uint64_t Subnormals;
INLINE Subnormals flush_subnormals(void) {
  Subnormals before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"(before | FLUSH_SUBNORMALS));
  return before;
}
INLINE void restore_subnormals(Subnormals before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#else
typedef int Subnormals;
INLINE Subnormals flush_subnormals(void) { return 0; }
INLINE void restore_subnormals(Subnormals before) { (void)before; }
#endif

#ifdef ANYBATCH_DOUBLE
INLINE real exponential(real x) { return exp(x); }
INLINE real hyperbolic_tangent(real x) { return tanh(x); }
#else
/* exp(x) = 2^n exp(r) with |r| <= ln(2)/2, and a Taylor polynomial whose remainder is below float's rounding.
   Written out because a call of the library function would prevent vectorization of a loop. */
INLINE real exponential(real x) {
  const float log2_of_e = 1.442695041f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  float n = __builtin_rintf(x * log2_of_e);
  float r = __builtin_fmaf(-n, ln2_low, __builtin_fmaf(-n, ln2_high, x));
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
  return p * power.value;
}

INLINE real hyperbolic_tangent(real x) {
  float t = exponential(-2.0f * __builtin_fabsf(x));
  return __builtin_copysignf((1.0f - t) / (1.0f + t), x);
}
#endif

#endif
