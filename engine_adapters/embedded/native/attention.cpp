// Attention of few or many query rows over paged keys and values, float32.
//
// One task is one key head, a group of query rows that see about the same keys, and a range of those keys. It walks
// the range in tiles, turns each tile's keys on their side, and does two small matrix products with an online softmax
// between them. Tasks that cover parts of the same row's keys leave partial sums, which are merged at the end.

#include <cmath>
#include <vector>

#include "simd.h"
#include "threads.h"

Fork kvgate_fork = nullptr;
extern "C" void kvgate_set_fork(Fork fork) { kvgate_fork = fork; }

namespace {

constexpr int kTile = 64;                    // keys at a time
constexpr int kRows = 6;                     // query rows at a time
constexpr int kWide = kLanes == 16 ? 4 : 2;  // vectors of a result row at a time; these sums fill the registers
constexpr float kLog2e = 1.4426950408889634f;

struct Item {
  int32_t table;          // where the page table begins
  int32_t begin, end;     // key positions
  int32_t row, rows;      // query tokens, in `rows` below
};

struct Row {
  int32_t token;      // in the packed step
  int32_t low, high;  // key positions it sees, [low, high)
  int32_t partial;    // where the partial result goes; -1: this task has all its keys
};

struct Merge {
  int32_t token, first, count;  // its partial results
};

}  // namespace

// Mirrors `AttentionCall` in library.py.
struct KvgateAttention {
  const float *query, *key, *value;  // the step's new ones, [tokens, heads, dim] by the strides below
  const float* sinks;                // [heads], or null
  float *keys, *values;              // [kv_heads, slots, dim]
  float* output;                     // [tokens, heads, value_dim]
  const int64_t* token_slots;        // [tokens]
  const int32_t* tables;
  const Item* items;
  const Row* rows;
  const Merge* merges;
  int64_t query_token, query_head, key_token, key_head, value_token, value_head;  // strides, in floats
  int64_t slots;
  int32_t tokens, heads, kv_heads, key_dim, value_dim, block_size;
  int32_t items_count, merges_count, partials;
  int32_t threads;
  float scaling, softcap;  // softcap 0: none
};

namespace {

using Call = KvgateAttention;

int padded(int n) { return (n + kLanes - 1) / kLanes * kLanes; }

struct Partials {
  float *output, *top, *total;  // [partials, heads, padded value_dim], and twice [partials, heads]
};

// Asks memory for rows before they are needed, a few lines at a time and in order: no processor foresees where
// the next block lies, and to ask for all at once is to wait.
struct Ahead {
  const float* const* rows;
  int dim, row, at;

  void ask(int lines) {
    for (; lines > 0 && row < kTile; lines--) {
      __builtin_prefetch(rows[row] + at, 0, 2);
      at += 16;
      if (at >= dim) at = 0, row++;
    }
  }
};

struct Scratch {
  std::vector<float> query, turned, weights, values, zeros, output, top, total;
  const float *key_rows[kTile], *value_rows[kTile];
  const float *next_keys[kTile], *next_values[kTile];

