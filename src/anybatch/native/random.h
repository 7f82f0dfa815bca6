/* SplitMix64 by index: the number `index` of a seed's stream, in [0, 1). An env's draws are then a function of
   its seed and the number of its draws. */
#pragma once
#include <stdint.h>

static inline double uniform_at(uint64_t seed, uint64_t index) {
  uint64_t bits = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
  bits ^= bits >> 31;
  return (bits >> 11) * 0x1p-53;
}
