// Vectors of the machine's own width, by the compilers' vector extensions: the same text for AVX-512, AVX2, NEON.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef float UnalignedVec __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

using Lanes = std::make_integer_sequence<int, kLanes>;

static inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
static inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
template <int... I>
static inline Vec splat(float x, std::integer_sequence<int, I...>) {
  return Vec{((void)I, x)...};
}
static inline Vec splat(float x) { return splat(x, Lanes{}); }

static inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

// Keeps a value in its register. Without it compilers load it anew for each product that uses it, and loads, not
// products, become what there are too few of.
static inline void hold(Vec& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__AVX__)
  asm("" : "+x"(v));
#else
  (void)v;
#endif
}

// Result lane I is lane pick(I) of the 2 * kLanes lanes of a and b.
#if defined(__clang__)
#define KVGATE_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define KVGATE_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, IntVec{__VA_ARGS__})
#endif

// Swaps the off-diagonal H x H squares of two rows that are H apart: one step of a transposition.
template <int H, int... I>
static inline void cross(Vec& a, Vec& b, std::integer_sequence<int, I...>) {
  const Vec low = KVGATE_SHUFFLE(a, b, ((I & H) ? kLanes + I - H : I)...);
  b = KVGATE_SHUFFLE(a, b, ((I & H) ? kLanes + I : I + H)...);
  a = low;
}

template <int H>
static inline void transpose_steps(Vec* rows) {
  if constexpr (H > 0) {
    for (int i = 0; i < kLanes; i++)
      if (!(i & H)) cross<H>(rows[i], rows[i + H], Lanes{});
    transpose_steps<H / 2>(rows);
  }
}

// rows[i][j] becomes rows[j][i].
static inline void transpose(Vec* rows) { transpose_steps<kLanes / 2>(rows); }

template <int H, int... I>
static inline Vec swap_lanes(Vec v, std::integer_sequence<int, I...>) {
  return KVGATE_SHUFFLE(v, v, (I ^ H)...);
}

template <int H>
static inline Vec sum_within(Vec v) {
  if constexpr (H > 0) return sum_within<H / 2>(v + swap_lanes<H>(v, Lanes{}));
  return v;
}

static inline float sum(Vec v) { return sum_within<kLanes / 2>(v)[0]; }

template <int H>
static inline Vec max_within(Vec v) {
  if constexpr (H > 0) return max_within<H / 2>(larger(v, swap_lanes<H>(v, Lanes{})));
  return v;
}

static inline float max(Vec v) { return max_within<kLanes / 2>(v)[0]; }

// Sums of four vectors at a time: fewer shuffles than four single sums.
static inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
  constexpr int half = kLanes / 2, quarter = kLanes / 4;
  cross<half>(a, b, Lanes{});
  cross<half>(c, d, Lanes{});
  Vec ab = a + b, cd = c + d;
  cross<quarter>(ab, cd, Lanes{});
  const Vec all = sum_within<quarter / 2>(ab + cd);
  out[0] = all[0];
  out[1] = all[half];
  out[2] = all[quarter];
  out[3] = all[half + quarter];
}

// 2^x for x <= 0, relative error about 2e-7; exactly 0 below -126, so also for -infinity.
static inline Vec exp2_nonpositive(Vec x) {
  const Vec floor = splat(-126.0f);
  const IntVec tiny = x < floor;
  x = larger(x, floor);
  const Vec shift = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const Vec shifted = x + shift;
  const Vec f = x - (shifted - shift);  // in [-0.5, 0.5]
  Vec p = splat(1.5403530e-4f);
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  const IntVec exponent = (reinterpret_cast<IntVec>(shifted) - 0x4B400000) << 23;
  const IntVec bits = (reinterpret_cast<IntVec>(p) + exponent) & ~tiny;
  return reinterpret_cast<Vec>(bits);
}
