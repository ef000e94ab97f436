"""What one request holds of the cache: a page table, and a pin on everything in it."""

from typing import TYPE_CHECKING

import numpy as np

from cache_core.block_pool import Blocks
from cache_core.errors import LeaseReleasedError
from cache_core.eviction.hints import RetentionHints
from cache_core.node import Node, Root
from cache_core.tokens import INT32, Tokens

if TYPE_CHECKING:
    from cache_core.prefix_cache import PrefixCache


_NOTHING = np.empty(0, dtype=np.int32)


class Lease:
    """Made by `PrefixCache.acquire` and `fork`. While it lives, no block of it is freed, moved or changed.

    One thread at a time uses a lease; different leases may be used by different threads. The arrays it hands
    out are read-only views: `blocks` must be read again after `extend` and `commit`. The counts stay readable
    after its release, so that whoever waited for it can see how far it came.
    """

    __slots__ = (
        "_block_buffer",
        "_cache",
        "_token_buffer",
        "accesses",
        "announced",
        "in_flight",
        "indexed",
        "length",
        "live",
        "matched",
        "node",
        "num_blocks",
        "ready",
        "root",
        "scope",
        "used",
        "wanted_length",
    )

    def __init__(
        self,
        cache: "PrefixCache",
        root: Root,
        node: Node,
        tokens: Tokens,
        table: Blocks,  # becomes its own: `indexed` blocks, then room
        indexed: int,
        matched: int,
    ) -> None:
        self._cache = cache
        self.scope = root.scope
        self.root = root
        self.node = node  # the deepest node this lease pins; ends at its `indexed` blocks
        self.live = True
        self.used = False  # it committed something: more than an attempt that found no room
        self.accesses = 0  # releases that the eviction policy had been told of when it was acquired
        self.matched = matched  # tokens found ready when it was acquired
        self.length = matched  # tokens the page table covers
        self.ready = matched  # tokens whose KV is computed
        self.indexed = indexed  # leading blocks that belong to the index; those after them are its own
        self.num_blocks = indexed
        self.wanted_length = len(tokens)  # tokens announced as its prompt
        self.announced = False  # others may wait for what it computes
        self.in_flight = ("", b"")  # under which key, while it is announced
        self._token_buffer = np.empty(len(tokens) + 64, INT32)
        self._token_buffer[: len(tokens)] = tokens
        self._block_buffer = table

    @property
    def blocks(self) -> Blocks:
        """Page table: int32 [ceil(length / block size)], shared blocks first, then its own."""
        self.require_live()
        view = self._block_buffer[: self.num_blocks]
        view.setflags(write=False)
        return view

    @property
    def tokens(self) -> Tokens:
        """int32 [length]: the tokens the page table covers."""
        self.require_live()
        view = self._token_buffer[: self.length]
        view.setflags(write=False)
        return view

    @property
    def wanted(self) -> Tokens:
        """int32 [wanted_length]: the prompt it was acquired for."""
        return self._token_buffer[: self.wanted_length]

    def extend(self, tokens: Tokens) -> None:
        """Cover `tokens` (int32 [n]) behind those it covers now, in own blocks, evicting as needed.

        Raises:
            OutOfBlocksError: there are not enough blocks; nothing was changed.
            LeaseReleasedError: after its release.
        """
        self._cache._extend(self, tokens)

    def commit(self, upto: int | None = None) -> None:
        """The KV of the first `upto` tokens (None: all it covers) is computed: others may share it now.

        Where another lease was first with the same blocks, this one takes those over and frees its own. A
        lease that is further already stays where it is.

        Raises:
            LeaseError: `upto` is more than it covers.
            LeaseReleasedError: after its release.
        """
        self._cache._commit(self, upto)

    def fork(self) -> "Lease":
        """A second lease on the ready tokens: whole blocks are shared, a partial last one is copied at once.

        Raises:
            OutOfBlocksError: no block for the copy; nothing was changed.
            LeaseReleasedError: after its release.
        """
        return self._cache._fork(self)

    def abandon(self) -> None:
        """Whoever waits for this lease's prompt should not: it will not be computed, or not soon."""
        self._cache._abandon(self)

    def release(self, hints: RetentionHints | None = None) -> None:
        """Unpin everything; own blocks that were not committed are freed. A second call does nothing.

        `hints` say how long what it leaves in the cache should stay there, within the limits of its scope.
        """
        self._cache._release(self, hints)

    def close(self) -> None:
        """End its life and let go of its arrays. For the cache alone."""
        self.live = False
        self._token_buffer = self._block_buffer = _NOTHING

    def put_tokens(self, tokens: Tokens) -> bool:
        """Write `tokens` behind the covered ones; says whether the wanted prompt goes on like that.

        For the cache alone.
        """
        first, end = self.length, self.length + len(tokens)
        self.length = end
        there = self._token_buffer[first : min(end, self.wanted_length)]
        as_wanted = there.tobytes() == tokens[: len(there)].tobytes()
        if not as_wanted or end > self.wanted_length:  # else they are written already
            self._token_buffer = _grown(self._token_buffer, first, end)
            self._token_buffer[first:end] = tokens
        return as_wanted

    def put_blocks(self, blocks: Blocks) -> None:
        """Write `blocks` at the end of the page table. For the cache alone."""
        end = self.num_blocks + len(blocks)
        self._block_buffer = _grown(self._block_buffer, self.num_blocks, end)
        self._block_buffer[self.num_blocks : end] = blocks
        self.num_blocks = end

    def covered_tokens(self, first: int, last: int) -> Tokens:
        """Tokens of its blocks from `first` up to `last`. For the cache alone."""
        size = self._cache.block_size
        return self._token_buffer[first * size : last * size]

    def last_block(self) -> int | None:
        """The last of the page table, None where that is empty. For the cache alone."""
        return self._block_buffer.item(self.num_blocks - 1) if self.num_blocks else None

    def table_copy(self) -> Blocks:
        """The page table with the room behind it. For the cache alone."""
        return self._block_buffer.copy()

    def own_blocks(self, end: int | None = None) -> Blocks:
        """A writable view of the page table behind the indexed blocks, up to block `end`. For the cache alone."""
        return self._block_buffer[self.indexed : self.num_blocks if end is None else end]

    def indexed_tokens(self) -> Tokens:
        """Tokens of the blocks that belong to the index. For the cache alone."""
        return self._token_buffer[: self.indexed * self._cache.block_size]

    def require_live(self) -> None:
        """Raises LeaseReleasedError after its release."""
        if not self.live:
            raise LeaseReleasedError("the lease was released")


def _grown(buffer: Tokens, used: int, needed: int) -> Tokens:
    if needed <= len(buffer):
        return buffer
    larger = np.empty(needed + needed // 2, INT32)
    larger[:used] = buffer[:used]
    return larger
