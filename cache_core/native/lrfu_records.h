// Records of prefixes, which live as long as anything leads to them, and the table of their children.
#pragma once
#include "lrfu_state.h"

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
