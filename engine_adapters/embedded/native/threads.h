// Work on the threads torch already has: a second pool would fight with the first for the same cores.
#pragma once

#include <atomic>

// The entry point of the OpenMP runtime that torch loaded (GOMP_parallel; libiomp5 has it, too).
using Fork = void (*)(void (*)(void*), void*, unsigned, unsigned);
extern Fork kvgate_fork;

// Runs work(i) for every i in [0, count), each on whichever thread is free.
template <class Work>
static inline void for_each(int count, int threads, const Work& work) {
  if (threads > count) threads = count;
  if (threads <= 1 || !kvgate_fork) {
    for (int i = 0; i < count; i++) work(i);
    return;
  }
  struct Shared {
    const Work& work;
    int count;
    std::atomic<int> next;
  } shared{work, count, {0}};
  kvgate_fork(
      [](void* data) {
        Shared& s = *static_cast<Shared*>(data);
        for (int i; (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.count;) s.work(i);
      },
      &shared, static_cast<unsigned>(threads), 0);
}
