"""Takes blocks that no lease pins out of the cache."""

import logging
from collections.abc import Callable, Mapping

from cache_core.block_pool import BlockPool, Blocks
from cache_core.eviction.retention import Retention
from cache_core.eviction.shares import Shares, root_of
from cache_core.metrics import CacheObserver, TierName
from cache_core.node import Node, Root
from cache_core.prefix_index import PrefixIndex
from cache_core.residency import BITS, Kept, bits_of, warmest
from cache_core.tick_times import TickTimes
from cache_core.tokens import Tokens

log = logging.getLogger(__name__)

Spill = Callable[
    [str, Tokens, Blocks], None
]  # (scope, tokens, blocks): a whole path whose end is about to go


class Evictor:
    """Frees blocks: for want of room, because nobody comes back to them, or because they must not be there.

    Not locked: the cache's lock is held around every call.

    Args:
        freed: told how many blocks went with one call.
    """

    def __init__(
        self,
        pool: BlockPool,
        index: PrefixIndex,
        policy: Retention,
        shares: Shares,
        ticks: TickTimes,
        observer: CacheObserver,
        freed: Callable[[int], None],
    ) -> None:
        self.spill: Spill | None = None  # shown what is evicted before it goes
        self.kept: Mapping[TierName, Kept] = {}  # whether each tier below still has what it had at a moment
        self._pool = pool
        self._index = index
        self._policy = policy
        self._shares = shares
        self._ticks = ticks
        self._observer = observer
        self._freed = freed

    def evict(self, n: int, spill: Spill | None = None) -> int:
        """Free up to `n` blocks in the policy's order; says how many. Shown to `spill` (None: the one set) first."""
        freed, spill = 0, spill or self.spill
        while freed < n and (node := self._policy.victim()) is not None:
            above, root = node.parent, root_of(node)
            taken = min(n - freed, self._policy.tail(node), self._shares.most(root))
            if spill is not None and not self._lies_below(node, taken):
                self._show(spill, node)
            self._policy.evicted(node, taken)
            self._observer.evicted("device", self._policy.name, taken, self._ticks.age(node.last_access))
            freed += self._release_end(root, node, taken)
            if node.evictable:
                self._policy.offer(node)
            elif above is not None:
                self._removed_below(above)
        self._freed(freed)
        return freed

    def prune(self) -> int:
        """Forget branches that were not used within their time to live; says how many blocks."""
        freed = sum(self._prune_from(leaf) for leaf in self._policy.expired())
        self._freed(freed)
        return freed

    def forget(self, leaves: list[Node]) -> int:
        """Remove evictable leaves, and what becomes a leaf by that; says how many blocks."""
        freed = 0
        for leaf in leaves:
            node = leaf
            root = root_of(leaf)
            while node.evictable and node.parent is not None:
                above = node.parent
                freed += self._release_end(root, node, node.num_blocks)
                self._policy.removed(node)
                node = above
            self._removed_below(node)
        self._freed(freed)
        return freed

    def lies_in(self, node: Node) -> TierName | None:
        """The warmest tier below that is known to have the last block of `node`."""
        return warmest(node.resident, node.num_blocks - 1, self.kept)

    def _prune_from(self, leaf: Node) -> int:
        """Forget a leaf, and of what is above it all that was used last with it."""
        freed, node, root, used = 0, leaf, root_of(leaf), leaf.last_access
        while node.evictable and node.parent is not None and node.last_access == used:
            if node is not leaf and node.retained is not None:
                break
            above, blocks = node.parent, node.num_blocks
            self._observer.evicted("device", "ttl", blocks, self._ticks.age(used))
            freed += self._release_end(root, node, blocks)
            self._policy.removed(node)
            node = above
        self._removed_below(node)
        return freed

    def _lies_below(self, node: Node, taken: int) -> bool:
        """Whether every tier below is known to have the last blocks of a node."""
        if node.resident is None or not self.kept:
            return False
        bits = bits_of(node.resident, node.num_blocks, self.kept)[-taken:]
        wanted = sum(BITS[tier] for tier in self.kept)
        return bool((bits & wanted == wanted).all())

    def _show(self, spill: Spill, node: Node) -> None:
        """Let what goes be copied. Where that fails, it goes uncopied: whoever needs the room gets it."""
        try:
            spill(*self._index.path_tokens(node), self._index.path_blocks(node))
        except Exception:
            log.exception("blocks are evicted that could not be copied")

    def _release_end(self, root: Root, node: Node, taken: int) -> int:
        """Take blocks off the end of a leaf in the tree of `root`; says how many."""
        blocks = self._index.trim(node, taken)
        self._shares.shrank(root, len(blocks))
        return self._pool.release(blocks)

    def _removed_below(self, node: Node) -> None:
        """A child of `node` is gone: it may be evictable now, or joined with its last child."""
        if node.evictable:
            self._policy.offer(node)
        self._index.removed_below(node)
