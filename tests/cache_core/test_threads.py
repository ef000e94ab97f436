"""Many threads on one cache: what a lease holds stays right, and everything adds up in the end."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cache_core import BlockPool, Lease, OutOfBlocksError, PrefixCache
from cache_core.block_pool import Blocks

BLOCK = 2
BLOCKS = 64
THREADS = 6


class Worker:
    """Serves random prompts; the bytes it computes are the hash of the tokens up to there."""

    def __init__(
        self, cache: PrefixCache, stored: "np.ndarray[tuple[int, int], np.dtype[np.int64]]", seed: int
    ) -> None:
        self.cache = cache
        self.stored = stored
        self.random = random.Random(seed)
        self.served = 0

    def run(self, rounds: int) -> int:
        for _ in range(rounds):
            tokens = np.array(
                [self.random.randint(0, 1) for _ in range(self.random.randint(1, 24))], dtype=np.int32
            )
            self.cache.match(tokens)
            self.cache.computing(tokens)
            self.serve(tokens)
            if self.random.random() < 0.05:
                self.cache.evict(self.random.randint(1, 8))
            if self.random.random() < 0.02:
                self.cache.flush()
            if self.random.random() < 0.01:
                self.cache.purge("default")
        return self.served

    def serve(self, tokens: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> None:
        lease = self.cache.acquire(tokens)
        children: list[Lease] = []
        try:
            self.verify(lease)
            for start in range(lease.matched, len(tokens), 3):
                lease.extend(tokens[start : start + 3])
                self.compute(lease)
            if self.random.random() < 0.3:
                children.append(lease.fork())
            for one in (lease, *children):
                one.extend(np.array([self.random.randint(0, 1)], dtype=np.int32))
                self.compute(one)
                self.verify(one)
            self.served += 1
        except OutOfBlocksError:
            pass  # the other threads hold the rest
        finally:
            for one in (*children, lease):
                self.verify(one)
                one.release()

    def compute(self, lease: Lease) -> None:
        pages, tokens = lease.blocks, lease.tokens.tolist()
        for position in range(lease.ready, lease.length):
            self.stored[pages[position // BLOCK], position % BLOCK] = hash(tuple(tokens[: position + 1]))
        lease.commit()

    def verify(self, lease: Lease) -> None:
        pages, tokens = lease.blocks, lease.tokens.tolist()
        for position in range(lease.ready):
            held = self.stored[pages[position // BLOCK], position % BLOCK]
            assert held == hash(tuple(tokens[: position + 1])), "a block changed under a lease"


def test_threads_share_one_cache_without_harm() -> None:
    stored = np.zeros((BLOCKS, BLOCK), dtype=np.int64)

    def copy(source: Blocks, target: Blocks) -> None:
        stored[target] = stored[source]

    cache = PrefixCache(BlockPool(BLOCKS, BLOCK), copy_blocks=copy)
    done = threading.Event()

    def watch() -> int:
        checks = 0
        while not done.wait(0.001):
            cache.check_integrity()
            checks += 1
        return checks

    def tidy() -> None:
        while not done.wait(0.0001):
            cache.evict(8)
            while cache.compact(4) and not done.is_set():
                pass

    with ThreadPoolExecutor(THREADS + 2) as threads:
        watching, tidying = threads.submit(watch), threads.submit(tidy)
        try:
            workers = [threads.submit(Worker(cache, stored, seed).run, 150) for seed in range(THREADS)]
            served = [worker.result() for worker in workers]
        finally:
            done.set()
        assert watching.result() > 0
        tidying.result()
    assert min(served) > 0
    assert cache.stats().compacted > 0
    cache.check_integrity()
    assert cache.stats().leases == 0
    cache.flush()
    assert cache.stats().free == BLOCKS
