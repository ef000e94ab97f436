"""A cache with block contents simulated by an array, driven next to a naive dictionary model of what it must do."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cache_core import BlockPool, Lease, PrefixCache, RetentionLimits
from cache_core.block_pool import FREE, Blocks

Prefix = tuple[int, ...]
Place = tuple[str, int]  # scope, and how often it was purged before

GARBAGE = -1


def content_of(place: Place, prefix: Prefix) -> int:
    """What the last token's KV of `prefix` looks like: it depends on everything before it."""
    return hash((place, prefix)) & 0x7FFF_FFFF_FFFF


@dataclass(eq=False)
class ModelLease:
    """What the model knows of one lease."""

    lease: Lease
    place: Place
    tokens: list[int]
    ready: int
    wanted: Prefix
    announced: bool
    pages: list[int] = field(default_factory=list)  # the page table as last read


class Model:
    """Ready prefixes with their last use, and leases; no tree, no blocks, no incremental counts."""

    def __init__(self, num_blocks: int, block: int) -> None:
        self.num_blocks = num_blocks
        self.block = block
        self.ready: dict[tuple[Place, Prefix], int] = {}
        self.purges: dict[str, int] = {}
        self.leases: list[ModelLease] = []
        self.now = 0

    def place(self, scope: str) -> Place:
        return scope, self.purges.get(scope, 0)

    def prefixes(self, tokens: Prefix) -> list[Prefix]:
        return [tokens[:end] for end in range(self.block, len(tokens) + 1, self.block)]

    def match(self, place: Place, tokens: Prefix) -> int:
        return max((len(p) for p in self.prefixes(tokens) if (place, p) in self.ready), default=0)

    def reusable(self, n: int) -> int:
        return max(n - 1, 0) // self.block * self.block

    def touch(self, place: Place, tokens: Prefix) -> None:
        self.now += 1
        for prefix in self.prefixes(tokens):
            self.ready[place, prefix] = self.now

    def leased(self) -> set[tuple[Place, Prefix]]:
        return {(m.place, p) for m in self.leases for p in self.prefixes(tuple(m.tokens[: m.ready]))}

    def unleased(self) -> set[tuple[Place, Prefix]]:
        return set(self.ready) - self.leased()

    def own(self, lease: ModelLease) -> int:
        return -(-len(lease.tokens) // self.block) - lease.ready // self.block

    def filling(self) -> int:
        return sum(self.own(m) for m in self.leases)

    def free(self) -> int:
        return self.num_blocks - self.filling() - len(self.ready)

    def available(self) -> int:
        return self.free() + len(self.unleased())

    def evict(self, n: int) -> int:
        """Exact least-recently-used order over single blocks, the last block of a prefix first.

        Those of scopes over their share before all others.
        """
        gone = 0
        while gone < n:
            parents = {(place, prefix[: -self.block]) for place, prefix in self.ready}
            leaves = [key for key in self.unleased() if key not in parents]
            if not leaves:
                break
            over = self.over()
            del self.ready[min(leaves, key=lambda key: (key[0] not in over, self.ready[key]))]
            gone += 1
        return gone

    def over(self) -> set[Place]:
        held = Counter(place for place, _ in self.ready)
        share = int(RetentionLimits().scope_share * self.num_blocks)
        return {place for place, blocks in held.items() if blocks > share and place == self.place(place[0])}

    def forget(self, place: Place | None = None) -> int:
        gone = [key for key in self.unleased() if place is None or key[0] == place]
        for key in gone:
            del self.ready[key]
        return len(gone)

    def purge(self, scope: str) -> int:
        gone = self.forget(self.place(scope))
        for m in self.leases:
            if m.place == self.place(scope):
                m.announced = False
        self.purges[scope] = self.purges.get(scope, 0) + 1
        return gone

    def drop(self, lease: ModelLease) -> None:
        self.touch(lease.place, tuple(lease.tokens[: lease.ready]))
        self.leases.remove(lease)
        if lease.place != self.place(lease.place[0]):
            self.forget(lease.place)

    def computing(self, place: Place, tokens: Prefix) -> int:
        """Most whole blocks' tokens of `tokens` that a live lease has still to compute; 0: none has."""
        limit = self.reusable(len(tokens))
        best = self.match(place, tokens[:limit])
        found = 0
        for m in self.leases:
            if not m.announced or m.place != place:
                continue
            shared = max(
                (len(p) for p in self.prefixes(tokens[:limit]) if m.wanted[: len(p)] == p), default=0
            )
            if shared > max(best, found):
                found = shared
        return found


class SimulatedCache:
    """The real cache over simulated bytes; `compute` writes them as an engine would."""

    def __init__(self, num_blocks: int, block: int) -> None:
        self.pool = BlockPool(num_blocks, block)
        self.bytes: NDArray[np.int64] = np.full((num_blocks, block), GARBAGE, dtype=np.int64)
        self.cache = PrefixCache(self.pool, policy="lru", copy_blocks=self.copy)

    def copy(self, source: Blocks, target: Blocks) -> None:
        self.bytes[target] = self.bytes[source]

    def compute(self, m: ModelLease, upto: int) -> None:
        """Write the KV of tokens `ready .. upto` into the lease's own blocks."""
        block, pages = self.pool.block_size, m.lease.blocks
        for position in range(m.ready, upto):
            page = int(pages[position // block])
            self.bytes[page, position % block] = content_of(m.place, tuple(m.tokens[: position + 1]))

    def scribble_over_free_blocks(self) -> None:
        """Whoever still reads a freed block will notice."""
        self.bytes[self.pool.state == FREE] = GARBAGE

    def assert_holds(self, m: ModelLease) -> None:
        """The bytes under the lease's ready tokens are those of its tokens."""
        block, pages = self.pool.block_size, m.lease.blocks
        for position in range(m.ready):
            expected = content_of(m.place, tuple(m.tokens[: position + 1]))
            held = int(self.bytes[int(pages[position // block]), position % block])
            assert held == expected, f"token {position} of {m.tokens} is not what its block holds"

    def assert_cached(self, place: Place, prefixes: list[Prefix], blocks: list[int]) -> None:
        """Each block holds what belongs to the end of its prefix."""
        block = self.pool.block_size
        for prefix, page in zip(prefixes, blocks, strict=True):
            ends = range(len(prefix) - block + 1, len(prefix) + 1)
            expected = [content_of(place, prefix[:end]) for end in ends]
            assert self.bytes[page].tolist() == expected, f"block {page} does not hold {prefix}"


def array(tokens: Prefix | list[int]) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)
