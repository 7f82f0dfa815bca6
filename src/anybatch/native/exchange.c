/* Exchanges between processes of one machine, through memory that they share.

   The memory holds a counter of each rank, then a slot of each rank, then a slot for results. An exchange has two halves,
   and at the end of each a rank increases its counter: when it has written its slot, and when it no longer needs the
   slots of the others. So slots are read after the first half of all ranks, and written after their second. */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "arithmetic.h"

#define LINE 64                /* bytes that processors hand to each other as a whole */
#define LOOKS 300              /* at the counters before other processes get this processor: some 10 µs */
#define SECONDS_AWAKE 0.003    /* before sleeping, since a process that sleeps has to be woken */
#define SECONDS 0.02           /* before returning */
#define SLEEP_NANOSECONDS 50000
#define BLOCK_BYTES 16384      /* of each slot that are added at a time: they stay in the fastest cache */

typedef struct {
  _Alignas(LINE) atomic_llong halves; /* of exchanges that this rank has finished */
} Counter;

typedef struct {
  char *memory;
  int64_t slot_bytes; /* a multiple of LINE */
  int32_t rank, ranks;
} Exchange;

int64_t exchange_bytes(int32_t ranks, int64_t slot_bytes) {
  return ranks * (int64_t)sizeof(Counter) + (ranks + 1) * slot_bytes;
}

static Counter *counter_of(const Exchange *exchange, int rank) { return (Counter *)exchange->memory + rank; }

/* Of a rank; after the last one comes that of results. */
static char *slot_of(const Exchange *exchange, int rank) {
  return exchange->memory + exchange->ranks * sizeof(Counter) + rank * exchange->slot_bytes;
}

static void finish_half(const Exchange *exchange) {
  atomic_fetch_add_explicit(&counter_of(exchange, exchange->rank)->halves, 1, memory_order_release);
}

static int have_finished(const Exchange *exchange, int64_t halves) {
  for (int rank = 0; rank < exchange->ranks; rank++)
    if (atomic_load_explicit(&counter_of(exchange, rank)->halves, memory_order_acquire) < halves) return 0;
  return 1;
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Waits until all ranks have finished so many halves. Returns 0 if they have not after some time, or if a signal has
   arrived, so that the caller can handle it and look whether the others are still there. */
int exchange_wait(const Exchange *exchange, int64_t halves) {
  for (int look = 0; look < LOOKS; look++) {
    if (have_finished(exchange, halves)) return 1;
#if defined(__SSE__)
    if (look > LOOKS / 100) _mm_pause();
#endif
  }
  const double start = seconds_now();
  while (seconds_now() - start < SECONDS_AWAKE) {
    if (have_finished(exchange, halves)) return 1;
    sched_yield();
  }
  while (seconds_now() - start < SECONDS) {
    if (have_finished(exchange, halves)) return 1;
    if (nanosleep(&(struct timespec){.tv_nsec = SLEEP_NANOSECONDS}, 0)) break;
  }
  return have_finished(exchange, halves);
}

/* Write this rank's slot, which ends the first half. */
void exchange_write(const Exchange *exchange, const void *content, int64_t bytes) {
  memcpy(slot_of(exchange, exchange->rank), content, bytes);
  finish_half(exchange);
}

/* Read the slots of all ranks, one after the other, which ends the second half. */
void exchange_read_all(const Exchange *exchange, void *content, int64_t bytes) {
  for (int rank = 0; rank < exchange->ranks; rank++)
    memcpy((char *)content + rank * bytes, slot_of(exchange, rank), bytes);
  finish_half(exchange);
}

void exchange_read_result(const Exchange *exchange, void *content, int64_t bytes) {
  memcpy(content, slot_of(exchange, exchange->ranks), bytes);
}

/* Add this rank's share of `count` numbers over all ranks into the slot of results, which ends the second half. Each
   number is added by one rank, so all ranks get the same bits. */
#define EXCHANGE_ADD(NAME, NUMBER)                                                                                     \
  void NAME(const Exchange *exchange, int64_t count) {                                                                 \
    const int64_t first = count * exchange->rank / exchange->ranks, block = BLOCK_BYTES / sizeof(NUMBER);              \
    const int64_t end = count * (exchange->rank + 1) / exchange->ranks;                                                \
    NUMBER *restrict result = (NUMBER *)slot_of(exchange, exchange->ranks);                                            \
    for (int64_t start = first; start < end; start += block) {                                                         \
      const int64_t here = end - start < block ? end - start : block;                                                  \
      memcpy(result + start, (NUMBER *)slot_of(exchange, 0) + start, here * sizeof(NUMBER));                           \
      for (int rank = 1; rank < exchange->ranks; rank++) {                                                             \
        const NUMBER *restrict added = (NUMBER *)slot_of(exchange, rank) + start;                                      \
        for (int64_t i = 0; i < here; i++) result[start + i] += added[i];                                              \
      }                                                                                                                \
    }                                                                                                                  \
    finish_half(exchange);                                                                                             \
  }

EXCHANGE_ADD(exchange_add_floats, float)
EXCHANGE_ADD(exchange_add_doubles, double)
