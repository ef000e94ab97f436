// The state of adaptive LRFU (see lrfu.c), and its heaps.
#pragma once
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
