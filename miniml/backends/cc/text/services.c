/* What one process gives every unit of kernels: threads that sleep between calls. It
   follows the prelude of all units, which declares miniml_services. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

/* --- threads ------------------------------------------------------------------------------------

   The caller of `parallel` takes parts from the first on until none is left, and every thread that
   wakes meanwhile from the last on, so that a call finds most of its data in the caches where the
   one before left it. The caller then waits for parts that others have begun, never for a thread
   that has not woken: on a busy machine the caller does all the work itself. Everybody who waits
   looks for a moment and then sleeps. */

typedef struct {
  void (*part)(void *, long);
  void *data;
  long parts;
  atomic_long taken, last; /* parts that are taken; those of them that were taken from the last on */
} region;

static struct {
  pthread_mutex_t turn, lock; /* turn: of the caller whose region it is; lock: of what follows */
  pthread_cond_t work, done;
  region *_Atomic open; /* the region that threads may still join */
  atomic_long places;   /* how many more may */
  atomic_long inside;   /* how many are in it */
  long threads;         /* how many exist, besides the callers */
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
          PTHREAD_COND_INITIALIZER, NULL, 0, 0, 0};

static long most_threads = 1;            /* of any region, the caller included */
static _Thread_local long fewer_threads; /* of the regions of the present run; 0: no limit */
static _Thread_local int inside_region;  /* a region inside another one runs serially */

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* 20 us, by the clock, so that a thread that loses its core meanwhile does not go on looking. To
   sleep and to be woken takes about 40. */
#define LOOK_FOR(condition)                                                                        \
  for (int64_t end = now() + 20000; !(condition) && now() < end;) {                                \
  }

static void take_parts(region *mine, int caller) {
  for (long own = 0; atomic_fetch_add(&mine->taken, 1) < mine->parts; ++own)
    mine->part(mine->data, caller ? own : mine->parts - 1 - atomic_fetch_add(&mine->last, 1));
}

static void *serve(void *unused) {
  (void)unused;
  inside_region = 1;
  for (;;) {
    LOOK_FOR(pool.open && pool.places);
    pthread_mutex_lock(&pool.lock);
    while (!pool.open || !pool.places) pthread_cond_wait(&pool.work, &pool.lock);
    region *mine = pool.open;
    --pool.places;
    ++pool.inside;
    pthread_mutex_unlock(&pool.lock);
    take_parts(mine, 0);
    pthread_mutex_lock(&pool.lock);
    if (!--pool.inside) pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.lock);
  }
  return NULL;
}

/* Start threads until there are `count`, or no more can be had. Signals are Python's business. */
static void grow(long count) {
  if (pool.threads >= count) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (pthread_t made; pool.threads < count; ++pool.threads) {
    if (pthread_create(&made, NULL, serve, NULL)) break;
    pthread_detach(made);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void parallel(void (*part)(void *, long), void *data, long parts) {
  long threads = fewer_threads && fewer_threads < most_threads ? fewer_threads : most_threads;
  if (threads > parts) threads = parts;
  if (threads < 2 || inside_region || pthread_mutex_trylock(&pool.turn)) {
    for (long i = 0; i < parts; ++i) part(data, i);
    return;
  }
  region mine = {part, data, parts, 0, 0};
  pthread_mutex_lock(&pool.lock);
  grow(threads - 1);
  pool.places = threads - 1;
  pool.open = &mine;
  pthread_mutex_unlock(&pool.lock);
  for (long i = 1; i < threads; ++i) pthread_cond_signal(&pool.work);
  inside_region = 1;
  take_parts(&mine, 1);
  inside_region = 0;
  pthread_mutex_lock(&pool.lock);
  pool.open = NULL;
  pthread_mutex_unlock(&pool.lock);
  LOOK_FOR(!pool.inside);
  pthread_mutex_lock(&pool.lock);
  while (pool.inside) pthread_cond_wait(&pool.done, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
  pthread_mutex_unlock(&pool.turn);
}

/* --- the services -------------------------------------------------------------------------------*/

/* A child of fork has the one thread that called it, which was in no region. */
static void begin_in_child(void) {
  pthread_mutex_init(&pool.turn, NULL);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.work, NULL);
  pthread_cond_init(&pool.done, NULL);
  pool.open = NULL;
  pool.places = pool.inside = pool.threads = 0;
}

static miniml_services begin_services(long threads) {
  most_threads = threads;
  pthread_atfork(NULL, NULL, begin_in_child);
  return (miniml_services){parallel};
}
