// Copies blocks between paged memory, where each is many spans of equal size far apart, and rows that hold one block
// whole. A second thread helps as far as there is a core for it.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (128 << 10) // what a thread takes at a time
#define LEAST_SHARED (1 << 20)  // bytes from which a second thread is worth its wake-up

typedef struct {
  char *const *pages;     // [places] where block 0 has its span
  const int64_t *offsets; // [places] where a row has that span
  int64_t places;
  int64_t span; // bytes
  char *rows;
  int64_t row_bytes; // from one row to the next
  const int32_t *block_numbers; // [count]
  const int32_t *row_numbers;
  int64_t count;
  int to_rows;
} copy_job;

typedef struct {
  char *to;
  const char *from;
} ends;

static ends ends_of(const copy_job *job, int64_t span) {
  int64_t block = span / job->places, place = span % job->places;
  char *page = job->pages[place] + job->block_numbers[block] * job->span;
  char *row = job->rows + job->row_numbers[block] * job->row_bytes + job->offsets[place];
  return job->to_rows ? (ends){row, page} : (ends){page, row};
}

#if defined(__x86_64__)
#include <immintrin.h>

// Streaming stores: what is written here is read much later, and a plain store would first read the line it
// overwrites. The next span is asked for while one is copied, since the prefetcher stops where a span ends, and the
// address of a later one is looked up, since that is on another page.
__attribute__((target("avx2"))) static void stream(const copy_job *job, int64_t first, int64_t last) {
  ends now = ends_of(job, first);
  for (int64_t i = first; i < last; i++) {
    ends next = i + 1 < last ? ends_of(job, i + 1) : now;
    if (i + 4 < last) {
      ends later = ends_of(job, i + 4);
      _mm_prefetch(later.from, _MM_HINT_T0);
      _mm_prefetch(later.to, _MM_HINT_T2);
    }
    for (int64_t at = 0; at < job->span; at += 128) {
      _mm_prefetch(next.from + at, _MM_HINT_T0);
      _mm_prefetch(next.from + at + 64, _MM_HINT_T0);
      __m256i a = _mm256_loadu_si256((const __m256i *)(now.from + at));
      __m256i b = _mm256_loadu_si256((const __m256i *)(now.from + at + 32));
      __m256i c = _mm256_loadu_si256((const __m256i *)(now.from + at + 64));
      __m256i d = _mm256_loadu_si256((const __m256i *)(now.from + at + 96));
      _mm256_stream_si256((__m256i *)(now.to + at), a);
      _mm256_stream_si256((__m256i *)(now.to + at + 32), b);
      _mm256_stream_si256((__m256i *)(now.to + at + 64), c);
      _mm256_stream_si256((__m256i *)(now.to + at + 96), d);
    }
    now = next;
  }
  _mm_sfence();
}

// Both ends of every span must allow it, as a job may go either way.
static int can_stream(const copy_job *job) {
  if (job->span % 128 || job->row_bytes % 32 || (uintptr_t)job->rows % 32 || !__builtin_cpu_supports("avx2")) return 0;
  for (int64_t place = 0; place < job->places; place++)
    if ((uintptr_t)job->pages[place] % 32 || job->offsets[place] % 32) return 0;
  return 1;
}
#else
static int can_stream(const copy_job *job) { return 0; }
static void stream(const copy_job *job, int64_t first, int64_t last) {}
#endif

static void copy_part(const copy_job *job, int64_t first, int64_t last, int streams) {
  if (streams) {
    stream(job, first, last);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    ends now = ends_of(job, i);
    memcpy(now.to, now.from, job->span);
  }
}

// One helper thread for the process, started at its first use. It takes chunks of the open job as long as there are
// any; the caller takes them too, and waits only for a chunk that the helper is in, never for it to wake up.
static struct {
  pthread_mutex_t lock;
  pthread_cond_t opened, left;
  const copy_job *job; // the open one, or NULL
  int inside;          // the helper works on it
  int streams;
  int64_t step;
  atomic_llong next; // first span nobody has taken
  pid_t owner;       // the process that has the thread: a fork does not
} helper;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void take_chunks(const copy_job *job, int64_t step, int streams) {
  int64_t total = job->count * job->places;
  for (;;) {
    int64_t first = atomic_fetch_add(&helper.next, step);
    if (first >= total) return;
    copy_part(job, first, first + step < total ? first + step : total, streams);
  }
}

static void *help(void *unused) {
  pthread_mutex_lock(&helper.lock);
  for (;;) {
    while (!helper.job) pthread_cond_wait(&helper.opened, &helper.lock);
    const copy_job *job = helper.job;
    helper.inside = 1;
    pthread_mutex_unlock(&helper.lock);
    take_chunks(job, helper.step, helper.streams);
    pthread_mutex_lock(&helper.lock);
    helper.inside = 0;
    if (helper.job == job) helper.job = NULL; // nothing is left of it
    pthread_cond_signal(&helper.left);
  }
  return NULL;
}

static int helper_runs(void) {
  pid_t here = getpid();
  if (helper.owner == here) return 1;
  pthread_mutex_init(&helper.lock, NULL);
  pthread_cond_init(&helper.opened, NULL);
  pthread_cond_init(&helper.left, NULL);
  helper.job = NULL;
  helper.inside = 0;
  pthread_t thread;
  if (pthread_create(&thread, NULL, help, NULL)) return 0;
  pthread_detach(thread);
  helper.owner = here;
  return 1;
}

static void copy_together(const copy_job *job, int streams) {
  int64_t step = CHUNK_BYTES / job->span;
  helper.step = step > 0 ? step : 1;
  helper.streams = streams;
  atomic_store(&helper.next, 0);
  pthread_mutex_lock(&helper.lock);
  helper.job = job;
  pthread_cond_signal(&helper.opened);
  pthread_mutex_unlock(&helper.lock);
  take_chunks(job, helper.step, streams);
  pthread_mutex_lock(&helper.lock);
  helper.job = NULL;
  while (helper.inside) pthread_cond_wait(&helper.left, &helper.lock);
  pthread_mutex_unlock(&helper.lock);
}

void kvgate_copy_spans(char *const *pages, const int64_t *offsets, int64_t places, int64_t span, char *rows,
                       int64_t row_bytes, const int32_t *block_numbers, const int32_t *row_numbers, int64_t count,
                       int to_rows, int threads) {
  copy_job job = {pages, offsets, places, span, rows, row_bytes, block_numbers, row_numbers, count, to_rows};
  int streams = can_stream(&job);
  if (threads > 1 && count * places * span >= LEAST_SHARED && !atomic_flag_test_and_set(&busy)) {
    int together = helper_runs();
    if (together) copy_together(&job, streams);
    atomic_flag_clear(&busy);
    if (together) return;
  }
  copy_part(&job, 0, count * places, streams);
}
