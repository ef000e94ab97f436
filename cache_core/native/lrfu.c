// The state of adaptive LRFU: what is remembered of prefixes, a score for every half-life, and a shadow cache for each.
// Does exactly what cache_core/eviction/{adaptive_lrfu,history,shadow}.py do, where the rules are explained.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_PATH 32
#define ALIKE 0.1
#define NEGLIGIBLE -60.0
#define KEPT_VOTES 0.9
#define TIDY_FROM 1024

typedef struct {
  uint64_t *keys;
  int64_t serial, last;
  uint32_t blocks, start, parent, children, first_child, before, after; // siblings
  uint32_t scores;                                                      // index of its scores
  uint32_t refs;   // records below, dropped ones too, and handles
  uint32_t number; // changes when the slot is used anew
  uint8_t holders, queued, dropped, used;
} record;

typedef struct {
  double key;
  int64_t serial;
  uint32_t slot, number;
} entry;

typedef struct {
  entry *entries;
  int64_t size, room, tidy_at;
} heap;

typedef struct {
  int64_t count; // shadows
  int64_t capacity, limit, vote_every, block_size, accesses, serials, blocks, chosen;
  double now;
  uint64_t *factors;
  double *half_lives, *votes, *times;
  record *records;
  int32_t *resident, *below; // [slot][shadow]
  uint32_t slots, room, free_slot;
  double *scores; // [scores][shadow]
  uint32_t *score_refs;
  uint32_t score_slots, score_room, free_scores;
  uint32_t *table; // (parent, first key) -> slot; open addressing
  uint32_t table_size, table_used;
  heap forgettable;
  heap *leaves;
  int64_t *held; // blocks in each shadow
  uint64_t *keys;
  int64_t keys_room;
  uint32_t *path;
  int64_t path_size, path_room;
  int64_t key_bytes; // of all records
  int failed;        // out of memory: nothing is remembered from here on
} lrfu;

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

static void *grown(lrfu *s, void *old, size_t bytes) {
  void *larger = realloc(old, bytes);
  if (!larger) s->failed = 1;
  return larger ? larger : old;
}

// Heaps, by (key, serial).

static int earlier(const entry *a, const entry *b) {
  return a->key < b->key || (a->key == b->key && a->serial < b->serial);
}

static void sift_up(heap *h, int64_t at) {
  entry moved = h->entries[at];
  while (at > 0 && earlier(&moved, &h->entries[(at - 1) / 2])) {
    h->entries[at] = h->entries[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  h->entries[at] = moved;
}

static void sift_down(heap *h, int64_t at) {
  entry moved = h->entries[at];
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= h->size) break;
    if (child + 1 < h->size && earlier(&h->entries[child + 1], &h->entries[child])) child++;
    if (!earlier(&h->entries[child], &moved)) break;
    h->entries[at] = h->entries[child];
    at = child;
  }
  h->entries[at] = moved;
}

static void push(lrfu *s, heap *h, entry new) {
  if (h->size == h->room) {
    int64_t room = h->room ? 2 * h->room : 64;
    entry *larger = grown(s, h->entries, room * sizeof(entry));
    if (s->failed) return;
    h->entries = larger;
    h->room = room;
  }
  h->entries[h->size] = new;
  sift_up(h, h->size++);
}

static void pop(heap *h) {
  h->entries[0] = h->entries[--h->size];
  if (h->size) sift_down(h, 0);
}

// Records.

static record *at(lrfu *s, uint32_t slot) { return &s->records[slot]; }
static int32_t *resident(lrfu *s, uint32_t slot) { return s->resident + slot * s->count; }
static int32_t *below(lrfu *s, uint32_t slot) { return s->below + slot * s->count; }
static double *scores(lrfu *s, uint32_t slot) { return s->scores + at(s, slot)->scores * s->count; }
static int alive(lrfu *s, const entry *e) {
  record *r = at(s, e->slot);
  return r->used && r->number == e->number && !r->dropped;
}
static entry entry_of(lrfu *s, uint32_t slot, double key) {
  return (entry){key, at(s, slot)->serial, slot, at(s, slot)->number};
}

