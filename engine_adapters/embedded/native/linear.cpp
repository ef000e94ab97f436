// y = x W^T + b for few rows of x: W passes through the processor once, at the speed of memory.

#include "simd.h"
#include "threads.h"

namespace {

constexpr int kRows = kLanes == 16 ? 6 : 3;  // rows of x at a time, at most; with 4 of W what the registers hold
constexpr int kColumns = 4;                  // rows of W, which are columns of y, at a time
constexpr int kTask = 32;                    // rows of W one thread takes at a time

struct Linear {
  const float *x, *weight, *bias;
  float* y;
  int64_t rows, columns, depth;
};

// `First`: also asks memory for the rows of W that come next.
template <int R, int C, bool First>
void tile(const Linear& c, int64_t row, int64_t column) {
  const int64_t depth = c.depth;
  const float* x = c.x + row * depth;
  const float* w = c.weight + column * depth;
  Vec acc[R][4] = {};
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    Vec b[C];
    for (int j = 0; j < C; j++) {
      b[j] = load(w + j * depth + k);
      if (First) __builtin_prefetch(w + (C + j) * depth + k, 0, 2);
    }
    for (int i = 0; i < R; i++) {
      Vec a = load(x + i * depth + k);
      hold(a);
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

template <int R, bool First>
void columns(const Linear& c, int64_t row, int64_t begin, int64_t end) {
  for (; begin + kColumns <= end; begin += kColumns) tile<R, kColumns, First>(c, row, begin);
  for (; begin < end; begin++) tile<R, 1, First>(c, row, begin);
}

// As few passes over W as there can be, of about equal height: row by row, W is what is slow to come.
template <int R = kRows>
void pass(const Linear& c, int64_t row, int64_t height, int64_t begin, int64_t end) {
  if constexpr (R > 1) {
    if (height < R) return pass<R - 1>(c, row, height, begin, end);
  }
  if (row == 0)
    columns<R, true>(c, row, begin, end);
  else
    columns<R, false>(c, row, begin, end);
}

void all_rows(const Linear& c, int64_t begin, int64_t end) {
  int64_t passes = (c.rows + kRows - 1) / kRows;
  for (int64_t row = 0; row < c.rows; passes--) {
    const int64_t height = (c.rows - row + passes - 1) / passes;
    pass(c, row, height, begin, end);
    row += height;
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
    all_rows(call, begin, end);
  });
}
