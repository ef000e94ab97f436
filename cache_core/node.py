"""One node of the radix tree: an edge label, the blocks that hold its KV, and who pins it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from cache_core.block_pool import Blocks
from cache_core.tokens import Tokens

if TYPE_CHECKING:
    from cache_core.eviction.keeps import Retained


class Node:
    """An edge of the prefix index with the node at its end.

    Label and block numbers are held as the bytes of int32 arrays: that is the smallest form Python has, it
    compares and joins at memory speed, is immutable, and numpy views it without a copy.
    """

    __slots__ = (
        "blocks",
        "children",
        "label",
        "last_access",
        "leases",
        "parent",
        "queued",
        "record",
        "resident",
        "retained",
    )

    def __init__(self, parent: "Node | None", label: bytes, blocks: bytes) -> None:
        self.parent = parent  # None: a root, or no longer in a tree
        self.label = label  # int32 token ids of whole blocks
        self.blocks = blocks  # int32 block numbers
        self.children: dict[bytes, Node] | None = None  # by the bytes of their first block; None: a leaf
        self.leases = 0  # leases that pin this node; never less than any child's
        self.last_access = 0  # logical clock, set when a lease lets go; never less than an unleased child's
        self.queued: float | None = (
            None  # the key under which the eviction policy holds an entry for this node
        )
        self.record: Any = None  # what the eviction policy knows of its last block, or of one below
        self.resident: bytes | None = None  # which tiers below have its blocks; see cache_core.residency
        self.retained: Retained | None = None  # what a hint was granted for the prefix that ends here

    @property
    def evictable(self) -> bool:
        """An unleased leaf of a tree."""
        return self.parent is not None and self.leases == 0 and not self.children

    @property
    def num_blocks(self) -> int:
        """Blocks on this edge."""
        return len(self.blocks) // 4

    def tokens(self) -> Tokens:
        """The edge label as an int32 array, without a copy."""
        return np.frombuffer(self.label, dtype=np.int32)

    def block_ids(self) -> Blocks:
        """The block numbers as an int32 array, without a copy."""
        return np.frombuffer(self.blocks, dtype=np.int32)


class Root(Node):
    """Where the prefixes of one scope begin; has no label. Pinned by every lease of its scope."""

    __slots__ = ("detached", "held", "scope")

    def __init__(self, scope: str) -> None:
        super().__init__(None, b"", b"")
        self.scope = scope
        self.held = 0  # blocks below it, leased or not
        self.detached = False  # the scope was purged: no new match gets here, leases still end here