static uint32_t new_scores(lrfu *s) {
  uint32_t index = s->free_scores;
  if (index) {
    s->free_scores = s->score_refs[index];
  } else {
    if (s->score_slots == s->score_room) {
      uint32_t room = 2 * s->score_room;
      double *values = grown(s, s->scores, (size_t)room * s->count * sizeof(double));
      s->scores = values;
      uint32_t *refs = grown(s, s->score_refs, (size_t)room * sizeof(uint32_t));
      s->score_refs = refs;
      if (s->failed) return 0;
      s->score_room = room;
    }
    index = s->score_slots++;
  }
  s->score_refs[index] = 1;
  for (int64_t i = 0; i < s->count; i++) s->scores[index * s->count + i] = -INFINITY;
  return index;
}

static void drop_scores(lrfu *s, uint32_t index) {
  if (--s->score_refs[index] == 0) {
    s->score_refs[index] = s->free_scores;
    s->free_scores = index;
  }
}

static uint32_t new_record(lrfu *s, uint32_t parent, const uint64_t *keys, uint32_t blocks, uint32_t start) {
  uint32_t slot = s->free_slot;
  if (slot) {
    s->free_slot = at(s, slot)->parent;
  } else {
    if (s->slots == s->room) {
      uint32_t room = 2 * s->room;
      s->records = grown(s, s->records, (size_t)room * sizeof(record));
      s->resident = grown(s, s->resident, (size_t)room * s->count * sizeof(int32_t));
      s->below = grown(s, s->below, (size_t)room * s->count * sizeof(int32_t));
      if (s->failed) return 0;
      s->room = room;
    }
    slot = s->slots++;
    at(s, slot)->number = 0;
  }
  uint64_t *copy = NULL;
  if (blocks) {
    copy = malloc(blocks * sizeof(uint64_t));
    if (!copy) s->failed = 1;
  }
  uint32_t values = new_scores(s);
  if (s->failed) return 0;
  if (blocks) memcpy(copy, keys, blocks * sizeof(uint64_t));
  s->key_bytes += blocks * sizeof(uint64_t);
  uint32_t number = at(s, slot)->number + 1;
  *at(s, slot) = (record){.keys = copy, .blocks = blocks, .start = start, .parent = parent, .scores = values,
                          .number = number, .used = 1};
  if (parent) at(s, parent)->refs++;
  memset(resident(s, slot), 0, s->count * sizeof(int32_t));
  memset(below(s, slot), 0, s->count * sizeof(int32_t));
  return slot;
}

// A dropped record stays as long as a handle, or a record below it, leads to it.
static void free_unreferenced(lrfu *s, uint32_t slot) {
  while (slot && at(s, slot)->dropped && !at(s, slot)->refs) {
    record *r = at(s, slot);
    uint32_t parent = r->parent;
    free(r->keys);
    drop_scores(s, r->scores);
    r->keys = NULL;
    r->used = 0;
    r->parent = s->free_slot;
    s->free_slot = slot;
    if (!parent) return;
    at(s, parent)->refs--;
    slot = parent;
  }
}

static void set_dropped(lrfu *s, uint32_t slot) {
  record *r = at(s, slot);
  r->dropped = 1;
  s->key_bytes -= r->blocks * sizeof(uint64_t);
  free(r->keys);
  r->keys = NULL;
}

static void set_keys(lrfu *s, uint32_t slot, uint64_t *keys, uint32_t blocks) {
  record *r = at(s, slot);
  s->key_bytes += ((int64_t)blocks - r->blocks) * (int64_t)sizeof(uint64_t);
  free(r->keys);
  r->keys = keys;
  r->blocks = blocks;
}

// Children, by parent and first key.

static uint32_t place_of(lrfu *s, uint32_t parent, uint64_t key) {
  uint64_t mixed = (key ^ ((uint64_t)parent * 0x9E3779B97F4A7C15u)) * 0xFF51AFD7ED558CCDu;
  return (uint32_t)(mixed >> 32) & (s->table_size - 1);
}

static uint32_t find_place(lrfu *s, uint32_t parent, uint64_t key) {
  uint32_t place = place_of(s, parent, key);
  while (s->table[place]) {
    record *r = at(s, s->table[place]);
    if (r->parent == parent && r->keys[0] == key) break;
    place = (place + 1) & (s->table_size - 1);
  }
  return place;
}

