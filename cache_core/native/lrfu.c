// The state of adaptive LRFU: what is remembered of prefixes, a score for every half-life, and a shadow cache for each.
// Does exactly what cache_core/eviction/{adaptive_lrfu,history,shadow}.py do, where the rules are explained.
#include "lrfu_shadows.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

// See short_hash.py.
WIDE static void hash_tokens(const int32_t *tokens, uint64_t *keys, int64_t blocks, uint64_t factor) {
  for (int64_t b = 0; b < blocks; b++) keys[b] = (uint64_t)(int64_t)tokens[b] * factor;
}

WIDE static void hash_blocks(const int32_t *tokens, uint64_t *keys, int64_t blocks, const uint64_t *factors,
                             int64_t size) {
  for (int64_t b = 0; b < blocks; b++, tokens += size) {
    uint64_t key = 0;
    for (int64_t t = 0; t < size; t++) key += (uint64_t)(int64_t)tokens[t] * factors[t];
    keys[b] = key;
  }
}

static void score_up(lrfu *s) {
  for (int64_t i = 0; i < s->count; i++) s->times[i] = s->now / s->half_lives[i];
  for (int64_t n = 0; n < s->path_size; n++) {
    double *values = scores(s, s->path[n]);
    for (int64_t i = 0; i < s->count; i++) {
      double now = s->times[i], behind = values[i] - now;
      values[i] = behind > NEGLIGIBLE ? now + log2(1.0 + pow(2.0, behind)) : now;
    }
  }
}

static void vote(lrfu *s) {
  int64_t best = 0;
  for (int64_t i = 1; i < s->count; i++)
    if (s->votes[i] > s->votes[best] || (s->votes[i] == s->votes[best] && i == s->chosen)) best = i;
  s->chosen = best;
  for (int64_t i = 0; i < s->count; i++) s->votes[i] *= KEPT_VOTES;
}

// What Python calls, always holding its lock.

void kvgate_lrfu_free(lrfu *s) {
  if (!s) return;
  for (uint32_t slot = 1; s->records && slot < s->slots; slot++)
    if (at(s, slot)->used) free(at(s, slot)->keys);
  for (int64_t i = 0; s->leaves && i < s->count; i++) free(s->leaves[i].entries);
  void *parts[] = {s->factors, s->half_lives, s->votes, s->times, s->records, s->resident, s->below, s->scores,
                   s->score_refs, s->table, s->forgettable.entries, s->leaves, s->held, s->keys, s->path};
  for (size_t n = 0; n < sizeof(parts) / sizeof(*parts); n++) free(parts[n]);
  free(s);
}

lrfu *kvgate_lrfu_new(int64_t count, const double *half_lives, int64_t chosen, int64_t capacity, int64_t limit,
                      int64_t vote_every, int64_t block_size, const uint64_t *factors) {
  lrfu *s = calloc(1, sizeof(lrfu));
  if (!s) return NULL;
  s->count = count;
  s->chosen = chosen;
  s->capacity = capacity;
  s->limit = limit;
  s->vote_every = vote_every;
  s->block_size = block_size;
  s->slots = s->score_slots = 1; // 0 is nothing
  s->room = s->score_room = s->table_size = 64;
  s->path_room = 2 * SHORT_PATH;
  s->factors = malloc(block_size * sizeof(uint64_t));
  s->half_lives = malloc(count * sizeof(double));
  s->votes = calloc(count, sizeof(double));
  s->times = calloc(count, sizeof(double));
  s->records = calloc(s->room, sizeof(record));
  s->resident = calloc(s->room * count, sizeof(int32_t));
  s->below = calloc(s->room * count, sizeof(int32_t));
  s->scores = calloc(s->score_room * count, sizeof(double));
  s->score_refs = calloc(s->score_room, sizeof(uint32_t));
  s->table = calloc(s->table_size, sizeof(uint32_t));
  s->leaves = calloc(count, sizeof(heap));
  s->held = calloc(count, sizeof(int64_t));
  s->path = malloc(s->path_room * sizeof(uint32_t));
  if (!s->factors || !s->half_lives || !s->votes || !s->times || !s->records || !s->resident || !s->below ||
      !s->scores || !s->score_refs || !s->table || !s->leaves || !s->held || !s->path) {
    kvgate_lrfu_free(s);
    return NULL;
  }
  memcpy(s->factors, factors, block_size * sizeof(uint64_t));
  memcpy(s->half_lives, half_lives, count * sizeof(double));
  for (int64_t i = 0; i < count; i++) s->leaves[i].tidy_at = TIDY_FROM;
  return s;
}