  void fit(int rows, int key_dim, int value_dim) {
    query.resize(size_t(rows) * key_dim);
    turned.resize(size_t(key_dim) * kTile);
    weights.resize(kRows * kTile);
    values.resize(size_t(kTile) * value_dim);
    zeros.assign(key_dim, 0.0f);
    output.assign(size_t(rows) * value_dim, 0.0f);
    top.assign(rows, -INFINITY);
    total.assign(size_t(rows) * kLanes, 0.0f);
  }
};

// c[R][N vectors] = or += a[R][depth] b[depth][N vectors]; `row(k)` is the k-th row of b.
template <int R, int N, bool Add, class RowOf, class Ask>
inline void product(const float* a, int64_t a_stride, const RowOf& row, int begin, int end, float* c,
                    int64_t c_stride, const Ask& ask) {
  Vec acc[R][N];
  for (int i = 0; i < R; i++)
    for (int j = 0; j < N; j++) acc[i][j] = Add ? load(c + i * c_stride + j * kLanes) : Vec{};
  for (int k = begin; k < end; k++) {
    const float* b = row(k);
    Vec wide[N];
    ask(k);
    for (int j = 0; j < N; j++) wide[j] = load(b + j * kLanes);
    for (int i = 0; i < R; i++) {
      Vec scalar = splat(a[i * a_stride + k]);
      hold(scalar);
      for (int j = 0; j < N; j++) acc[i][j] += scalar * wide[j];
    }
  }
  for (int i = 0; i < R; i++)
    for (int j = 0; j < N; j++) store(c + i * c_stride + j * kLanes, acc[i][j]);
}

// The same for any width that is a whole number of vectors.
template <int R, bool Add, class RowOf, class Ask>
inline void wide_product(const float* a, int64_t a_stride, const RowOf& row, int begin, int end, float* c,
                         int64_t c_stride, int width, const Ask& ask) {
  int at = 0;
  for (; at + kWide * kLanes <= width; at += kWide * kLanes)
    product<R, kWide, Add>(a, a_stride, [&](int k) { return row(k) + at; }, begin, end, c + at, c_stride, ask);
  for (; at < width; at += kLanes)
    product<R, 1, Add>(a, a_stride, [&](int k) { return row(k) + at; }, begin, end, c + at, c_stride, ask);
}

// turned[d][j] = key j's element d
void turn(const float* const* keys, int count, int dim, float* turned, Ahead ahead) {
  for (int j = 0; j < count; j += kLanes) {
    int d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      Vec rows[kLanes];
      for (int i = 0; i < kLanes; i++) rows[i] = load(keys[j + i] + d);
      ahead.ask(kLanes * kLanes / 16);
      transpose(rows);
      for (int i = 0; i < kLanes; i++) store(turned + (d + i) * kTile + j, rows[i]);
    }
    for (; d < dim; d++)
      for (int i = 0; i < kLanes; i++) turned[d * kTile + j + i] = keys[j + i][d];
  }
}

void cap(float* scores, int count, float softcap) {  // scores are already divided by softcap
  for (int j = 0; j < count; j += kLanes) {
    const Vec x = load(scores + j);
    const Vec size = x < splat(0.0f) ? -x : x;
    const Vec e = exp2_nonpositive(size * (-2.0f * kLog2e));
    const Vec t = (1.0f - e) / (1.0f + e);
    store(scores + j, (x < splat(0.0f) ? -t : t) * (softcap * kLog2e));
  }
}

struct Task {
  const Call& call;
  const Item& item;
  Scratch& s;
  int head, group, rows, value_width;

  // Where the keys and values of a tile lie; behind its end, zeros.
  void find(int at, int count, const float** keys, const float** values) const {
    const Call& c = call;
    const int32_t* table = c.tables + item.table;
    const float* all_keys = c.keys + int64_t(head) * c.slots * c.key_dim;
    const float* all_values = c.values + int64_t(head) * c.slots * c.value_dim;
    int block = at / c.block_size, offset = at % c.block_size;
    for (int j = 0; j < count; j++) {
      const int64_t slot = int64_t(table[block]) * c.block_size + offset;
      keys[j] = all_keys + slot * c.key_dim;
      values[j] = all_values + slot * c.value_dim;
      if (++offset == c.block_size) offset = 0, block++;
    }
    for (int j = count; j < kTile; j++) keys[j] = values[j] = s.zeros.data();
  }

  int tile_size(int at) const { return item.end - at < kTile ? (item.end > at ? item.end - at : 0) : kTile; }

