// y = x W^T + b for few rows of x: W passes through the processor once, at the speed of memory.

#include "simd.h"
#include "threads.h"

namespace {

constexpr int kRows = kLanes == 16 ? 6 : 3;  // rows of x at a time; with 4 of W what the registers hold
constexpr int kColumns = 4;                  // rows of W, which are columns of y, at a time
constexpr int kTask = 32;                    // rows of W one thread takes at a time

struct Linear {
  const float *x, *weight, *bias;
  float* y;
  int64_t rows, columns, depth;
};

template <int R, int C>
void tile(const Linear& c, int64_t row, int64_t column) {
  const int64_t depth = c.depth;
  const float* x = c.x + row * depth;
  const float* w = c.weight + column * depth;
  Vec acc[R][kColumns] = {};
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    Vec b[C];
    for (int j = 0; j < C; j++) b[j] = load(w + j * depth + k);
    for (int i = 0; i < R; i++) {
      const Vec a = load(x + i * depth + k);
      for (int j = 0; j < C; j++) acc[i][j] += a * b[j];
    }
  }
  for (int i = 0; i < R; i++) {
    float out[4];
    sum4(acc[i][0], acc[i][1], acc[i][2], acc[i][3], out);
    for (int j = 0; j < C; j++) {
      for (int64_t t = k; t < depth; t++) out[j] += x[i * depth + t] * w[j * depth + t];
      c.y[(row + i) * c.columns + column + j] = out[j] + (c.bias ? c.bias[column + j] : 0.0f);
    }
  }
}

template <int C, int R = kRows>
void rows_of(const Linear& c, int64_t row, int64_t column) {
  if constexpr (R > 1) {
    if (c.rows - row < R) return rows_of<C, R - 1>(c, row, column);
  }
  for (; c.rows - row >= R; row += R) tile<R, C>(c, row, column);
  if constexpr (R > 1) {
    if (row < c.rows) rows_of<C, R - 1>(c, row, column);
  }
}

}  // namespace

// x [rows, depth], weight [columns, depth], bias [columns] or null, y [rows, columns]; all contiguous.
extern "C" void kvgate_linear(const float* x, const float* weight, const float* bias, float* y, int64_t rows,
                              int64_t columns, int64_t depth, int threads) {
  const Linear call{x, weight, bias, y, rows, columns, depth};
  const int tasks = static_cast<int>((columns + kTask - 1) / kTask);
  for_each(tasks, threads, [&](int task) {
    const int64_t begin = int64_t(task) * kTask;
    const int64_t end = begin + kTask < columns ? begin + kTask : columns;
    int64_t column = begin;
    for (; column + kColumns <= end; column += kColumns) rows_of<kColumns>(call, 0, column);
    for (; column < end; column++) rows_of<1>(call, 0, column);
  });
}
