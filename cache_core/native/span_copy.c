// Copies many spans of equal size between scattered places.
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

// Streaming stores: what is written here is read much later, and a plain store would first read the line it
// overwrites. The next spans are asked for early, since the prefetcher stops where a span ends.
__attribute__((target("avx2"))) static void stream(char *const *to, char *const *from, int64_t count, int64_t size) {
  for (int64_t i = 0; i < count; i++) {
    char *t = to[i];
    const char *f = from[i];
    if (i + 2 < count)
      for (int64_t ahead = 0; ahead < 256; ahead += 64) _mm_prefetch(from[i + 2] + ahead, _MM_HINT_T0);
    for (int64_t at = 0; at < size; at += 128) {
      __m256i a = _mm256_loadu_si256((const __m256i *)(f + at));
      __m256i b = _mm256_loadu_si256((const __m256i *)(f + at + 32));
      __m256i c = _mm256_loadu_si256((const __m256i *)(f + at + 64));
      __m256i d = _mm256_loadu_si256((const __m256i *)(f + at + 96));
      _mm256_stream_si256((__m256i *)(t + at), a);
      _mm256_stream_si256((__m256i *)(t + at + 32), b);
      _mm256_stream_si256((__m256i *)(t + at + 64), c);
      _mm256_stream_si256((__m256i *)(t + at + 96), d);
    }
  }
  _mm_sfence();
}

static int can_stream(char *const *to, int64_t count, int64_t size) {
  if (size % 128 || !__builtin_cpu_supports("avx2")) return 0;
  for (int64_t i = 0; i < count; i++)
    if ((uintptr_t)to[i] % 32) return 0;
  return 1;
}
#endif

void kvgate_copy_spans(char *const *to, char *const *from, int64_t count, int64_t size) {
#if defined(__x86_64__)
  if (can_stream(to, count, size)) {
    stream(to, from, count, size);
    return;
  }
#endif
  for (int64_t i = 0; i < count; i++) memcpy(to[i], from[i], size);
}