  void begin_tile(int at, int count) {
    std::memcpy(s.key_rows, s.next_keys, sizeof s.key_rows);
    std::memcpy(s.value_rows, s.next_values, sizeof s.value_rows);
    find(at + kTile, tile_size(at + kTile), s.next_keys, s.next_values);
    if (value_width != call.value_dim) {  // whole vectors would read past a row
      for (int j = 0; j < count; j++) {
        float* copy = s.values.data() + j * value_width;
        std::memcpy(copy, s.value_rows[j], call.value_dim * sizeof(float));
        s.value_rows[j] = copy;
      }
    }
    turn(s.key_rows, padded(count), call.key_dim, s.turned.data(), {s.next_keys, call.key_dim, 0, 0});
  }

  // Scores become weights against the row's largest score so far; older sums are scaled to match.
  void soften(int row, float* scores, int count, int low, int high) {
    const int wide = padded(count);
    if (call.softcap > 0) cap(scores, wide, call.softcap);
    for (int j = 0; j < low; j++) scores[j] = -INFINITY;
    for (int j = high; j < wide; j++) scores[j] = -INFINITY;
    Vec most = load(scores);
    for (int j = kLanes; j < wide; j += kLanes) most = larger(most, load(scores + j));
    const float before = s.top[row], now = std::fmax(before, max(most));
    float* total = s.total.data() + row * kLanes;
    Vec sums = load(total);
    if (now != before) {
      const float shrink = exp2f(before - now);
      sums *= shrink;
      float* output = s.output.data() + int64_t(row) * value_width;
      for (int d = 0; d < value_width; d += kLanes) store(output + d, load(output + d) * shrink);
      s.top[row] = now;
    }
    for (int j = 0; j < wide; j += kLanes) {
      const Vec p = exp2_nonpositive(load(scores + j) - now);
      sums += p;
      store(scores + j, p);
    }
    store(total, sums);
  }

  template <int R, bool First>
  void rows_against_tile(int row, int at, int count) {
    int low[R], high[R], least = count, most = 0;
    for (int i = 0; i < R; i++) {
      const Row& r = call.rows[item.row + (row + i) / group];
      low[i] = r.low > at ? r.low - at : 0;
      high[i] = r.high - at < count ? r.high - at : count;
      if (low[i] >= high[i]) continue;
      least = low[i] < least ? low[i] : least;
      most = high[i] > most ? high[i] : most;
    }
    if (least >= most) return;
    Ahead ahead{s.next_values, call.value_dim, 0, 0};
    float* weights = s.weights.data();
    const float* turned = s.turned.data();
    wide_product<R, false>(s.query.data() + int64_t(row) * call.key_dim, call.key_dim,
                           [=](int k) { return turned + k * kTile; }, 0, call.key_dim, weights, kTile, padded(count),
                           [&](int) { if (First) ahead.ask(2); });
    for (int i = 0; i < R; i++) {
      if (low[i] < high[i])
        soften(row + i, weights + i * kTile, count, low[i], high[i]);
      else
        std::memset(weights + i * kTile, 0, kTile * sizeof(float));
    }
    wide_product<R, true>(weights, kTile, [this](int k) { return s.value_rows[k]; }, least, most,
                          s.output.data() + int64_t(row) * value_width, value_width, value_width,
                          [&](int) { if (First) ahead.ask(2); });
  }

  template <int R = kRows>
  void all_rows(int row, int at, int count) {
    if (row == 0 && R <= rows) rows_against_tile<R, true>(0, at, count), row = R;
    for (; row + R <= rows; row += R) rows_against_tile<R, false>(row, at, count);
    if constexpr (R > 1) {
      if (row < rows) all_rows<R - 1>(row, at, count);
    }
  }

  void gather_query() {
    const float scale = call.softcap > 0 ? call.scaling / call.softcap : call.scaling * kLog2e;
    for (int row = 0; row < rows; row++) {
      const int token = call.rows[item.row + row / group].token;
      const float* from = call.query + token * call.query_token + (head * group + row % group) * call.query_head;
      float* to = s.query.data() + int64_t(row) * call.key_dim;
      for (int d = 0; d < call.key_dim; d++) to[d] = from[d] * scale;
    }
  }