static void grow_table(lrfu *s) {
  uint32_t old_size = s->table_size, *old = s->table;
  uint32_t *larger = calloc(2 * (size_t)old_size, sizeof(uint32_t));
  if (!larger) {
    s->failed = 1;
    return;
  }
  s->table = larger;
  s->table_size = 2 * old_size;
  for (uint32_t i = 0; i < old_size; i++)
    if (old[i]) s->table[find_place(s, at(s, old[i])->parent, at(s, old[i])->keys[0])] = old[i];
  free(old);
}

static void adopt(lrfu *s, uint32_t parent, uint32_t slot) {
  if (2 * s->table_used >= s->table_size) grow_table(s);
  if (s->failed) return;
  s->table[find_place(s, parent, at(s, slot)->keys[0])] = slot;
  s->table_used++;
  record *p = at(s, parent), *r = at(s, slot);
  r->before = 0;
  r->after = p->first_child;
  if (p->first_child) at(s, p->first_child)->before = slot;
  p->first_child = slot;
  p->children++;
}

static void leave(lrfu *s, uint32_t slot) {
  record *r = at(s, slot), *p = at(s, r->parent);
  uint32_t hole = find_place(s, r->parent, r->keys[0]), mask = s->table_size - 1;
  s->table[hole] = 0;
  s->table_used--;
  for (uint32_t next = (hole + 1) & mask; s->table[next]; next = (next + 1) & mask) {
    record *other = at(s, s->table[next]);
    uint32_t home = place_of(s, other->parent, other->keys[0]);
    if (((next - home) & mask) >= ((next - hole) & mask)) { // it may move back to the hole
      s->table[hole] = s->table[next];
      s->table[next] = 0;
      hole = next;
    }
  }
  if (r->before) at(s, r->before)->after = r->after;
  else p->first_child = r->after;
  if (r->after) at(s, r->after)->before = r->before;
  p->children--;
}

// What is remembered.

static int32_t held(lrfu *s, uint32_t slot) {
  int32_t most = 0;
  if (at(s, slot)->holders)
    for (int64_t i = 0; i < s->count; i++)
      if (resident(s, slot)[i] > most) most = resident(s, slot)[i];
  return most;
}

static int can_forget(lrfu *s, uint32_t slot) {
  return !at(s, slot)->children && held(s, slot) < (int32_t)at(s, slot)->blocks;
}

static void consider(lrfu *s, uint32_t slot) {
  record *r = at(s, slot);
  if (r->queued || !r->parent || !can_forget(s, slot)) return;
  r->queued = 1;
  push(s, &s->forgettable, entry_of(s, slot, (double)r->last));
}

static uint32_t split(lrfu *s, uint32_t slot, uint32_t cut) {
  record *r = at(s, slot);
  uint32_t parent = r->parent, rest = r->blocks - cut;
  uint64_t *keys = malloc(rest * sizeof(uint64_t));
  if (!keys) s->failed = 1;
  uint32_t upper = new_record(s, parent, r->keys, cut, r->start);
  if (s->failed) {
    free(keys);
    return 0;
  }
  r = at(s, slot);
  record *u = at(s, upper);
  memcpy(scores(s, upper), scores(s, slot), s->count * sizeof(double));
  u->last = r->last;
  u->serial = s->serials++;
  leave(s, slot);
  adopt(s, parent, upper);
  memcpy(keys, r->keys + cut, rest * sizeof(uint64_t));
  set_keys(s, slot, keys, rest);
  r->start += cut;
  r->parent = upper;
  at(s, parent)->refs--;
  u->refs++;
  adopt(s, upper, slot);
  u->holders = r->holders;
  r->holders = 0;
  for (int64_t i = 0; i < s->count; i++) {
    int32_t had = resident(s, slot)[i], kept = (int32_t)cut;
    below(s, upper)[i] = had > kept;
    resident(s, upper)[i] = had < kept ? had : kept;
    resident(s, slot)[i] = had > kept ? had - kept : 0;
    r->holders += had > kept;
  }
  consider(s, slot);
  return upper;
}

