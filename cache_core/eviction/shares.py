"""How much of the cache each scope holds, and who makes room when one holds more than its share."""

from itertools import islice

from cache_core.errors import IntegrityError
from cache_core.eviction.policy import EvictionPolicy
from cache_core.node import Node, Root

_LOOKS = (
    32  # leaves of others that are passed over, in the policy's order, to find one of a scope over its share
)
_CHILDREN = 160  # of one node that are looked at after that: more than one scope may keep by hints
_NODES = 256  # of one scope that are looked at then


class Shares:
    """A scope over its share makes room before any other does, so that nobody loses blocks to who floods the cache.

    Nothing is reserved: alone, or as long as nobody is over, scopes take what is free and the policy's order holds.
    Not locked: used under the cache's lock.

    Args:
        blocks: that one scope may hold before it makes room for the others.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._over: set[Root] = set()
        self._scopes = 0  # that hold any block

    def grew(self, root: Root, blocks: int) -> None:
        """A scope has that many blocks more."""
        self._scopes += not root.held and blocks > 0
        root.held += blocks
        if root.held > self.blocks and not root.detached:
            self._over.add(root)

    def shrank(self, root: Root, blocks: int) -> None:
        """A scope has that many blocks less."""
        root.held -= blocks
        self._scopes -= not root.held and blocks > 0
        if root.held <= self.blocks:
            self._over.discard(root)

    def forget(self, root: Root) -> None:
        """Nothing of it can be matched any more."""
        self._over.discard(root)

    def most(self, root: Root) -> int:
        """Blocks that may go of a scope before somebody else may be next: what it holds beyond its share."""
        shared = self._scopes > 1 and root in self._over
        return root.held - self.blocks if shared else root.held

    def victim(self, policy: EvictionPolicy) -> Node | None:
        """As `EvictionPolicy.victim`, of a scope over its share where one has an evictable leaf.

        In the policy's order, unless many leaves of others rank lower: then one that was not used for long.
        """
        if not self._over or self._scopes == 1:
            return policy.victim()
        passed: list[Node] = []
        found: Node | None = None
        while len(passed) < _LOOKS and (node := policy.victim()) is not None:
            if root_of(node) in self._over:
                found = node
                break
            passed.append(node)
        if found is None and passed:
            found = self._cold_leaf() or passed.pop(0)
        for node in passed:
            policy.offer(node)
        return found

    def _cold_leaf(self) -> Node | None:
        for root in sorted(self._over, key=lambda root: root.held, reverse=True):
            leaf = _cold_leaf_below(root)
            if leaf is not None:
                return leaf
        return None


def root_of(node: Node) -> Root:
    """The root of a node's tree."""
    while node.parent is not None:
        node = node.parent
    if not isinstance(node, Root):
        raise IntegrityError("a path begins at a root")
    return node


def _cold_leaf_below(root: Root) -> Node | None:
    """An evictable leaf that no hint keeps, by way of the children that were used longest ago; None: none was seen."""
    waiting: list[Node] = [root]
    for _ in range(_NODES):
        if not waiting:
            break
        node = waiting.pop()
        if node.children:
            free = [child for child in islice(node.children.values(), _CHILDREN) if not child.leases]
            waiting += sorted(free, key=lambda child: child.last_access, reverse=True)
        elif node.evictable and (node.retained is None or not node.retained.kept):
            return node
    return None
