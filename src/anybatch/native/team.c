/* Threads that do one piece of work together. They live as long as the work: starting one takes some 20 µs, and calls
   take milliseconds. So nothing is left running, and nothing has to survive a fork. */
#include "team.h"

#include <pthread.h>
#include <stdatomic.h>

#define MOST_MEMBERS 64
#define PATIENCE 50000           /* looks for the others before sleeping: a millisecond or two, in which the system moves a
                                    member to a processor of its own; sleeping members would stay on one */
#define LEAST_OPERATIONS 1500000 /* of a member and part of a minibatch: some 30 µs, in which it waits a few times */

typedef struct {
  void (*work)(void *);
  void *argument;
  atomic_int members; /* 0 until all have been started */
  atomic_int waiting, rounds;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
} Team;

typedef struct {
  Team *team;
  int number;
} Place;

static __thread Place here; /* without a team outside of `as_team` */

int member(void) { return here.number; }

static void pause_briefly(void) {
#if defined(__SSE__)
  _mm_pause();
#endif
}

static int size(void) { return here.team ? atomic_load_explicit(&here.team->members, memory_order_relaxed) : 1; }

Range share_of(int64_t count, int64_t block) {
  const int members = size();
  const int64_t blocks = count < 2 * block ? 1 : count / block;
  const int64_t first = blocks * here.number / members, end = blocks * (here.number + 1) / members;
  return (Range){first * block, end == blocks ? count : end * block};
}

/* Waits until `number` is no longer `old`. Others may need this processor to change it, so looking ends in sleep. */
static void wait_for_change(Team *team, atomic_int *number, int old) {
  for (int looks = 0; looks < PATIENCE; looks++) {
    if (atomic_load_explicit(number, memory_order_acquire) != old) return;
    pause_briefly();
  }
  pthread_mutex_lock(&team->mutex);
  while (atomic_load_explicit(number, memory_order_acquire) == old) pthread_cond_wait(&team->changed, &team->mutex);
  pthread_mutex_unlock(&team->mutex);
}

static void change(Team *team, atomic_int *number, int new) {
  pthread_mutex_lock(&team->mutex);
  atomic_store_explicit(number, new, memory_order_release);
  pthread_cond_broadcast(&team->changed);
  pthread_mutex_unlock(&team->mutex);
}

void wait_for_all(void) {
  Team *team = here.team;
  if (size() == 1) return;
  const int round = atomic_load_explicit(&team->rounds, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&team->waiting, 1, memory_order_acq_rel) < size() - 1) {
    wait_for_change(team, &team->rounds, round);
    return;
  }
  atomic_store_explicit(&team->waiting, 0, memory_order_relaxed);
  change(team, &team->rounds, round + 1);
}

static void *take_part(void *place) {
  here = *(const Place *)place;
  wait_for_change(here.team, &here.team->members, 0);
  here.team->work(here.team->argument);
  return 0;
}

void as_team(int members, void (*work)(void *), void *argument) {
  Team team = {.work = work, .argument = argument, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  Place places[MOST_MEMBERS];
  pthread_t threads[MOST_MEMBERS];
  int started = 1;
  for (; started < members && started < MOST_MEMBERS; started++) {
    places[started] = (Place){&team, started};
    if (pthread_create(threads + started, 0, take_part, places + started)) break;
  }
  here = (Place){&team, 0};
  change(&team, &team.members, started);
  work(argument);
  here = (Place){0};
  for (int k = 1; k < started; k++) pthread_join(threads[k], 0);
}

int useful_members(int threads, int64_t samples, int64_t operations) {
  const int64_t worth = samples * operations / LEAST_OPERATIONS, blocks = samples / BLOCK_SAMPLES;
  const int64_t most = worth < blocks ? worth : blocks;
  return most < 1 ? 1 : most < threads ? most : threads;
}
