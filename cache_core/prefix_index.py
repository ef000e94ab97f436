"""Radix tree from token ids to blocks, with a root for every scope.

Labels are whole blocks, so trees split and match at block boundaries only. The length of a label is bounded,
so that splitting, growing and searching a node cost the same however long the prefix is.
"""

from collections.abc import Iterator

import numpy as np

from cache_core.block_pool import Blocks
from cache_core.errors import IntegrityError
from cache_core.node import Node, Root
from cache_core.residency import joined, split
from cache_core.tokens import INT32, TOKEN_BYTES, Tokens, common_prefix

_MAX_LABEL = 1 << 16  # bytes in one label
_SPARE = 16  # block numbers that a page table has room for beyond its prompt
_MAX_GROWN = 1 << 14  # bytes up to which a label grows in place, since each growth copies it


class PrefixIndex:
    """Finds and grows prefixes. Touches no tensors, frees no block, reads no clock; not locked.

    `blocks` and `unleased` count the blocks in all trees and those of them under no lease.
    """

    def __init__(self, block_size: int) -> None:
        self._block = block_size
        self._step = block_size * TOKEN_BYTES  # bytes of one block's label
        self._roots: dict[str, Root] = {}
        self._detached: set[Root] = set()
        self.blocks = 0
        self.unleased = 0

    def root(self, scope: str) -> Root:
        """The root of a scope, made where there is none."""
        root = self._roots.get(scope)
        if root is None:
            root = self._roots[scope] = Root(scope)
        return root

    def roots(self) -> list[Root]:
        """Every root, those of purged scopes that leases still hold included."""
        return [*self._roots.values(), *self._detached]

    def match(self, scope: str, tokens: Tokens) -> int:
        """Leading tokens of `tokens` that are indexed, in whole blocks. Changes nothing."""
        root = self._roots.get(scope)
        if root is None:
            return 0
        _, matched, _, inside = self._walk(root, tokens)
        return matched + inside

    def descend(self, node: Node, tokens: Tokens) -> tuple[Node, int]:
        """Follow `tokens` from `node` as far as they are indexed, splitting an edge where they leave it.

        Returns the node that ends exactly there, and how many tokens below `node` that is.
        """
        node, matched, child, inside = self._walk(node, tokens)
        if child is not None and inside:
            node = self._split(child, inside * TOKEN_BYTES)
        return node, matched + inside

    def leads_on(self, node: Node, tokens: Tokens) -> bool:
        """Whether a child of `node` begins with the first block of `tokens`."""
        children = node.children
        return children is not None and tokens[: self._block].tobytes() in children

    def append(self, node: Node, tokens: Tokens, blocks: Blocks) -> Node:
        """Put `tokens` (whole blocks that no child of `node` begins with) below `node`, pinned by one lease.

        `node` must be pinned by that lease already. Returns the node that ends them.
        """
        label, ids = tokens.tobytes(), blocks.tobytes()
        self.blocks += len(blocks)
        if self._can_grow(node, len(label)):
            node.label += label
            node.blocks += ids
            return node
        piece = max(_MAX_LABEL // self._step, 1)  # blocks in one node
        for first in range(0, len(blocks), piece):
            last = first + piece
            child = Node(node, label[first * self._step : last * self._step], ids[first * 4 : last * 4])
            child.leases = 1
            self._adopt(node, child)
            node = child
        return node

    def path_blocks(self, node: Node, above: Node | None = None) -> Blocks:
        """Block numbers from below `above` (the root, where None) down to the end of `node`."""
        parts: list[bytes] = []
        step: Node | None = node
        while step is not above and step is not None:
            parts.append(step.blocks)
            step = step.parent
        parts.reverse()
        return np.frombuffer(b"".join(parts), INT32)

    def pinned_table(self, node: Node, blocks: int) -> Blocks:
        """`pin`, and a new array for at least `blocks` block numbers, which begins with those down to its end."""
        parts: list[bytes] = []
        left = 4 * blocks
        step: Node | None = node
        while step is not None:
            numbers = step.blocks
            if step.leases == 0:
                self.unleased -= len(numbers) >> 2
            step.leases += 1
            parts.append(numbers)
            left -= len(numbers)
            step = step.parent
        parts.reverse()
        parts.append(bytes(max(left, 0) + 4 * _SPARE))
        return np.frombuffer(bytearray().join(parts), INT32)  # one copy, which can be written

    def path_tokens(self, node: Node) -> tuple[str, Tokens]:
        """The scope of a node, and the tokens from its root down to its end."""
        parts: list[bytes] = []
        step = node
        while step.parent is not None:
            parts.append(step.label)
            step = step.parent
        if not isinstance(step, Root):
            raise IntegrityError("a path begins at a root")
        parts.reverse()
        return step.scope, np.frombuffer(b"".join(parts), INT32)

    def path(self, scope: str, tokens: Tokens) -> list[tuple[Node, int]]:
        """The nodes that `tokens` lead through, with how many blocks of each; of the last one maybe not all."""
        root = self._roots.get(scope)
        if root is None:
            return []
        node, _, child, inside = self._walk(root, tokens)
        found = [] if child is None or not inside else [(child, inside // self._block)]
        while node.parent is not None:
            found.append((node, node.num_blocks))
            node = node.parent
        found.reverse()
        return found

    def pin(self, node: Node, above: Node | None = None) -> None:
        """One lease more on every node from `node` up to, not including, `above` (all, where None)."""
        step: Node | None = node
        while step is not above and step is not None:
            if step.leases == 0:
                self.unleased -= step.num_blocks
            step.leases += 1
            step = step.parent

    def unpin(self, node: Node, now: int) -> None:
        """One lease less on every node from `node` up to its root, all of which were used until `now`.

        Those that nobody can tell apart any more are joined.
        """
        step: Node | None = node
        chains = False
        while step is not None:
            step.leases -= 1
            if step.leases == 0:
                self.unleased += len(step.blocks) >> 2
            step.last_access = now
            if step.children is not None and len(step.children) == 1:
                chains = True
            step = step.parent
        if chains:
            self.merge_path(node)

    def trim(self, node: Node, n: int) -> Blocks:
        """Take up to `n` blocks off the end of an evictable leaf; an emptied leaf leaves the tree."""
        if not node.evictable:
            raise IntegrityError("only an unleased leaf loses blocks")
        kept = max(node.num_blocks - n, 0)
        taken = node.block_ids()[kept:]
        self.blocks -= len(taken)
        self.unleased -= len(taken)
        if kept:
            node.label = node.label[: kept * self._step]
            node.blocks = node.blocks[: kept * 4]
            if node.resident is not None:
                node.resident, _ = split(node.resident, kept)
        else:
            self._remove(node)
        return taken

    def merge(self, node: Node) -> Node:
        """Join `node` with an only child where nobody could tell the difference; returns the joined node.

        Nobody can where the same leases pin both (a lease pins its whole path, so equal counts say that) and
        both were used last at the same time, so that eviction order stays exact. The child keeps its
        identity, because leases end at it. A node whose end a hint was granted for stays as it is.
        """
        if node.parent is None or not node.children or len(node.children) != 1 or node.retained is not None:
            return node
        child = next(iter(node.children.values()))
        fits = len(node.label) + len(child.label) <= _MAX_LABEL
        if not fits or child.leases != node.leases or child.last_access != node.last_access:
            return node
        if node.resident is not None or child.resident is not None:
            child.resident = joined(node.resident, node.num_blocks, child.resident)
        child.label = node.label + child.label
        child.blocks = node.blocks + child.blocks
        child.parent = node.parent
        self._adopt(node.parent, child)
        node.parent = node.children = None
        return child

    def merge_path(self, node: Node) -> None:
        """Merge chains from `node` up to its root."""
        step = node.parent
        while step is not None:
            step = self.merge(step).parent

    def removed_below(self, node: Node) -> None:
        """A child of `node` left: `node` may be mergeable with the last one, or an empty root."""
        if isinstance(node, Root):
            self.drop_if_empty(node)
        else:
            self.merge(node)

    def leaves(self, scope: str | None = None) -> list[Node]:
        """The unleased leaves of one scope, or of all."""
        roots = self._roots.values() if scope is None else filter(None, [self._roots.get(scope)])
        return [node for root in roots for node in nodes_below(root) if node.evictable]

    def detach(self, scope: str) -> Root | None:
        """Make a scope's prefixes unreachable for new matches; leases keep what they pin."""
        root = self._roots.pop(scope, None)
        if root is not None and root.leases:
            root.detached = True
            self._detached.add(root)
        return root

    def drop_if_empty(self, root: Root) -> None:
        """Forget a root that has neither leases nor prefixes."""
        if root.leases or root.children:
            return
        if root.detached:
            self._detached.discard(root)
        else:
            self._roots.pop(root.scope, None)

    def _can_grow(self, node: Node, more: int) -> bool:
        if node.children or node.leases != 1 or node.retained is not None or node.parent is None:
            return False
        return len(node.label) + more <= _MAX_GROWN

    def _walk(self, node: Node, tokens: Tokens) -> tuple[Node, int, Node | None, int]:
        """How far `tokens` lead: (last whole node, tokens to its end, child entered, tokens inside that)."""
        query, block = tokens.data, self._block
        start, end = 0, len(tokens)
        while end - start >= block and node.children:
            child = node.children.get(query[start : start + block].tobytes())
            if child is None:
                break
            stop = start + len(child.label) // TOKEN_BYTES
            # one memcmp; `==` between bytes and a memoryview would compare item by item
            if stop <= end and child.label.startswith(query[start:stop]):
                node, start = child, stop
                continue
            return node, start, child, common_prefix(child.tokens(), tokens[start:]) // block * block
        return node, start, None, 0

    def _split(self, node: Node, at: int) -> Node:
        """Cut an edge `at` bytes into its label and return the upper part, which inherits leases and heat.

        `node` becomes the lower part, because the leases that end at it end where it ends.
        """
        if node.parent is None:
            raise IntegrityError("a root has no label to split")
        ids = at // self._step * 4
        upper = Node(node.parent, node.label[:at], node.blocks[:ids])
        upper.leases, upper.last_access, upper.record = node.leases, node.last_access, node.record
        if node.resident is not None:
            upper.resident, node.resident = split(node.resident, ids // 4)
        self._adopt(node.parent, upper)
        node.label, node.blocks, node.parent = node.label[at:], node.blocks[ids:], upper
        self._adopt(upper, node)
        return upper

    def _adopt(self, parent: Node, child: Node) -> None:
        if parent.children is None:
            parent.children = {}
        parent.children[child.label[: self._step]] = child

    def _remove(self, node: Node) -> None:
        parent = node.parent
        if parent is None or parent.children is None:
            raise IntegrityError("a node in a tree is its parent's child")
        del parent.children[node.label[: self._step]]
        if not parent.children:
            parent.children = None
        node.parent = None


def nodes_below(root: Node) -> Iterator[Node]:
    """Every node of a tree but its root, parents first."""
    stack = list(root.children.values()) if root.children else []
    while stack:
        node = stack.pop()
        yield node
        if node.children:
            stack.extend(node.children.values())