static void join(lrfu *s, uint32_t upper, uint32_t lower) {
  record *u = at(s, upper), *l = at(s, lower);
  uint32_t parent = u->parent, blocks = u->blocks + l->blocks;
  uint64_t *keys = malloc(blocks * sizeof(uint64_t));
  if (!keys) {
    s->failed = 1;
    return;
  }
  memcpy(keys, u->keys, u->blocks * sizeof(uint64_t));
  memcpy(keys + u->blocks, l->keys, l->blocks * sizeof(uint64_t));
  for (int64_t i = 0; i < s->count; i++) {
    int32_t had = resident(s, upper)[i];
    resident(s, lower)[i] = had == (int32_t)u->blocks ? resident(s, lower)[i] + had : had;
  }
  l->holders = u->holders;
  drop_scores(s, l->scores);
  l->scores = u->scores;
  s->score_refs[l->scores]++;
  leave(s, lower);
  leave(s, upper);
  set_keys(s, lower, keys, blocks);
  l->start = u->start;
  l->parent = parent;
  at(s, parent)->refs++;
  u->refs--;
  adopt(s, parent, lower);
  set_dropped(s, upper);
  free_unreferenced(s, upper);
}

static void coarsen(lrfu *s) {
  int64_t kept = 1;
  for (int64_t n = 1; n < s->path_size; n++) {
    uint32_t upper = s->path[kept - 1], slot = s->path[n];
    int alike = scores(s, upper)[s->count - 1] - scores(s, slot)[s->count - 1] < ALIKE;
    if (alike && at(s, upper)->children == 1) {
      join(s, upper, slot);
      s->path[kept - 1] = slot;
    } else {
      s->path[kept++] = slot;
    }
  }
  s->path_size = kept;
}

static void forget(lrfu *s, uint32_t slot) {
  record *r = at(s, slot);
  int32_t kept = held(s, slot);
  if (kept) {
    s->blocks -= r->blocks - kept;
    s->key_bytes -= (r->blocks - kept) * sizeof(uint64_t);
    r->blocks = kept;
    uint64_t *shorter = realloc(r->keys, kept * sizeof(uint64_t));
    if (shorter) r->keys = shorter;
    return;
  }
  uint32_t parent = r->parent;
  leave(s, slot);
  s->blocks -= r->blocks;
  set_dropped(s, slot);
  free_unreferenced(s, slot);
  if (!at(s, parent)->children) {
    memset(below(s, parent), 0, s->count * sizeof(int32_t));
    if (at(s, parent)->parent) consider(s, parent);
  }
}

static void settle(lrfu *s) {
  heap *h = &s->forgettable;
  if (s->path_size) consider(s, s->path[s->path_size - 1]);
  while (s->blocks > s->limit && h->size) {
    entry first = h->entries[0];
    record *r = at(s, first.slot);
    if (!alive(s, &first) || !can_forget(s, first.slot)) {
      pop(h);
      if (r->used && r->number == first.number) r->queued = 0;
    } else if ((double)r->last != first.key) {
      h->entries[0] = entry_of(s, first.slot, (double)r->last);
      sift_down(h, 0);
    } else {
      pop(h);
      r->queued = 0;
      forget(s, first.slot);
    }
  }
}

static void append_path(lrfu *s, uint32_t slot) {
  if (s->path_size == s->path_room) {
    uint32_t *larger = grown(s, s->path, 2 * s->path_room * sizeof(uint32_t));
    if (s->failed) return;
    s->path = larger;
    s->path_room *= 2;
  }
  s->path[s->path_size++] = slot;
}

static int64_t find_path(lrfu *s, uint32_t root, int64_t blocks, int64_t ready, int64_t looked_up) {
  uint32_t slot = root;
  int64_t end = 0, ghosts = 0;
  s->path_size = 0;
  while (end < blocks && at(s, slot)->children) {
    uint32_t child = s->table[find_place(s, slot, s->keys[end])];
    if (!child) break;
    record *c = at(s, child);
    uint32_t most = c->blocks < blocks - end ? c->blocks : (uint32_t)(blocks - end), shared = 0;
    if (most == c->blocks && !memcmp(c->keys, s->keys + end, most * sizeof(uint64_t))) shared = most;
    else while (shared < most && c->keys[shared] == s->keys[end + shared]) shared++;
    if (shared < c->blocks) child = split(s, child, shared);
    if (s->failed) return 0;
    append_path(s, child);
    slot = child;
    end += at(s, child)->blocks;
  }
  for (int64_t n = 0; n < s->path_size && ready >= 0; n++) {
    record *r = at(s, s->path[n]);
    int64_t first = r->start > ready ? r->start : ready, over = (int64_t)r->start + r->blocks - first;
    if (r->last <= looked_up && over > 0) ghosts += over;
  }
  if (end < blocks) {
    uint32_t parent = s->path_size ? s->path[s->path_size - 1] : root;
    uint32_t new = new_record(s, parent, s->keys + end, (uint32_t)(blocks - end), (uint32_t)end);
    if (s->failed) return 0;
    adopt(s, parent, new);
    at(s, new)->serial = s->serials++;
    s->blocks += blocks - end;
    append_path(s, new);
  }
  if (s->path_size > SHORT_PATH) coarsen(s);
  for (int64_t n = 0; n < s->path_size; n++) at(s, s->path[n])->last = s->accesses;
  return ghosts;
}