  void finish(const Partials& partials) {
    for (int row = 0; row < rows; row++) {
      const Row& r = call.rows[item.row + row / group];
      const int query_head = head * group + row % group;
      const float* from = s.output.data() + int64_t(row) * value_width;
      float total = sum(load(s.total.data() + row * kLanes));
      if (r.partial >= 0) {
        const int64_t at = int64_t(r.partial) * call.heads + query_head;
        partials.top[at] = s.top[row];
        partials.total[at] = total;
        std::memcpy(partials.output + at * value_width, from, value_width * sizeof(float));
        continue;
      }
      if (call.sinks) total += exp2f(call.sinks[query_head] * kLog2e - s.top[row]);
      float* to = call.output + (int64_t(r.token) * call.heads + query_head) * call.value_dim;
      for (int d = 0; d < call.value_dim; d++) to[d] = from[d] / total;
    }
  }

  void run(const Partials& partials) {
    s.fit(rows, call.key_dim, value_width);
    gather_query();
    find(item.begin, tile_size(item.begin), s.next_keys, s.next_values);
    for (int at = item.begin; at < item.end; at += kTile) {
      const int count = tile_size(at);
      begin_tile(at, count);
      all_rows(0, at, count);
    }
    finish(partials);
  }
};

void merge(const Call& c, const Merge& m, const Partials& partials, int value_width) {
  for (int head = 0; head < c.heads; head++) {
    const auto at = [&](int i) { return int64_t(m.first + i) * c.heads + head; };
    float top = -INFINITY;
    for (int i = 0; i < m.count; i++) top = std::fmax(top, partials.top[at(i)]);
    float total = c.sinks ? exp2f(c.sinks[head] * kLog2e - top) : 0.0f;
    for (int i = 0; i < m.count; i++) total += partials.total[at(i)] * exp2f(partials.top[at(i)] - top);
    float* to = c.output + (int64_t(m.token) * c.heads + head) * c.value_dim;
    std::memset(to, 0, c.value_dim * sizeof(float));
    for (int i = 0; i < m.count; i++) {
      const float share = exp2f(partials.top[at(i)] - top) / total;
      const float* from = partials.output + at(i) * value_width;
      for (int d = 0; d < c.value_dim; d++) to[d] += share * from[d];
    }
  }
}

void write_new(const Call& c, int token) {
  const int64_t slot = c.token_slots[token];
  for (int head = 0; head < c.kv_heads; head++) {
    std::memcpy(c.keys + (head * c.slots + slot) * c.key_dim, c.key + token * c.key_token + head * c.key_head,
                c.key_dim * sizeof(float));
    std::memcpy(c.values + (head * c.slots + slot) * c.value_dim,
                c.value + token * c.value_token + head * c.value_head, c.value_dim * sizeof(float));
  }
}

}  // namespace

// Writes the new keys and values to their slots, then attends.
extern "C" void kvgate_attend(const KvgateAttention* call) {
  const Call& c = *call;
  for_each(c.tokens, c.tokens < 256 ? 1 : c.threads, [&](int token) { write_new(c, token); });

  const int value_width = padded(c.value_dim), group = c.heads / c.kv_heads;
  static thread_local std::vector<float> memory;
  const int64_t results = int64_t(c.partials) * c.heads;
  memory.resize(results * (value_width + 2));
  const Partials partials{memory.data(), memory.data() + results * value_width,
                          memory.data() + results * (value_width + 1)};

  for_each(c.items_count * c.kv_heads, c.threads, [&](int i) {
    static thread_local Scratch scratch;
    const Item& item = c.items[i / c.kv_heads];
    Task{c, item, scratch, i % c.kv_heads, group, item.rows * group, value_width}.run(partials);
  });
  for_each(c.merges_count, c.merges_count < 16 ? 1 : c.threads,
           [&](int i) { merge(c, c.merges[i], partials, value_width); });
}
