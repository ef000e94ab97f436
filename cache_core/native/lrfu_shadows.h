// Caches without blocks, one for each half-life; see shadow.py.
#pragma once
#include "lrfu_history.h"

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
