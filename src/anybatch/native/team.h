/* Threads that do one piece of work together.

   What they compute does not depend on their number. Samples are divided in whole blocks, and a block is always computed
   in the same way; a sum over samples is either made by one member from first to last, or per block, and the sums of
   blocks are then added in their order. */
#ifndef ANYBATCH_TEAM_H
#define ANYBATCH_TEAM_H

#include "arithmetic.h"

#define BLOCK_SAMPLES 16 /* enough for products of a block to be computed as those of all samples are (matmul.c) */

typedef struct {
  int64_t start, end;
} Range;

INLINE int64_t length(Range range) { return range.end - range.start; }

/* Calls `work` in `members` threads, this one among them, and returns when all have finished. If the system has no
   more threads, there are fewer members. */
INTERNAL void as_team(int members, void (*work)(void *), void *argument);

/* The number of this member, from 0. */
INTERNAL int member(void);

/* This member's share of `count` things, in whole blocks; the last block has what is left over. */
INTERNAL Range share_of(int64_t count, int64_t block);

/* Waits for all other members to come here. What they have written is visible afterwards. */
INTERNAL void wait_for_all(void);

/* Blocks of n samples: as many as `share_of` divides. */
INLINE int blocks_of(int n) { return n < 2 * BLOCK_SAMPLES ? 1 : n / BLOCK_SAMPLES; }

INLINE int block_of(int sample, int n) {
  const int block = sample / BLOCK_SAMPLES, last = blocks_of(n) - 1;
  return block < last ? block : last;
}

/* Where the block of a sample starts and ends. */
INLINE int block_start(int sample, int n) { return block_of(sample, n) * BLOCK_SAMPLES; }

INLINE int block_end(int sample, int n) {
  const int block = block_of(sample, n);
  return block == blocks_of(n) - 1 ? n : (block + 1) * BLOCK_SAMPLES;
}

/* Members among whom `samples` are worth dividing, `threads` at most, if each costs `operations` multiplications. */
int useful_members(int threads, int64_t samples, int64_t operations);

#endif
