// What is remembered of prefixes; see history.py.
#pragma once
#include "lrfu_records.h"

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