// Where a scope begins; 0: out of memory.
int64_t kvgate_lrfu_root(lrfu *s) { return new_record(s, 0, NULL, 0, 0); }

// One use of a path. out: ghosts, the half-life chosen now, slot of its last record (0: none), 1 if memory ran out.
// `ready` -1: nobody asks for ghosts.
void kvgate_lrfu_accessed(lrfu *s, int64_t root, const int32_t *tokens, int64_t blocks, int64_t ready,
                          int64_t looked_up, int64_t *out) {
  if (blocks > s->keys_room) {
    uint64_t *larger = grown(s, s->keys, 2 * blocks * sizeof(uint64_t));
    if (!s->failed) {
      s->keys = larger;
      s->keys_room = 2 * blocks;
    }
  }
  out[0] = out[2] = 0;
  out[1] = s->chosen;
  out[3] = s->failed;
  if (s->failed) return;
  if (s->block_size == 1) hash_tokens(tokens, s->keys, blocks, s->factors[0]);
  else hash_blocks(tokens, s->keys, blocks, s->factors, s->block_size);
  s->accesses++;
  out[0] = find_path(s, (uint32_t)root, blocks, ready, looked_up);
  if (s->path_size) {
    record *end = at(s, s->path[s->path_size - 1]);
    s->now += (double)(end->start + end->blocks) / (double)s->capacity;
  }
  score_up(s);
  for (int64_t i = 0; i < s->count; i++) s->votes[i] += (double)request(s, i);
  uint32_t last = s->path_size ? s->path[s->path_size - 1] : 0;
  if (last) at(s, last)->refs++; // the handle Python makes of it
  settle(s);
  if (s->accesses % s->vote_every == 0) vote(s);
  out[1] = s->chosen;
  out[2] = last;
  out[3] = s->failed;
}

// The record at `slot` or above it that begins before block `end`: its slot and start, and its score.
double kvgate_lrfu_current(lrfu *s, int64_t slot, int64_t end, int64_t *out) {
  uint32_t found = (uint32_t)slot;
  while (at(s, found)->start >= end && at(s, found)->parent) found = at(s, found)->parent;
  out[0] = found;
  out[1] = at(s, found)->start;
  return scores(s, found)[s->chosen];
}

// A handle more (1) or less (-1) on a record.
void kvgate_lrfu_refer(lrfu *s, int64_t slot, int64_t change) {
  at(s, (uint32_t)slot)->refs += (uint32_t)change;
  free_unreferenced(s, (uint32_t)slot);
}

// Everything below a scope's root is gone, and the root.
void kvgate_lrfu_purged(lrfu *s, int64_t root) {
  uint32_t slot = (uint32_t)root;
  for (;;) {
    while (at(s, slot)->first_child) slot = at(s, slot)->first_child;
    uint32_t parent = at(s, slot)->parent;
    at(s, slot)->refs++; // until both are done with it
    if (slot != (uint32_t)root) {
      leave(s, slot);
      s->blocks -= at(s, slot)->blocks;
      for (int64_t i = 0; i < s->count; i++) s->held[i] -= resident(s, slot)[i];
    }
    set_dropped(s, slot);
    int done = slot == (uint32_t)root;
    if (parent) at(s, parent)->refs++;
    at(s, slot)->refs--;
    free_unreferenced(s, slot);
    if (parent) at(s, parent)->refs--;
    if (done) return;
    slot = parent;
  }
}

// out: accesses, blocks remembered, bytes of memory, records, entries in heaps; then blocks held by each shadow.
void kvgate_lrfu_counts(lrfu *s, int64_t *out) {
  int64_t entries = s->forgettable.room, live = 0;
  for (int64_t i = 0; i < s->count; i++) entries += s->leaves[i].room;
  for (uint32_t slot = 1; slot < s->slots; slot++) live += at(s, slot)->used;
  out[0] = s->accesses;
  out[1] = s->blocks;
  out[2] = sizeof(lrfu) + s->key_bytes + entries * (int64_t)sizeof(entry) + s->room * (int64_t)sizeof(record) +
           2 * s->room * s->count * (int64_t)sizeof(int32_t) +
           s->score_room * (int64_t)(s->count * sizeof(double) + sizeof(uint32_t)) +
           s->table_size * (int64_t)sizeof(uint32_t) + s->keys_room * (int64_t)sizeof(uint64_t);
  out[3] = live;
  out[4] = entries;
  for (int64_t i = 0; i < s->count; i++) out[5 + i] = s->held[i];
}