// Shadows.

static void tidy(lrfu *s, int64_t i) {
  heap *h = &s->leaves[i];
  int64_t kept = 0;
  for (int64_t n = 0; n < h->size; n++) {
    entry e = h->entries[n];
    if (!alive(s, &e) || !resident(s, e.slot)[i] || below(s, e.slot)[i]) continue;
    e.key = scores(s, e.slot)[i];
    h->entries[kept++] = e;
  }
  h->size = kept;
  for (int64_t n = kept / 2; n-- > 0;) sift_down(h, n);
  // equal entries of one record come out one after the other; only one of each stays
  heap unique = {malloc((kept ? kept : 1) * sizeof(entry)), 0, kept ? kept : 1, 0};
  if (unique.entries) {
    while (h->size) {
      entry e = h->entries[0];
      pop(h);
      if (!unique.size || unique.entries[unique.size - 1].slot != e.slot) unique.entries[unique.size++] = e;
    }
    free(h->entries);
    h->entries = unique.entries; // sorted, so a heap
    h->size = unique.size;
    h->room = unique.room;
  }
  h->tidy_at = 2 * h->size > TIDY_FROM ? 2 * h->size : TIDY_FROM;
}

static void push_leaf(lrfu *s, int64_t i, uint32_t slot) {
  push(s, &s->leaves[i], entry_of(s, slot, scores(s, slot)[i]));
  if (s->leaves[i].size > s->leaves[i].tidy_at) tidy(s, i);
}

static void emptied(lrfu *s, int64_t i, uint32_t slot) {
  at(s, slot)->holders--;
  uint32_t above = at(s, slot)->parent;
  if (above && at(s, above)->parent) {
    below(s, above)[i]--;
    if (!below(s, above)[i] && at(s, above)->last != s->accesses) push_leaf(s, i, above);
  }
}

static void shrink(lrfu *s, int64_t i) {
  heap *h = &s->leaves[i];
  while (s->held[i] > s->capacity && h->size) {
    entry first = h->entries[0];
    uint32_t slot = first.slot;
    record *r = at(s, slot);
    if (!alive(s, &first) || !resident(s, slot)[i] || below(s, slot)[i] || r->last == s->accesses) {
      pop(h);
      continue;
    }
    int32_t has = resident(s, slot)[i];
    double score = scores(s, slot)[i];
    if (score != first.key) {
      h->entries[0] = entry_of(s, slot, score);
      sift_down(h, 0);
      continue;
    }
    int64_t over = s->held[i] - s->capacity;
    int32_t gone = has < over ? has : (int32_t)over;
    s->held[i] -= gone;
    resident(s, slot)[i] = has - gone;
    if (gone == has) {
      pop(h);
      emptied(s, i, slot);
    }
    consider(s, slot);
  }
}

static int64_t request(lrfu *s, int64_t i) {
  int64_t hits = 0, left = s->capacity;
  for (int64_t n = 0; n < s->path_size; n++) {
    int32_t has = resident(s, s->path[n])[i];
    hits += has;
    if (has < (int32_t)at(s, s->path[n])->blocks) break;
  }
  uint32_t above = 0;
  for (int64_t n = 0; n < s->path_size && left > 0; n++) {
    uint32_t slot = s->path[n];
    int32_t has = resident(s, slot)[i], blocks = (int32_t)at(s, slot)->blocks;
    int32_t wanted = blocks < left ? blocks : (int32_t)left;
    if (wanted > has) {
      if (!has) {
        at(s, slot)->holders++;
        if (above) below(s, above)[i]++;
      }
      resident(s, slot)[i] = wanted;
      s->held[i] += wanted - has;
    }
    left -= wanted;
    above = slot;
  }
  shrink(s, i);
  if (above && !below(s, above)[i]) push_leaf(s, i, above);
  return hits;
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
